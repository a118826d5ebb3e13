"""A store of an earlier version is brought to this one when it is opened; one of a newer version is refused."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import msgspec
import psycopg
import pytest
from ledger_samples import Store, ids, opened, recorded, run_id

from sexton.model.errors import StoreError
from sexton.store.directory import DirectoryStore
from sexton.store.postgres import PostgresStore
from sexton.store.postgres import database as database_module
from sexton.store.postgres import schema as postgres_schema
from sexton.store.postgres.database import Database
from sexton.store.postgres.schema import migrate
from sexton.store.sqlite import SqliteStore
from sexton.store.sqlite import schema as sqlite_schema
from sexton.store.sqlite.schema import open_writer

NOW = postgres_schema.migrations()[-1].version
SQLITE_NOW = sqlite_schema.migrations()[-1].version
NEXT = postgres_schema.Migration(NOW + 1, "next.sql", """
CREATE TABLE {schema}.times_applied (n int);
INSERT INTO {schema}.times_applied VALUES (1);
ALTER TABLE {schema}.run ADD COLUMN colour text NOT NULL DEFAULT 'red';
""")
BROKEN = postgres_schema.Migration(NOW + 2, "broken.sql", "ALTER TABLE {schema}.run DROP COLUMN job; SELECT 1 / 0;")
SQLITE_NEXT = sqlite_schema.Migration(SQLITE_NOW + 1, "next.sql", """
CREATE TABLE times_applied (n INTEGER);
INSERT INTO times_applied VALUES (1);
ALTER TABLE run ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';
""")
SQLITE_BROKEN = sqlite_schema.Migration(
    SQLITE_NOW + 2, "broken.sql", "ALTER TABLE run ADD COLUMN taste TEXT; INSERT INTO nowhere VALUES (1);")


@pytest.fixture
async def openings(database: str) -> AsyncIterator[list[Database]]:
    """Of four nodes that start at once."""
    made = [Database(database, "sexton", most=1, name=f"opening {number}") for number in range(4)]
    for one in made:
        await one.open()
    yield made
    for one in made:
        await one.close()


def asked(url: str, question: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question).fetchall()


async def fill(store: Store) -> None:
    async with opened(store):
        for number in range(3):
            await store.record(recorded(number))
        await store.put_state("backup", "mark", "x")


async def test_a_database_of_an_earlier_version_is_brought_to_this_one_once(
    database: str, openings: list[Database],
) -> None:
    """By whichever node comes first, while the others wait; what was in it is there, and every one of them can use it.
    A daemon of the earlier version that comes afterwards is refused, and changes nothing."""
    await fill(PostgresStore(database))
    steps = (*postgres_schema.migrations(), NEXT)
    await asyncio.gather(*(migrate(one, steps) for one in openings))
    await migrate(openings[0], steps)
    assert asked(database, "SELECT n FROM sexton.times_applied") == [(1,)]
    assert asked(database, "SELECT version FROM sexton.meta") == [(NOW + 1,)]
    assert asked(database, "SELECT count(*) FILTER (WHERE colour = 'red') FROM sexton.run") == [(3,)]
    with pytest.raises(StoreError, match=f"version {NOW + 1}, written by a newer Sexton"):
        await PostgresStore(database).open()
    assert asked(database, "SELECT version FROM sexton.meta") == [(NOW + 1,)]


async def test_a_daemon_of_the_earlier_version_goes_on(database: str, openings: list[Database]) -> None:
    """While it has the store open a newer one may come: a step adds, and takes nothing away that it needs."""
    async with opened(PostgresStore(database)) as old:
        await old.record(recorded(1))
        await migrate(openings[0], (*postgres_schema.migrations(), NEXT))
        await old.record(recorded(2))
        assert ids(await old.runs(limit=9)) == [run_id(2), run_id(1)]


async def test_a_step_that_fails_leaves_the_database_as_it_was(database: str, openings: list[Database]) -> None:
    """Also the steps before it are undone; the step is named, nobody is kept out afterwards."""
    await fill(PostgresStore(database))
    with pytest.raises(StoreError, match=r"migration broken\.sql of schema sexton failed, .*division by zero"):
        await migrate(openings[0], (*postgres_schema.migrations(), NEXT, BROKEN))
    assert asked(database, "SELECT version FROM sexton.meta") == [(NOW,)]
    assert asked(database, "SELECT to_regclass('sexton.times_applied')") == [(None,)]
    async with opened(PostgresStore(database)) as store:
        assert len(await store.runs(limit=9)) == 3 and await store.get_state("backup", "mark") == "x"


async def test_a_step_may_take_longer_than_an_answer(
    database: str, openings: list[Database], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A large table takes minutes, and so long the other nodes wait: both are told of no failure."""
    await fill(PostgresStore(database))
    monkeypatch.setattr(database_module, "ANSWER_SECONDS", 0.3)
    slow = msgspec.structs.replace(NEXT, sql="SELECT pg_sleep(1);" + NEXT.sql)
    await asyncio.gather(*(migrate(one, (*postgres_schema.migrations(), slow)) for one in openings[:2]))
    assert asked(database, "SELECT n FROM sexton.times_applied") == [(1,)]


async def test_a_file_of_an_earlier_version_is_brought_to_this_one(tmp_path: Path) -> None:
    """What was in it is there; opened again nothing is done twice; the earlier version is refused."""
    await fill(SqliteStore(tmp_path))
    ledger = tmp_path / "default" / "ledger.sqlite3"
    for _ in range(2):
        with closing(open_writer(ledger, (*sqlite_schema.migrations(), SQLITE_NEXT))) as it:
            assert it.execute("SELECT n FROM times_applied").fetchall() == [(1,)]
            assert it.execute("SELECT count(*) FROM run WHERE colour = 'red'").fetchone() == (3,)
            assert it.execute("PRAGMA user_version").fetchone() == (SQLITE_NOW + 1,)
    with pytest.raises(StoreError, match=f"has schema {SQLITE_NOW + 1}, written by a newer Sexton"):
        await SqliteStore(tmp_path).open()


async def test_a_step_that_fails_leaves_the_file_at_the_version_before(tmp_path: Path) -> None:
    """Nothing of it is there; the step is named; with it mended the file is opened."""
    await fill(SqliteStore(tmp_path))
    ledger = tmp_path / "default" / "ledger.sqlite3"
    with pytest.raises(StoreError, match=r"migration broken\.sql failed: no such table"):
        open_writer(ledger, (*sqlite_schema.migrations(), SQLITE_NEXT, SQLITE_BROKEN))
    with closing(sqlite3.connect(ledger)) as it:
        assert it.execute("PRAGMA user_version").fetchone() == (SQLITE_NOW + 1,)
        assert "taste" not in {row[1] for row in it.execute("PRAGMA table_info(run)")}
        assert it.execute("SELECT count(*) FROM run").fetchone() == (3,)
    mended = msgspec.structs.replace(SQLITE_BROKEN, sql="ALTER TABLE run ADD COLUMN taste TEXT;")
    open_writer(ledger, (*sqlite_schema.migrations(), SQLITE_NEXT, mended)).close()


def make_newer(kind: str, folder: Path, url: str) -> None:
    match kind:
        case "postgres":
            asked(url, "UPDATE sexton.meta SET version = 99 RETURNING 1")
        case "sqlite":
            with closing(sqlite3.connect(folder / "default" / "ledger.sqlite3")) as it:
                it.execute("PRAGMA user_version = 99")
        case _:
            meta = folder / "default" / "meta.json"
            meta.write_text(json.dumps({**json.loads(meta.read_text()), "schemaVersion": 99}))


@pytest.mark.parametrize("kind", ["postgres", "sqlite", "directory"])
async def test_a_store_of_a_newer_version_is_refused(kind: str, tmp_path: Path, database: str) -> None:
    """In a line that says both versions; what it holds is there for the newer Sexton."""
    make: Callable[[], Store] = {
        "postgres": lambda: PostgresStore(database), "sqlite": lambda: SqliteStore(tmp_path),
        "directory": lambda: DirectoryStore(tmp_path),
    }[kind]
    await fill(make())
    make_newer(kind, tmp_path, database)
    with pytest.raises(StoreError) as refused:
        await make().open()
    said = str(refused.value)
    assert "99, written by a newer Sexton; this one knows" in said and said.count("\n") == 0

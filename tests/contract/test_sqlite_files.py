"""Which files the SQLite store takes, and what it does with those that it must not take."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

import pytest
from ledger_samples import opened, recorded

from sexton.model.errors import StoreError
from sexton.store.sqlite import SqliteStore
from sexton.store.sqlite.schema import migrations


def content_of(ledger: Path) -> bytes:
    return ledger.read_bytes()


def damaged(content: bytes, damage: str) -> bytes:
    match damage:
        case "garbage":
            return b"this is not a database at all, " * 400
        case "zeroed-page":
            return content[:8192] + bytes(4096 * 8) + content[8192 + 4096 * 8 :]
        case _:
            return content[: len(content) // 2]


async def refusal(path: Path) -> str:
    with pytest.raises(StoreError) as refused:
        await SqliteStore(path).open()
    return str(refused.value)


@pytest.fixture
async def ledger(tmp_path: Path) -> Path:
    """The file of a store that was used and closed."""
    async with opened(SqliteStore(tmp_path)) as store:
        for number in range(300):
            await store.record(recorded(number))
    return tmp_path / "default" / "ledger.sqlite3"


async def test_files_are_private_to_their_owner(tmp_path: Path) -> None:
    """The directory is 0700 and every file in it 0600, whatever the umask, and after a careless chmod."""
    before = os.umask(0)
    try:
        async with opened(SqliteStore(tmp_path / "new", "prod")) as store:
            await store.record(recorded(1))
            directory = tmp_path / "new" / "prod"
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in directory.iterdir()}
        assert set(modes.values()) == {0o600} and "ledger.sqlite3-wal" in modes
        directory.chmod(0o755)
        (directory / "ledger.sqlite3").chmod(0o644)
        async with opened(SqliteStore(tmp_path / "new", "prod")):
            assert stat.S_IMODE((directory / "ledger.sqlite3").stat().st_mode) == 0o600
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    finally:
        os.umask(before)


async def test_deployments_do_not_see_each_other(tmp_path: Path) -> None:
    """Two deployment ids under one path are two ledgers, open at the same time."""
    async with opened(SqliteStore(tmp_path, "a")) as one, opened(SqliteStore(tmp_path, "b")) as two:
        await one.record(recorded(1))
        assert await two.runs(limit=9) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/abs"])
def test_a_deployment_id_is_one_directory_name(tmp_path: Path, name: str) -> None:
    """An id that would lead out of the path is refused."""
    with pytest.raises(StoreError, match="deployment id"):
        SqliteStore(tmp_path, name)


async def test_a_second_opener_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    """The directory belongs to one store; the refusal names the holder's pid and does not disturb it."""
    async with opened(SqliteStore(tmp_path)) as store:
        text = await refusal(tmp_path)
        assert f"in use by another daemon (pid {os.getpid()})" in text
        await store.record(recorded(1))
    async with opened(SqliteStore(tmp_path)) as store:
        assert len(await store.runs(limit=9)) == 1


@pytest.fixture(params=["garbage", "zeroed-page", "truncated"])
def damaged_ledger(ledger: Path, request: pytest.FixtureRequest) -> Path:
    ledger.write_bytes(damaged(content_of(ledger), request.param))
    return ledger


async def test_a_damaged_file_is_refused_and_left_alone(damaged_ledger: Path) -> None:
    """The refusal names the file; not a byte of it changes, and the lock is free again."""
    ledger, content = damaged_ledger, content_of(damaged_ledger)
    for _ in range(2):
        text = await refusal(ledger.parent.parent)
        assert str(ledger) in text and "left as it is" in text
    assert content_of(ledger) == content


async def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    """A sound SQLite file that is not a ledger gets no tables of ours."""
    path = tmp_path / "default" / "ledger.sqlite3"
    path.parent.mkdir()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE precious (thing)")
    other.close()
    content = content_of(path)
    assert "another program" in await refusal(tmp_path)
    assert content_of(path) == content


async def test_a_newer_schema_is_refused(ledger: Path) -> None:
    """A file of a later Sexton is not touched by an earlier one."""
    newer = migrations()[-1].version + 1
    with sqlite3.connect(ledger) as other:
        other.execute(f"PRAGMA user_version = {newer}")
    other.close()
    content = content_of(ledger)
    text = await refusal(ledger.parent.parent)
    assert f"schema {newer}" in text and "newer Sexton" in text
    assert content_of(ledger) == content


def test_migrations_are_numbered_without_gaps() -> None:
    """Each step leads to the version its file name says, one after the other."""
    assert [step.version for step in migrations()] == list(range(1, len(migrations()) + 1))


async def test_a_migration_that_fails_leaves_no_half_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is taken whole or not at all, and can be taken later."""
    good = migrations()
    (first,) = good[:1]
    bad = type(first)(first.version, first.name, first.sql + "\nCREATE TABLE run (again);")
    monkeypatch.setattr("sexton.store.sqlite.schema.migrations", lambda: (bad,))
    assert first.name in await refusal(tmp_path)
    monkeypatch.setattr("sexton.store.sqlite.schema.migrations", lambda: good)
    async with opened(SqliteStore(tmp_path)) as store:
        await store.record(recorded(1))


async def test_a_path_that_cannot_be_a_directory_is_explained(tmp_path: Path) -> None:
    """The refusal names the path and the reason."""
    (tmp_path / "file").write_text("")
    text = await refusal(tmp_path / "file" / "state")
    assert str(tmp_path / "file" / "state") in text


async def test_one_unreadable_record_does_not_hide_the_others(
    ledger: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Lists leave it out and say so in the log; asked for by id, it is an error."""
    with sqlite3.connect(ledger) as other:
        bad = other.execute("SELECT id FROM run ORDER BY id LIMIT 1").fetchone()[0]
        other.execute("UPDATE run SET body = '{\"phase\": 7}' WHERE id = ?", (bad,))
    other.close()
    async with opened(SqliteStore(ledger.parent.parent)) as store:
        assert len(await store.runs(limit=999)) == 299
        assert "cannot be read" in caplog.text
        with pytest.raises(StoreError, match=bad):
            await store.get(bad)

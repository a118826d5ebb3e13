"""Output files whose runs the store has forgotten, and the question that tells: `Ledger.known`."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from ledger_samples import Store, launch, opened, recorded
from test_coordination import A

from sexton.daemon.forgotten_output import MARK, QUIET_SECONDS, ForgottenOutput, Mark
from sexton.daemon.retention import retention_of
from sexton.execution.runlog import OutputFiles
from sexton.model.errors import StoreError
from sexton.model.settings import StateSettings
from sexton.run.identity import RunIds
from sexton.run.unwritten import Unwritten
from sexton.store.postgres import PostgresStore

OLD = QUIET_SECONDS + 60


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OutputFiles]:
    """Of a node that has always used database `db`."""
    made = OutputFiles(tmp_path / "output", 1000)
    (tmp_path / MARK).write_bytes(msgspec.json.encode(Mark(store="db", since=datetime(1970, 1, 1, tzinfo=UTC))))
    yield made
    made.close()


def put(files: OutputFiles, run_id: str, age: float = OLD, part: str = "") -> Path:
    path = files.path(run_id)
    path = path.with_name(path.name + part)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("output\n")
    os.utime(path, (time.time() - age,) * 2)
    return path


def forgotten_of(
    store: Store, files: OutputFiles, ours: Collection[str] = (), database: str | None = "db",
) -> ForgottenOutput:
    return ForgottenOutput(store, files, lambda: database, lambda: ours)


async def test_what_is_known(store: Store) -> None:
    """Recorded or only intended; what was pruned, or never was, is not."""
    await store.intend(launch(1))
    for number in (2, 3, 4):
        await store.record(recorded(number, ended=float(number)))
    gone = await store.prune("backup", 2)
    asked = [launch(number).id for number in range(1, 6)]
    assert await store.known(asked) == set(asked) - {launch(5).id, *gone} and len(gone) == 1
    assert await store.known([]) == frozenset()
    assert await store.known(["%", "no such run", "'"]) == frozenset()


async def test_files_of_runs_that_the_store_has_forgotten_go(store: Store, files: OutputFiles) -> None:
    """Also their parts, and folders that are empty then. What stays: files of runs that are known, that live here,
    whose records wait for the store, or that are younger than an hour, and what is no output."""
    ids = RunIds()
    known, living, waiting, young, growing, gone, split = (ids.next() for _ in range(7))
    await store.record(msgspec.structs.replace(recorded(1), launch=msgspec.structs.replace(launch(1), id=known)))
    kept = [put(files, known), put(files, living), put(files, waiting), put(files, young, age=60),
            put(files, growing), put(files, growing, age=1, part=".0")]
    removed = [put(files, gone), put(files, split), put(files, split, part=".0"), put(files, split, part=".1"),
               put(files, "000000" + gone[6:])]
    stranger = put(files, gone).with_name("notes.log")
    stranger.write_text("mine")
    (files.directory / "README").write_text("mine")
    os.utime(stranger, (0, 0))
    forgotten = forgotten_of(store, files, {living, waiting})
    await forgotten.remove()
    files.close()
    assert [path for path in removed if path.exists()] == [] and not removed[-1].parent.exists()
    assert all(path.exists() for path in (*kept, stranger, files.directory / "README"))
    assert forgotten.removed == 3


async def test_many_in_several_rounds(store: Store, files: OutputFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are asked for at once."""
    monkeypatch.setattr("sexton.daemon.forgotten_output.AT_ONCE", 7)
    ids = [RunIds().next() for _ in range(40)]
    for number, run_id in enumerate(ids):
        put(files, run_id)
        if number % 4 == 0:
            fitting = msgspec.structs.replace(launch(number), id=run_id)
            await store.record(msgspec.structs.replace(recorded(number), launch=fitting))
    await forgotten_of(store, files).remove()
    files.close()
    assert {path.stem for path in files.directory.glob("*/*.log")} == set(ids[::4])


async def test_a_store_that_knows_nothing_is_not_believed(
    store: Store, files: OutputFiles, caplog: pytest.LogCaptureFixture,
) -> None:
    """Another database by mistake, or an empty one: the files stay, and the log says why."""
    path = put(files, RunIds().next())
    with caplog.at_level(logging.WARNING):
        await forgotten_of(store, files).remove()
    files.close()
    assert path.exists() and "knows none of the 1 runs" in caplog.text


async def test_a_store_that_does_not_answer_removes_nothing(
    make_store: Callable[..., Store], files: OutputFiles,
) -> None:
    """That is an error, and no file is touched."""
    path = put(files, RunIds().next())
    with pytest.raises(StoreError):
        await forgotten_of(make_store(), files).remove()
    files.close()
    assert path.exists()


async def test_before_there_was_any_output(make_store: Callable[..., Store], files: OutputFiles) -> None:
    """There is not even a folder: nothing to do."""
    async with opened(make_store()) as store:
        await forgotten_of(store, files).remove()


async def test_files_from_before_another_database_are_left(store: Store, files: OutputFiles) -> None:
    """A node whose store was moved, by a reload or a restart: what it ran before is known to the other database, and
    its output stays, also after the way back. What runs after it is looked at again."""
    before = put(files, RunIds().next())
    for database in ("other", "other", "db", None):
        await forgotten_of(store, files, database=database).remove()
    moved_at = msgspec.json.decode((files.directory.parent / MARK).read_bytes(), type=Mark).since
    while datetime.now(UTC) < moved_at + timedelta(milliseconds=2):
        pass
    after, known = put(files, RunIds().next()), RunIds().next()
    await store.record(msgspec.structs.replace(recorded(1), launch=msgspec.structs.replace(launch(1), id=known)))
    put(files, known)
    await forgotten_of(store, files).remove()
    files.close()
    assert before.exists() and not after.exists()


async def test_who_looks(store: Store, files: OutputFiles) -> None:
    """A node that shares a database, with runs that live here or wait for the store spared. In a folder that nodes
    share nobody can tell whose a file is, and a ledger of one node forgets output with its runs."""
    is_database = isinstance(store, PostgresStore)
    state = StateSettings(url="postgresql://u:secret@host/db" if is_database else None,
                          path=None if is_database else "/somewhere")
    run, record = SimpleNamespace(id="live"), recorded(1)
    facilities: Any = SimpleNamespace(clock=None, output_files=files, registry=[run], unwritten=Unwritten())
    facilities.unwritten.add(record, store)
    forgotten = retention_of(lambda: state, store, A, facilities, lambda ids: None).forgotten_output
    assert (forgotten is not None) == is_database
    assert forgotten is None or forgotten._ours() == {"live", record.launch.id}
    assert forgotten is None or "secret" not in (forgotten._database() or "")
    assert retention_of(lambda: None, store, A, facilities, lambda ids: None).forgotten_output is None

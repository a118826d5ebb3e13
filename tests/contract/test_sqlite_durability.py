"""What the SQLite store promises about processes that die and disks that refuse."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path

import pytest
from ledger_samples import ids, launch, opened, recorded, run_id, running

from sexton.model.errors import StoreError
from sexton.store.sqlite import SqliteStore
from sexton.store.sqlite.schema import open_writer

CHILD = Path(__file__).with_name("ledger_child.py")


async def start_child(task: str, path: Path) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), task, str(path), stdout=asyncio.subprocess.PIPE, env=environment
    )


async def test_acknowledged_writes_survive_sigkill(tmp_path: Path) -> None:
    """Every write a process was told of is there after that process was killed in the middle of its work, and
    the next process may have the directory at once."""
    child = await start_child("write", tmp_path)
    assert child.stdout is not None
    seen: list[str] = [(await child.stdout.readline()).decode() for _ in range(500)]
    child.send_signal(signal.SIGKILL)
    seen += (await child.stdout.read()).decode().splitlines(keepends=True)
    assert await child.wait() == -signal.SIGKILL
    acknowledged = [line.split() for line in seen if line.endswith("\n")]
    async with opened(SqliteStore(tmp_path)) as store:
        known = {run.launch.id: run for run in await store.runs(limit=100_000)}
        unfinished = set(ids(await store.unfinished()))
    assert len(acknowledged) >= 500
    for kind, run in acknowledged:
        assert run in known
        assert kind == "I" or (run not in unfinished and known[run].outcome is not None)


def test_commits_reach_the_disk_before_they_return(tmp_path: Path) -> None:
    """The writing connection has the settings that make a commit survive a loss of power."""
    connection = open_writer(tmp_path / "ledger.sqlite3")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    connection.close()


async def test_a_full_disk_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    """Writes that do not fit raise StoreError and leave nothing behind; with room again, writes work."""
    child = await start_child("full", tmp_path)
    out, _ = await child.communicate()
    assert out.decode().splitlines() == ["refused 10", "left 1", "later 2"]


async def test_one_bad_write_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    """Of a group only the write at fault fails: refused by the database, or impossible to encode."""
    async with opened(SqliteStore(tmp_path)) as store:
        assert isinstance(store, SqliteStore)
        with sqlite3.connect(store.directory / "ledger.sqlite3") as other:
            other.execute(
                "CREATE TRIGGER refuse BEFORE INSERT ON run WHEN new.job = 'refused'"
                " BEGIN SELECT raise(ABORT, 'not this one'); END"
            )
        other.close()
        jobs = ["fine"] * 5 + ["refused"] + ["fine"] * 5 + ["lone \ud800 surrogate"] + ["fine"] * 5
        answers = await asyncio.gather(
            *(store.record(recorded(n, job)) for n, job in enumerate(jobs)), return_exceptions=True
        )
        assert [n for n, answer in enumerate(answers) if answer is not None] == [5, 11]
        assert all(isinstance(answers[n], StoreError) for n in (5, 11))
        assert "not this one" in str(answers[5])
        assert len(await store.runs(limit=99)) == len(jobs) - 2
        assert store.statistics.failed_changes == 2


async def test_a_lost_note_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody waits for a note, so its failure goes to the log, and the writer goes on."""
    async with opened(SqliteStore(tmp_path)) as store:
        await store.intend(launch(1))
        store.note(running(1, "lone \ud800 surrogate"))
        await store.record(recorded(2))
        assert "1 notes on live runs were lost" in caplog.text
        assert ids(await store.unfinished()) == [run_id(1)]

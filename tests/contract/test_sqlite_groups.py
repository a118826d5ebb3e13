"""Group commit, and who waits for whom in the SQLite store."""

from __future__ import annotations

import asyncio
import sqlite3
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from ledger_samples import full_record, launch, opened, recorded, run_id, running

from sexton.model.errors import StoreError
from sexton.model.run import Outcome
from sexton.store.sqlite import SqliteStore
from sexton.store.sqlite.fairness import Fairness


@contextmanager
def write_lock(store: SqliteStore) -> Iterator[None]:
    """Another program holds the file's write lock: no commit can happen until it lets go."""
    other = sqlite3.connect(store.directory / "ledger.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def commits_in_log(ledger: Path) -> int:
    """Transactions in the write-ahead log, by its format: a frame that ends one carries the database size."""
    log = Path(f"{ledger}-wal").read_bytes()
    page_size = struct.unpack(">I", log[8:12])[0]
    salts = log[16:24]
    heads = [log[at : at + 24] for at in range(32, len(log), 24 + page_size)]
    return sum(1 for head in heads if head[8:16] == salts and struct.unpack(">I", head[4:8])[0])


async def test_writes_that_wait_together_are_one_transaction(tmp_path: Path) -> None:
    """A hundred records that queue up behind a slow commit make one more commit, not a hundred."""
    async with opened(SqliteStore(tmp_path)) as store:
        assert isinstance(store, SqliteStore)
        await store.intend(launch(1))
        before = commits_in_log(store.directory / "ledger.sqlite3")
        with write_lock(store):
            writes = [asyncio.ensure_future(store.record(recorded(n, f"job-{n}"))) for n in range(100)]
            await asyncio.sleep(0)
        await asyncio.gather(*writes)
        assert commits_in_log(store.directory / "ledger.sqlite3") - before <= 2
        assert store.statistics.changes == 101
        assert store.statistics.commits <= 3


async def test_reads_do_not_wait_for_a_commit(tmp_path: Path) -> None:
    """While a commit is stuck every question is answered, from what was acknowledged before."""
    async with opened(SqliteStore(tmp_path)) as store:
        assert isinstance(store, SqliteStore)
        await store.record(recorded(1))
        with write_lock(store):
            stuck = asyncio.ensure_future(store.record(recorded(2)))
            await asyncio.sleep(0)
            assert await store.get(run_id(1)) == recorded(1)
            assert (await store.history("backup", 9)).totals == {Outcome.SUCCESS: 1}
            assert await store.get_state("backup", "key") is None
            assert not stuck.done()
        await stuck


async def test_close_is_bounded_and_keeps_the_directory_while_it_writes(tmp_path: Path) -> None:
    """A commit that is stuck cannot hold up `close` for ever; until it is through, nobody else gets in."""
    store = SqliteStore(tmp_path, close_timeout=0.05)
    await store.open()
    with write_lock(store):
        stuck = asyncio.ensure_future(store.record(recorded(1)))
        await asyncio.sleep(0)
        with pytest.raises(StoreError, match="not finished within"):
            await store.close()
        with pytest.raises(StoreError, match="in use by another daemon"):
            await SqliteStore(tmp_path).open()
    await stuck


@asynccontextmanager
async def saturated_loop(iteration: float) -> AsyncIterator[None]:
    """A loop that never idles, with iterations of so many seconds."""
    done = False

    async def saturate() -> None:
        while not done:
            until = time.perf_counter() + iteration
            while time.perf_counter() < until:
                pass
            await asyncio.sleep(0)

    load = asyncio.ensure_future(saturate())
    try:
        yield
    finally:
        done = True
        await load


async def test_a_saturated_loop_does_not_starve_the_store(tmp_path: Path) -> None:
    """Beside a loop that is never idle, with iterations shorter than the interpreter's switch interval,
    bursts are written and read within a fraction of a second each (without giving way: often several)."""

    async def life(number: int) -> None:
        await store.intend(launch(number))
        store.note(running(number))
        await store.record(full_record(number))

    async with opened(SqliteStore(tmp_path, max_runs_per_job=0)) as store, asyncio.timeout(4):
        for burst, iteration in enumerate((0.004, 0.001, 0.0003)):
            async with saturated_loop(iteration):
                await asyncio.gather(*(life(burst * 500 + n) for n in range(500)))
                for number in range(10):
                    assert await store.get(run_id(number)) == full_record(number)


class Looks:
    """Stands in for an event loop: keeps what is to be called later."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_later(self, _delay: float, look: Callable[[], None]) -> None:
        self.waiting.append(look)

    def look(self) -> None:
        self.waiting.pop()()


def test_the_loop_gives_way_only_to_a_thread_that_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """While answers come, or when none is due, the loop loses no time and looks no more."""
    pauses: list[float] = []
    monkeypatch.setattr("sexton.store.sqlite.fairness.time.sleep", pauses.append)
    loop = Looks()
    fairness = Fairness(loop)  # type: ignore[arg-type]
    for _ in range(3):
        fairness.asked()
    assert len(loop.waiting) == 1
    loop.look()
    assert len(pauses) == 1
    fairness.answered(2)
    loop.look()
    assert len(pauses) == 1
    loop.look()
    assert len(pauses) == 2
    fairness.answered(1)
    loop.look()
    assert len(pauses) == 2 and loop.waiting == []
    fairness.asked()
    assert len(loop.waiting) == 1


async def test_a_full_job_is_trimmed_in_groups(tmp_path: Path) -> None:
    """With a bound of many runs the store forgets some at a time, oldest first; never fewer than the bound
    are kept, and after a restart it goes on where it was."""
    gone: list[str] = []
    for start in (0, 100):
        async with opened(SqliteStore(tmp_path, max_runs_per_job=64, on_pruned=gone.extend)) as store:
            for number in range(start, start + 100):
                await store.record(recorded(number, ended=number))
                kept = len((await store.history("backup", 999)).runs)
                assert min(number + 1, 64) <= kept <= 64 + 4
    assert sorted(gone) == [run_id(n) for n in range(len(gone))]
    assert len(gone) >= 200 - 64 - 4

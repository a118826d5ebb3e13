"""The one thread that writes: it commits whatever is queued as one transaction, and answers all at once."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, Final

import msgspec

from sexton.model.errors import StoreError
from sexton.model.run import RunRecord
from sexton.store import batch
from sexton.store.batch import Batch, Prune, Record, fold
from sexton.store.sqlite import statements
from sexton.store.sqlite.fairness import Fairness
from sexton.store.sqlite.whereabouts import LedgerMissing, Whereabouts

log = logging.getLogger(__name__)

MOST_CHANGES_PER_COMMIT: Final = 4096
"""Keeps a commit after a long stall to a few megabytes."""

LOOK_SECONDS: Final = 15.0
"""How long a ledger that was deleted or replaced may go unnoticed while nothing is written."""

_NOT_ONE_WRITES_FAULT: Final = frozenset({
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOMEM,
})  # fmt: skip

class Within(msgspec.Struct, frozen=True):
    """Anything else: done after the rows of its transaction; what it returns is the waiter's answer."""

    work: Callable[[Writer], Any]


Change = batch.Change | Within
Answer = Any
Waiter = asyncio.Future[Answer]
_Pending = tuple[Change, Waiter | None]
_Settled = tuple[Waiter | None, Answer]


class WriterStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What the writer has done since it was opened."""

    commits: int = 0
    changes: int = 0
    failed_changes: int = 0
    lost_notes: int = 0
    seconds: float = 0.0
    """Of all rounds to the disk, also those that failed."""


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """What the writer must know of the ledger before its first commit."""

    next_seq: int
    kept: dict[str, int]
    """Recorded runs of each job."""


def take_tally(connection: sqlite3.Connection) -> Tally:
    """Read it from the file, which may take a while when there are very many runs."""
    return Tally(
        next_seq=connection.execute(statements.NEWEST_SEQ).fetchone()[0] + 1,
        kept=dict(connection.execute(statements.RECORDED_PER_JOB)),
    )


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A ledger file, open for the writer."""

    connection: sqlite3.Connection
    tally: Tally
    whereabouts: Whereabouts


class Writer:
    """Owns the writing connection. `submit`, `post` and `stop` are for the event loop's thread only."""

    def __init__(
        self,
        opened: Opened,
        *,
        max_runs_per_job: int,
        on_pruned: Callable[[Sequence[str]], None] | None,
        renew: Callable[[], Opened],
    ) -> None:
        """`renew`, called on the writer's thread, begins a new ledger where ours was deleted; raises StoreError."""
        self._renew = renew
        self._problem: str | None = None
        self._misplaced = False
        self._max_runs = max_runs_per_job
        self._on_pruned = on_pruned
        self._asked: list[_Pending] = []
        """Of this round of the event loop, not handed over yet."""
        self._queue: SimpleQueue[list[_Pending] | None] = SimpleQueue()
        self._backlog: deque[_Pending] = deque()
        """Handed over; the thread's own."""
        self._encode = msgspec.json.Encoder().encode
        self._take_up(opened)
        self._commits = self._changes = self._failed = self._lost_notes = 0
        self._seconds = 0.0
        self._loop = asyncio.get_running_loop()
        self._stopped = self._loop.create_future()
        self._fairness = Fairness(self._loop)
        self._thread = threading.Thread(target=self._work, name="sexton-store-writer", daemon=True)
        self._thread.start()

    @property
    def statistics(self) -> WriterStatistics:
        return WriterStatistics(commits=self._commits, changes=self._changes, failed_changes=self._failed,
                                lost_notes=self._lost_notes, seconds=self._seconds)

    @property
    def problem(self) -> str | None:
        """Why nothing can be written now; None while it can."""
        return self._problem

    def submit(self, change: Change) -> Waiter:
        """Queue a change; the future is done when it is durable, or holds a StoreError."""
        waiter: Waiter = self._loop.create_future()
        self._put(change, waiter)
        return waiter

    def post(self, change: Change) -> None:
        """Queue a change that nobody waits for. A failure is logged."""
        self._put(change, None)

    async def stop(self, *, within: float) -> None:
        """Write what is queued, close the connection, end the thread. Raises StoreError when that takes
        longer than `within` seconds; the thread then ends when the disk lets it."""
        self._hand_over()
        self._queue.put(None)
        try:
            await asyncio.wait_for(asyncio.shield(self._stopped), within)
        except TimeoutError:
            raise StoreError(f"queued writes were not finished within {within:g} s") from None

    def _put(self, change: Change, waiter: Waiter | None) -> None:
        """What one round of the event loop asks for wakes the thread once."""
        if not self._asked:
            self._loop.call_soon(self._hand_over)
        self._asked.append((change, waiter))
        self._fairness.asked()

    def _hand_over(self) -> None:
        if self._asked:
            self._queue.put(self._asked)
            self._asked = []

    def _settle(self, settled: Sequence[_Settled], retired: Sequence[str]) -> None:
        self._fairness.answered(len(settled))
        for waiter, result in settled:
            if waiter is None or waiter.done():  # Done before its time: the waiting task was cancelled.
                continue
            if isinstance(result, StoreError):
                waiter.set_exception(result)
            else:
                waiter.set_result(result)
        if retired and self._on_pruned is not None:
            self._on_pruned(retired)

    def _work(self) -> None:
        more = True
        while more:
            pending, more = self._take()
            if pending:
                self._answer(*self._write(pending))
        try:
            self._connection.close()
        except sqlite3.Error as error:
            log.error("the ledger did not close cleanly: %s", error)
        self._call(_resolve, self._stopped)

    def _take_up(self, opened: Opened) -> None:
        self._connection, self._whereabouts = opened.connection, opened.whereabouts
        self._next_seq = opened.tally.next_seq
        # An upper bound: a second record of a run is counted again until the next prune of its job.
        self._kept = dict(opened.tally.kept)

    def _find_ledger(self) -> None:
        """What is written must be at the path afterwards. Raises StoreError."""
        try:
            self._whereabouts.check()
        except LedgerMissing as missing:
            fresh = self._renew()
            log.error("%s; a new one was begun there, without the history of the old one", missing)
            self._connection.close()
            self._take_up(fresh)

    def _look(self) -> None:
        """Nothing is to be written: is the ledger still there? Can it be written again, if it could not?"""
        try:
            self._find_ledger()
            if self._problem is not None and not self._misplaced:
                (version,) = self._connection.execute("PRAGMA user_version").fetchone()
                self._connection.execute(f"PRAGMA user_version = {version}")  # a page is written, whatever it says
        except Exception as failure:
            self._trouble(failure)
        else:
            self._settled()

    def _trouble(self, failure: Exception) -> None:
        if self._problem is None:
            log.error("the ledger takes no records: %s", failure)
        self._problem = str(failure)
        self._misplaced = isinstance(failure, StoreError)

    def _settled(self) -> None:
        if self._problem is not None:
            log.warning("the ledger takes records again")
            self._problem, self._misplaced = None, False

    def _take(self) -> tuple[list[_Pending], bool]:
        """All that is queued (waiting for something to be), and whether there will be more."""
        taken: list[_Pending] = []
        while True:
            if not self._backlog:
                try:
                    asked = self._queue.get_nowait() if taken else self._queue.get(timeout=LOOK_SECONDS)
                except Empty:
                    if not taken:
                        self._look()
                    return taken, True
                if asked is None:
                    return taken, False
                self._backlog.extend(asked)
            while self._backlog:
                taken.append(item := self._backlog.popleft())
                # What comes after a prune must not be seen by it.
                if len(taken) >= MOST_CHANGES_PER_COMMIT or isinstance(item[0], Prune):
                    return taken, True

    def _write(self, pending: Sequence[_Pending]) -> tuple[list[_Settled], list[str]]:
        """Commit the changes together; when one of them is at fault, one by one."""
        began = perf_counter()
        try:
            self._find_ledger()
            asked, retired, worked = self._commit([change for change, _ in pending])
        except Exception as error:
            # Nothing may end this thread while somebody waits for it.
            self._seconds += perf_counter() - began
            if len(pending) > 1 and not _concerns_all(error):
                return self._write_singly(pending)
            self._failed += len(pending)
            if _concerns_all(error):
                self._trouble(error)
            return [(waiter, _failure(error)) for _, waiter in pending], []
        self._settled()
        self._seconds += perf_counter() - began
        self._changes += len(pending)
        return [(waiter, _answer_to(change, asked, worked)) for change, waiter in pending], retired

    def _write_singly(self, pending: Sequence[_Pending]) -> tuple[list[_Settled], list[str]]:
        settled: list[_Settled] = []
        retired: list[str] = []
        for one in pending:
            answers, ids = self._write([one])
            settled += answers
            retired += ids
        return settled, retired

    def _commit(self, changes: Sequence[Change]) -> tuple[list[str], list[str], Iterator[Any]]:
        """One transaction. Returns the ids a prune asked for, those the bound per job retired, and what came of the
        other works, in their order."""
        batch = fold([change for change in changes if not isinstance(change, Within)], next_seq=self._next_seq)
        works = [change.work for change in changes if isinstance(change, Within)]
        self._next_seq += len(changes)
        recorded = batch.recorded()
        overfull = [job for job, added in recorded.items() if self._is_overfull(job, added)]
        # A single statement is a transaction by itself, and two fewer rounds for the GIL.
        alone = not (overfull or batch.prunes or works or (batch.rows and batch.states))
        try:
            if not alone:
                self._connection.execute("BEGIN IMMEDIATE")
            self._write_rows(batch)
            worked = [work(self) for work in works]
            asked = [i for prune in batch.prunes for i in self._forget(prune.job, prune.keep)]
            retired = [i for job in overfull for i in self._forget(job, self._max_runs)]
            if not alone:
                self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise
        self._commits += 1
        self._count(batch, recorded, overfull)
        return asked, retired, iter(worked)

    # ---------------------------------------------------------------- for other works, on the thread

    @property
    def connection(self) -> sqlite3.Connection:
        """In a transaction."""
        return self._connection

    def record_now(self, records: Sequence[RunRecord]) -> None:
        """Put final records into the transaction that is open."""
        batch = fold([Record(record) for record in records], next_seq=self._next_seq)
        self._next_seq += len(records)
        self._write_rows(batch)
        self._count(batch, batch.recorded(), ())

    def recorded(self, run_id: str) -> RunRecord | None:
        """The final record of a run."""
        row = self._connection.execute(statements.GET_RECORDED, (run_id,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0], type=RunRecord)

    def _write_rows(self, batch: Batch) -> None:
        if batch.rows:
            self._connection.execute(statements.WRITE_RUNS, (self._encode(batch.rows),))
        if batch.states:
            self._connection.execute(statements.WRITE_STATES, (self._encode(batch.states),))

    def _forget(self, job: str, keep: int) -> list[str]:
        ids: str = self._connection.execute(statements.FIND_FORGOTTEN, (job, max(keep, 0))).fetchone()[0]
        if ids != "[]":
            self._connection.execute(statements.FORGET, (ids,))
        return msgspec.json.decode(ids, type=list[str])

    def _is_overfull(self, job: str, added: int) -> bool:
        # A margin makes forgetting rare: many rows at once instead of one with each record.
        margin = self._max_runs // 16
        return 0 < self._max_runs < self._kept.get(job, 0) + added - margin

    def _count(self, batch: Batch, recorded: dict[str, int], overfull: Sequence[str]) -> None:
        for job, added in recorded.items():
            self._kept[job] = self._kept.get(job, 0) + added
        for job in overfull:
            self._kept[job] = self._max_runs
        for prune in batch.prunes:
            self._kept[prune.job] = min(self._kept.get(prune.job, 0), max(prune.keep, 0))

    def _answer(self, settled: list[_Settled], retired: list[str]) -> None:
        unheard = [result for waiter, result in settled if waiter is None and isinstance(result, StoreError)]
        if unheard:
            self._lost_notes += len(unheard)
            log.warning("%d notes on live runs were lost: %s", len(unheard), unheard[0])
        self._call(self._settle, settled, retired)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # The loop is closed: nobody is left to hear of it.


def _answer_to(change: Change, asked: list[str], worked: Iterator[Any]) -> Answer:
    if isinstance(change, Within):
        return next(worked)
    return asked if isinstance(change, Prune) else None


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _failure(error: Exception) -> StoreError:
    if isinstance(error, StoreError):
        return error
    failure = StoreError(f"the ledger could not be written: {error}")
    failure.__cause__ = error
    return failure


def _concerns_all(error: Exception) -> bool:
    """Whether the disk or the file is at fault, so that trying each write alone would only fail as often."""
    if isinstance(error, StoreError):
        return True  # it is not where it was
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in _NOT_ONE_WRITES_FAULT

"""`Queue` for one process: tables of SQLite, in the file of its ledger or in memory."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sexton.model.node import NodeIdentity
from sexton.model.run import RunRecord
from sexton.store.coordination import boottime
from sexton.store.queue import (
    MOST_AT_ONCE,
    CancelAnswer,
    Cancelling,
    Claim,
    Depth,
    Entry,
    Finish,
    Reaped,
    Step,
    checked,
    lost_with_worker,
    never_started,
)

RecordRuns = Callable[[Sequence[RunRecord]], None]
"""Put final records into the ledger, in the transaction that is open."""
Recorded = Callable[[str], RunRecord | None]
"""The final record of a run (by id) in the ledger."""

SCHEMA = "sqlite/migrations/0002_queue.sql"
T = TypeVar("T")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_entry = msgspec.json.Decoder(Entry).decode
_cancelling = msgspec.json.Decoder(Cancelling).decode
_encode = msgspec.json.Encoder().encode

ENQUEUE = """
INSERT INTO queue_entry (id, queue, priority, available_at, delayed, once, body)
VALUES (?1, ?2, ?3, ?4, ?4 > ?5, ?6, ?7) ON CONFLICT (id) DO NOTHING
"""
PROMOTE = "UPDATE queue_entry SET delayed = 0 WHERE delayed = 1 AND available_at <= ?"
SEEN = """
INSERT INTO queue_worker (id, boot_id, seen_at) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET boot_id = excluded.boot_id, seen_at = excluded.seen_at
"""
CHOOSE = """
SELECT id, priority, available_at FROM queue_entry
WHERE queue = ? AND claimed_by IS NULL AND delayed = 0 ORDER BY priority DESC, available_at, id LIMIT ?
"""
CLAIM = "UPDATE queue_entry SET claimed_by = ?, fence = fence + 1 WHERE id = ? RETURNING body, fence"
FINISHED = "DELETE FROM queue_entry WHERE id = ? AND claimed_by = ? AND fence = ? RETURNING id"
GIVE_BACK = "UPDATE queue_entry SET claimed_by = NULL WHERE id = ? AND claimed_by = ? AND fence = ?"
HELD = "SELECT body, claimed_by, fence FROM queue_entry WHERE claimed_by = ? ORDER BY id"
ONE = "SELECT body, claimed_by, fence FROM queue_entry WHERE id = ?"
CANCELLED = "DELETE FROM queue_entry WHERE id = ? AND claimed_by IS NULL RETURNING body"
ASK = "UPDATE queue_entry SET cancel = ? WHERE id = ? RETURNING id"
ASKED = "SELECT id, cancel FROM queue_entry WHERE claimed_by = ? AND cancel IS NOT NULL"
SILENT = "SELECT id FROM queue_worker WHERE boot_id <> ? OR seen_at < ?"
TAKEN = "SELECT id, once OR cancel IS NOT NULL, cancel, body FROM queue_entry WHERE claimed_by = ?"
DEPTHS = """
SELECT queue, sum(claimed_by IS NULL AND delayed = 0), sum(delayed), sum(claimed_by IS NOT NULL),
       min(CASE WHEN claimed_by IS NULL AND delayed = 0 THEN available_at END)
FROM queue_entry GROUP BY queue
"""


def _now() -> int:
    return time.time_ns() // 1000


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class QueueTable:
    """What `Queue` promises, but for waiting: one call of each is one transaction of the caller's."""

    def __init__(self, connection: sqlite3.Connection, record: RecordRuns, recorded: Recorded) -> None:
        self._connection = connection
        self._record = record
        self._recorded = recorded

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """For a connection that nobody else uses."""
        self._connection.execute("BEGIN")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def enqueue(self, entries: Sequence[Entry]) -> None:
        now = _now()
        rows = []
        for entry in entries:
            if self._recorded(entry.launch.id) is not None:
                continue
            at = now if entry.available_at is None else (entry.available_at - _EPOCH) // timedelta(microseconds=1)
            rows.append((entry.launch.id, entry.queue, entry.priority, at, now, entry.once, _encode(entry).decode()))
        self._connection.executemany(ENQUEUE, rows)

    def step(self, by: NodeIdentity, queues: Sequence[str], want: int, finished: Sequence[Finish]) -> Step:
        self.seen(by)
        stale = self._finish(finished)
        self._connection.execute(PROMOTE, (_now(),))
        want = max(0, min(want, MOST_AT_ONCE))
        ready = [row for queue in dict.fromkeys(queues) for row in self._connection.execute(CHOOSE, (queue, want))]
        ready.sort(key=lambda row: (-row[1], row[2], row[0]))
        return Step(claimed=tuple(self._claim(by.id, row[0]) for row in ready[:want]), stale=stale)

    def _claim(self, by: str, run_id: str) -> Claim:
        body, fence = self._connection.execute(CLAIM, (by, run_id)).fetchone()
        return Claim(entry=_entry(body), by=by, fence=fence)

    def _finish(self, finished: Sequence[Finish]) -> tuple[str, ...]:
        """Returns the ids of those that had lost their run."""
        records, stale = [], []
        for one in finished:
            run_id = one.record.launch.id
            if self._connection.execute(FINISHED, (run_id, one.by, one.fence)).fetchone() is not None:
                records.append(one.record)
            elif self._recorded(run_id) != one.record:
                stale.append(run_id)
        if records:
            self._record(records)
        return tuple(stale)

    def give_back(self, claims: Sequence[Claim]) -> None:
        self._connection.executemany(GIVE_BACK, [(claim.entry.launch.id, claim.by, claim.fence) for claim in claims])
        for claim in claims:  # what somebody wanted cancelled meanwhile has not begun, and is
            row = self._connection.execute("SELECT cancel FROM queue_entry WHERE id = ? AND claimed_by IS NULL",
                                           (claim.entry.launch.id,)).fetchone()
            if row is not None and row[0] is not None:
                self.cancel(claim.entry.launch.id, _cancelling(row[0]))

    def cancel(self, run_id: str, why: Cancelling) -> CancelAnswer:
        row = self._connection.execute(CANCELLED, (run_id,)).fetchone()
        if row is not None:
            self._record([never_started(_entry(row[0]), why, datetime.now(UTC))])
            return CancelAnswer.NEVER_STARTED
        asked = self._connection.execute(ASK, (_encode(why).decode(), run_id)).fetchone()
        return CancelAnswer.UNKNOWN if asked is None else CancelAnswer.ASKED

    def alive(self, by: NodeIdentity) -> Mapping[str, Cancelling]:
        self.seen(by)
        return {run_id: _cancelling(why) for run_id, why in self._connection.execute(ASKED, (by.id,))}

    def seen(self, by: NodeIdentity) -> None:
        self._connection.execute(SEEN, (by.id, by.boot_id, boottime()))

    def leave(self, by: str) -> None:
        self._connection.execute("DELETE FROM queue_worker WHERE id = ?1 AND NOT EXISTS ("
                                 "SELECT 1 FROM queue_entry WHERE claimed_by = ?1)", (by,))

    def reap(self, silent_for: float) -> Reaped:
        again: list[str] = []
        lost: list[RunRecord] = []
        silent = self._connection.execute(SILENT, (_boot_id(), boottime() - silent_for)).fetchall()
        for (worker,) in silent:
            for run_id, ends, why, body in self._connection.execute(TAKEN, (worker,)).fetchall():
                if not ends:
                    self._connection.execute("UPDATE queue_entry SET claimed_by = NULL WHERE id = ?", (run_id,))
                    again.append(run_id)
                    continue
                self._connection.execute("DELETE FROM queue_entry WHERE id = ?", (run_id,))
                cancelling = None if why is None else _cancelling(why)
                lost.append(lost_with_worker(_entry(body), worker, cancelling, datetime.now(UTC)))
            self._connection.execute("DELETE FROM queue_worker WHERE id = ?", (worker,))
        if lost:
            self._record(lost)
        return Reaped(again=tuple(again), lost=tuple(lost))

    def held(self, by: str) -> list[Claim]:
        return [Claim(entry=_entry(body), by=worker, fence=fence)
                for body, worker, fence in self._connection.execute(HELD, (by,))]

    def entry(self, run_id: str) -> Entry | Claim | None:
        row = self._connection.execute(ONE, (run_id,)).fetchone()
        if row is None:
            return None
        body, worker, fence = row
        return _entry(body) if worker is None else Claim(entry=_entry(body), by=worker, fence=fence)

    def depths(self) -> Mapping[str, Depth]:
        now = _now()
        return {
            queue: Depth(waiting=waiting, delayed=delayed, active=active,
                         oldest=0.0 if oldest is None else max(0.0, (now - oldest) / 1e6))
            for queue, waiting, delayed, active, oldest in self._connection.execute(DEPTHS)
        }


Do = Callable[[Callable[[QueueTable], Any]], Awaitable[Any]]
"""Do something to the tables in a transaction. Raises StoreError."""


class LocalQueue:
    """For the tasks of one process; `transact` says how its tables are reached."""

    def __init__(self, transact: Do) -> None:
        self._transact = transact
        self._arrived = asyncio.Event()

    async def _do(self, work: Callable[[QueueTable], T]) -> T:
        answer: T = await self._transact(work)
        return answer

    async def enqueue(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            checked(entry)
        await self._do(lambda table: table.enqueue(entries))
        self._arrived.set()

    async def step(
        self, by: NodeIdentity, queues: Sequence[str], want: int, finished: Sequence[Finish] = (),
    ) -> Step:
        return await self._do(lambda table: table.step(by, queues, want, finished))

    async def give_back(self, claims: Sequence[Claim]) -> None:
        await self._do(lambda table: table.give_back(claims))
        self._arrived.set()

    async def held(self, by: str) -> Sequence[Claim]:
        return await self._do(lambda table: table.held(by))

    async def cancel(self, run_id: str, why: Cancelling) -> CancelAnswer:
        return await self._do(lambda table: table.cancel(run_id, why))

    async def alive(self, by: NodeIdentity) -> Mapping[str, Cancelling]:
        return await self._do(lambda table: table.alive(by))

    async def leave(self, by: str) -> None:
        await self._do(lambda table: table.leave(by))

    async def reap(self, silent_for: float) -> Reaped:
        reaped = await self._do(lambda table: table.reap(silent_for))
        if reaped.again:
            self._arrived.set()
        return reaped

    async def entry(self, run_id: str) -> Entry | Claim | None:
        return await self._do(lambda table: table.entry(run_id))

    async def depths(self) -> Mapping[str, Depth]:
        return await self._do(lambda table: table.depths())

    async def enqueued(self, queues: Sequence[str], within: float) -> None:
        try:
            async with asyncio.timeout(within):
                await self._arrived.wait()
        except TimeoutError:
            pass
        self._arrived.clear()


def in_memory(record: RecordRuns, recorded: Recorded) -> QueueTable:
    """A queue that ends with the process. What it records is not taken back when the transaction fails."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(resources.files("sexton.store").joinpath(SCHEMA).read_text("utf-8"))
    return QueueTable(connection, record, recorded)

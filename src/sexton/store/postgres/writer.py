"""What is written to the ledger, in the order of the calls: whatever is queued while one commit is under way goes into
the next, as one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import psycopg

from sexton.model.errors import StoreError
from sexton.model.run import RunRecord
from sexton.store.batch import Batch, Change, Effect, Prune, Record, fold
from sexton.store.postgres import statements
from sexton.store.postgres.database import LET_GO, Connection, Database

log = logging.getLogger(__name__)

MOST_CHANGES_PER_COMMIT: Final = 512
REPEATED_SECONDS, MOST_REPEATED = 60.0, 1000
"""Of records that are written once more after a failover: how old they may be, and how many there are at most."""
REPEAT_AGAIN_SECONDS: Final = 5.0
PROBE_SECONDS, PROBE_ANSWER_SECONDS = 5.0, 2.0
"""How often, while nothing can be written and nothing is to be, it is tried whether that is still so; and how long a
write that comes meanwhile, or the end, may wait for that."""

Answer = Sequence[str] | None
_Pending = tuple[Change, "asyncio.Future[Answer] | None"]


class Writer:
    def __init__(
        self, database: Database, *, max_runs_per_job: int, on_pruned: Callable[[Sequence[str]], None] | None,
    ) -> None:
        self._database = database
        self._max_runs = max_runs_per_job
        self._on_pruned = on_pruned
        self._queue: deque[_Pending] = deque()
        self._asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._encode = msgspec.json.Encoder().encode
        self._added: dict[str, int] = {}
        """Records of each job since runs of it were last forgotten here."""
        self._known: set[str] = set()
        self._latest: deque[tuple[float, Record]] = deque(maxlen=MOST_REPEATED)
        """Records that were committed, by the loop's clock."""
        self._stopping = False
        self.problem: str | None = None
        """Why nothing can be written now; None while it can."""
        self._task = self._loop.create_task(self._work(), name="postgres writer")

    def submit(self, change: Change) -> asyncio.Future[Answer]:
        """Queue a change; the future is done when it is committed, or holds a StoreError."""
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        self._put(change, waiter)
        return waiter

    def post(self, change: Change) -> None:
        """Queue a change that nobody waits for. A failure is logged."""
        self._put(change, None)

    def repeat(self) -> None:
        """The database may have lost what it acknowledged last. A record that is written twice is there once; an intent
        without one would be a run that never ends. Never waits."""
        since = self._loop.time() - REPEATED_SECONDS
        again = [record for at, record in self._latest if at >= since]
        self._latest.clear()
        for record in again:
            self._put(record, None)
        if again:
            log.warning("%d record(s) of the last minute are written once more", len(again))

    def _put(self, change: Change, waiter: asyncio.Future[Answer] | None) -> None:
        self._queue.append((change, waiter))
        self._asked.set()

    async def stop(self, *, within: float) -> None:
        """Write what is queued. Raises StoreError when that takes longer than `within` seconds."""
        self._stopping = True
        self._asked.set()
        try:
            await asyncio.wait_for(self._task, within)
        except TimeoutError:
            raise StoreError(f"queued writes were not finished within {within:g} s") from None

    async def _work(self) -> None:
        while self._queue or not self._stopping:
            if not self._queue:
                await self._until_asked()
                continue
            await self._write(self._take())

    async def _until_asked(self) -> None:
        self._asked.clear()
        while True:
            try:
                async with asyncio.timeout(None if self.problem is None else PROBE_SECONDS):
                    await self._asked.wait()
                return
            except TimeoutError:
                await self._probe()

    async def _probe(self) -> None:
        """A write that changes nothing, and is waited for as any other, also by a standby: the failed one may have been
        the last for hours."""
        async def write(connection: Connection) -> None:
            async with connection.transaction():
                await connection.execute(self._database.statement(statements.PROBE))
                await connection.execute("SELECT pg_logical_emit_message(true, 'sexton', '')")

        try:
            await self._database.run(write, PROBE_ANSWER_SECONDS)
        except Exception as failure:  # nothing may end this task, as in `_write`
            self.problem = str(failure)
        else:
            self._works()

    def _works(self) -> None:
        if self.problem is not None:
            log.warning("the database takes records again")
            self.problem = None

    def _take(self) -> list[_Pending]:
        taken: list[_Pending] = []
        while self._queue and len(taken) < MOST_CHANGES_PER_COMMIT:
            taken.append(item := self._queue.popleft())
            if isinstance(item[0], Prune):
                break  # what comes after it must not be seen by it
        return taken

    async def _write(self, pending: list[_Pending]) -> None:
        """Together; where one of them is at fault, one by one."""
        try:
            asked, retired = await self._commit([change for change, _ in pending])
        except StoreError as failure:
            if len(pending) > 1 and isinstance(failure.__cause__, psycopg.DataError | psycopg.IntegrityError):
                for one in pending:
                    await self._write([one])
                return
            self._fail(pending, failure)
            return
        except Exception as bug:  # nothing may end this task while somebody waits for it
            self._fail(pending, StoreError(f"the ledger could not be written: {bug}"))
            return
        self._works()
        now = self._loop.time()
        for change, waiter in pending:
            if isinstance(change, Record):
                self._latest.append((now, change))
            if waiter is not None and not waiter.done():
                waiter.set_result(asked if isinstance(change, Prune) else None)
        if retired and self._on_pruned is not None:
            self._on_pruned(retired)

    def _fail(self, pending: list[_Pending], failure: StoreError) -> None:
        if self.problem is None:
            log.error("the database takes no records: %s", failure)
        self.problem = str(failure)
        unheard = 0
        for change, waiter in pending:
            if waiter is None and isinstance(change, Record):  # one that is repeated
                self._loop.call_later(REPEAT_AGAIN_SECONDS, self._put, change, None)
            elif waiter is None:
                unheard += 1
            elif not waiter.done():
                waiter.set_exception(failure)
        if unheard:
            log.warning("%d notes on live runs were lost: %s", unheard, failure)

    async def _commit(self, changes: Sequence[Change]) -> tuple[list[str], list[str]]:
        """One transaction. Returns the ids a prune asked for, and those that the bound per job retired."""
        batch = fold(changes, next_seq=0)  # the database numbers records itself
        recorded = batch.recorded()
        overfull = [job for job, added in recorded.items() if self._is_overfull(job, added)]

        async def write(connection: Connection) -> tuple[list[str], list[str]]:
            async with connection.transaction(), connection.cursor() as cursor:
                await cursor.execute(LET_GO)
                for text, rows in self._orders(batch):
                    columns = [list(column) for column in zip(*rows, strict=True)]
                    await cursor.execute(self._database.statement(text), columns)
                asked = [i for prune in batch.prunes for i in await self._forget(cursor, prune.job, prune.keep)]
                return asked, [i for job in overfull for i in await self._forget(cursor, job, self._max_runs)]

        answer = await self._database.run(write)
        self._known.update(recorded)
        for job, added in recorded.items():
            self._added[job] = 0 if job in overfull else self._added.get(job, 0) + added
        return answer

    def _orders(self, batch: Batch) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """Statements with their rows, notes first: they must not meet the intents of this batch."""
        encoded = [(row, self._encode(row.body).decode()) for row in batch.rows]
        notes = [(body, row.body.launch.daemon, row.id) for row, body in encoded if row.effect == Effect.NOTE]
        intents = [(row.id, row.job, row.body.launch.daemon, body) for row, body in encoded
                   if row.effect == Effect.INTENT]
        records = [(row.id, row.job, row.body.launch.daemon, row.outcome, row.ended_at, body) for row, body in encoded
                   if row.effect == Effect.RECORD]
        jobs = [(job,) for job in sorted({row.job for row in batch.rows if row.effect == Effect.RECORD} - self._known)]
        states = [(state.job, state.key, state.value) for state in batch.states]
        orders = ((statements.NOTE, notes), (statements.INTEND, intents), (statements.KNOW_JOB, jobs),
                  (statements.RECORD, records), (statements.PUT_STATE, states))
        return [(text, rows) for text, rows in orders if rows]

    async def _forget(self, cursor: psycopg.AsyncCursor[Any], job: str, keep: int) -> list[str]:
        await cursor.execute(self._database.statement(statements.FORGET), (job, max(keep, 0)))
        gone = await cursor.fetchall()
        return [row[0] for row in sorted(gone, key=lambda row: row[1:], reverse=True)]

    def _is_overfull(self, job: str, added: int) -> bool:
        # Many rows at once instead of one with each record. Who else records runs of the job forgets some, too.
        return self._max_runs > 0 and self._added.get(job, 0) + added > self._max_runs // 16


def record_orders(records: Sequence[RunRecord]) -> list[tuple[str, list[list[Any]]]]:
    """Statements with their columns that put final records into the ledger."""
    if not records:
        return []
    rows = fold([Record(record) for record in records], next_seq=0).rows
    jobs = sorted({row.job for row in rows})
    columns = zip(*((row.id, row.job, row.body.launch.daemon, row.outcome, row.ended_at,
                     msgspec.json.encode(row.body).decode()) for row in rows), strict=True)
    return [(statements.KNOW_JOB, [jobs]), (statements.RECORD, [list(column) for column in columns])]

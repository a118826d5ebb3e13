"""`PostgresStore`: ledger, job state and coordination of any number of nodes in one schema of a database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from sexton.model.errors import StoreError
from sexton.model.node import NodeFacts, NodeIdentity
from sexton.model.run import Launch, Outcome, RunRecord
from sexton.store.batch import Intend, Note, Prune, PutState, Record
from sexton.store.coordination import Claimed, Denied, Fire, Granted, Lease, Occurrence, Presence, Signal
from sexton.store.port import Capabilities, JobHistory
from sexton.store.postgres import statements
from sexton.store.postgres.coordination import Coordinator
from sexton.store.postgres.database import Database, schema_of
from sexton.store.postgres.schema import migrate
from sexton.store.postgres.writer import Writer

if TYPE_CHECKING:
    from sexton.store.postgres.queue import PostgresQueue

log = logging.getLogger(__name__)

LEDGER_CONNECTIONS, LEASE_CONNECTIONS = 4, 2
"""At most. Leases have their own: a renewal must not wait for bulk writes."""
UNSEEN_NUMBERS = 200
"""Records that are looked at again for news: their transactions may have been overtaken by later ones."""

_record = msgspec.json.Decoder(RunRecord).decode


class PostgresStore:
    """Implements `Ledger`, `JobState` and `Coordination`. Any number of daemons have it open at once.

    `url` is a libpq connection string; each `deployment_id` has a schema of its own. Of each job about the newest
    `max_runs_per_job` recorded runs are kept (0 or less: all); `on_pruned` hears the ids that this opening has removed.
    `close_timeout` (seconds) bounds `close`. Works behind a pooler in transaction mode.

    After a failover to a standby that had not heard of all commits, leases can be missing. Who holds one gets it back
    with its next renewal; with `wary` nobody else is granted any before all have lapsed that may be missing
    (StoreError).
    """

    capabilities = Capabilities(durable=True, shared=True, queue=True)

    def __init__(
        self,
        url: str,
        deployment_id: str = "default",
        *,
        max_runs_per_job: int = 1000,
        on_pruned: Callable[[Sequence[str]], None] | None = None,
        close_timeout: float = 10.0,
        wary: bool = False,
    ) -> None:
        self._wary = wary
        self._url = url
        self._schema = schema_of(deployment_id)
        self._max_runs_per_job = max_runs_per_job
        self._on_pruned = on_pruned
        self._close_timeout = close_timeout
        self._database: Database | None = None
        self._leases: Coordinator | None = None
        self._writer: Writer | None = None
        self._queue: PostgresQueue | None = None
        self._told = 0
        """Number of the latest record that news were told of."""

    @property
    def problem(self) -> str | None:
        return None if self._writer is None else self._writer.problem

    async def open(self) -> None:
        if self._database is not None:
            raise StoreError("the store is open already")
        ledger = Database(self._url, self._schema, most=LEDGER_CONNECTIONS, name="sexton ledger")
        leases = Database(self._url, self._schema, most=LEASE_CONNECTIONS, name="sexton leases")
        await ledger.open()
        try:
            await migrate(ledger)
            await leases.open()
            coordinator = Coordinator(leases, wary=self._wary)
            await coordinator.look_at_timeline()
            self._told = int((await ledger.rows(statements.LAST_SEQ))[0][0])
        except BaseException:
            await ledger.close()
            await leases.close()
            raise
        self._database, self._lease_database = ledger, leases
        self._writer = Writer(ledger, max_runs_per_job=self._max_runs_per_job, on_pruned=self._on_pruned)
        self._leases = coordinator
        coordinator.on_failover = self._writer.repeat
        coordinator.begin()

    async def close(self) -> None:
        """Raises StoreError when what is queued could not be written within `close_timeout`."""
        database, leases, writer = self._database, self._leases, self._writer
        self._database = self._leases = self._writer = None
        if database is None or leases is None or writer is None:
            return
        queue, self._queue = self._queue, None
        try:
            await writer.stop(within=self._close_timeout)
        finally:
            if queue is not None:
                await queue.end()
            await leases.end()
            await self._lease_database.close()
            await database.close()

    # ---------------------------------------------------------------- ledger

    async def intend(self, launch: Launch) -> None:
        await self._writing().submit(Intend(launch))

    def note(self, record: RunRecord) -> None:
        self._writing().post(Note(record))

    async def keep(self, record: RunRecord) -> None:
        await self._writing().submit(Note(record))

    async def record(self, record: RunRecord) -> None:
        await self._writing().submit(Record(record))

    async def unfinished(self) -> Sequence[RunRecord]:
        return _records(await self._ask(statements.UNFINISHED))

    async def unfinished_of(self, node: str) -> Sequence[RunRecord]:
        return _records(await self._ask(statements.UNFINISHED_OF, (node,)))

    async def get(self, run_id: str) -> RunRecord | None:
        if "\0" in run_id:
            return None
        rows = await self._ask(statements.GET, (run_id,))
        try:
            return _record(rows[0][0]) if rows else None
        except msgspec.MsgspecError as error:
            raise StoreError(f"the record of run {run_id} cannot be read: {error}") from error

    async def known(self, run_ids: Sequence[str]) -> frozenset[str]:
        return frozenset(row[0] for row in await self._ask(statements.KNOWN, (list(run_ids),)))

    async def history(self, job: str, limit: int) -> JobHistory:
        if "\0" in job:
            return JobHistory()
        newest = _records(await self._ask(statements.NEWEST, (job, max(limit, 0))))
        return JobHistory(runs=tuple(reversed(newest)), totals=(await self._totals([job])).get(job, {}))

    async def recent(self, per_job: int) -> Mapping[str, JobHistory]:
        return await self._recent_of([row[0] for row in await self._ask(statements.JOBS)], per_job)

    async def news(self, per_job: int) -> Mapping[str, JobHistory]:
        rows = await self._ask(statements.NEWS, (max(0, self._told - UNSEEN_NUMBERS),))
        if not rows or rows[0][1] == self._told:
            return {}
        self._told = rows[0][1]
        return await self._recent_of([row[0] for row in rows], per_job)

    async def _recent_of(self, jobs: list[str], per_job: int) -> dict[str, JobHistory]:
        rows = await self._ask(statements.NEWEST_OF_EACH, (jobs, max(per_job, 0)))
        totals = await self._totals(jobs)
        return await asyncio.to_thread(_histories, rows, totals)

    async def _totals(self, jobs: list[str]) -> dict[str, dict[Outcome, int]]:
        totals: dict[str, dict[Outcome, int]] = {}
        for job, outcome, count in await self._ask(statements.TOTALS, (jobs,)):
            totals.setdefault(job, {})[Outcome(outcome)] = count
        return totals

    async def runs(
        self, *, job: str | None = None, outcome: Outcome | None = None, node: str | None = None, limit: int,
        before: str | None = None, after: str | None = None,
    ) -> Sequence[RunRecord]:
        if "\0" in (job or "") + (before or "") + (after or "") + (node or ""):
            return []
        text = statements.runs(job=job is not None, outcome=outcome, node=node is not None, before=before is not None,
                               after=after is not None)
        values = {"job": job, "outcome": None if outcome is None else outcome.value, "node": node, "before": before,
                  "after": after, "limit": max(limit, 0)}
        return _records(await self._ask(text, values))

    async def prune(self, job: str, keep: int) -> Sequence[str]:
        return await self._writing().submit(Prune(job, keep)) or []

    # ---------------------------------------------------------------- job state

    async def get_state(self, job: str, key: str) -> str | None:
        rows = await self._ask(statements.GET_STATE, (key, job))
        return str(rows[0][0]) if rows else None

    async def states(self, key: str) -> Mapping[str, str]:
        return dict(await self._ask(statements.STATES, (key,)))

    async def put_state(self, job: str, key: str, value: str) -> None:
        if "\0" in job + key + value:
            raise StoreError("job state cannot hold a NUL character")
        await self._writing().submit(PutState(job, key, value))

    # ---------------------------------------------------------------- queue

    @property
    def queue(self) -> PostgresQueue:
        if self._queue is None:
            if self._database is None:
                raise StoreError("the store is not open")
            from sexton.store.postgres.queue import PostgresQueue  # most daemons have none

            self._queue = PostgresQueue(self._database)
        return self._queue

    # ---------------------------------------------------------------- coordination

    async def claim(
        self, name: str, by: NodeIdentity, ttl: float, *, heir_of: str | None = None,
    ) -> Granted | Denied:
        return await self._coordinating().claim(name, by.id, by.name, ttl, heir_of)

    async def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        return await self._coordinating().renew(lease, ttl)

    async def release(self, lease: Lease) -> bool:
        return await self._coordinating().release(lease)

    async def raise_fence(self, name: str, fence: int) -> None:
        """Of `Restorable`."""
        await self._coordinating().raise_fence(name, fence)

    async def read(self, name: str) -> Denied | None:
        return await self._coordinating().read(name)

    async def send(self, signal: Signal) -> None:
        await self._coordinating().send(signal)

    async def take(self, me: str) -> Sequence[Signal]:
        return await self._coordinating().take(me)

    async def signalled(self, me: str, within: float) -> None:
        await self._coordinating().signalled(me, within)

    async def announce(self, facts: NodeFacts) -> None:
        await self._coordinating().announce(facts)

    async def leave(self, node: str) -> None:
        await self._coordinating().leave(node)

    async def nodes(self) -> Sequence[Presence]:
        return await self._coordinating().nodes()

    async def claim_fire(self, job: str, scheduled_for: datetime, by: NodeIdentity) -> bool:
        return await self._coordinating().claim_fire(job, scheduled_for, by)

    async def claim_fires(self, wanted: Sequence[Occurrence], by: NodeIdentity, most: int) -> Claimed:
        return await self._coordinating().claim_fires(wanted, by, most)

    async def fired(self, job: str, since: datetime) -> Sequence[Fire]:
        return await self._coordinating().fired(job, since)

    async def forget_fires(self, before: datetime) -> None:
        await self._coordinating().forget_fires(before)

    async def _ask(self, text: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        if self._database is None:
            raise StoreError("the store is not open")
        return await self._database.rows(text, values)

    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreError("the store is not open")
        return self._writer

    def _coordinating(self) -> Coordinator:
        if self._leases is None:
            raise StoreError("the store is not open")
        return self._leases


def _records(rows: Sequence[tuple[Any, ...]]) -> list[RunRecord]:
    """Those that can be read: one that cannot must not hide the others."""
    records: list[RunRecord] = []
    for (body,) in rows:
        try:
            records.append(_record(body))
        except msgspec.MsgspecError as error:
            log.error("a record in the database cannot be read and was left out (%s): %.200s", error, body)
    return records


def _histories(rows: Sequence[tuple[Any, ...]], totals: Mapping[str, Mapping[Outcome, int]]) -> dict[str, JobHistory]:
    bodies: dict[str, list[tuple[Any, ...]]] = {}
    for job, body in rows:
        bodies.setdefault(job, []).append((body,))
    return {job: JobHistory(runs=tuple(_records(found)), totals=totals.get(job, {})) for job, found in bodies.items()}

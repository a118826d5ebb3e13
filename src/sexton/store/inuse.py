"""The store that the configuration in force names. A reload may put another one in its place while runs live."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from sexton.model.errors import StoreError
from sexton.model.node import NodeFacts, NodeIdentity
from sexton.model.run import Launch, Outcome, RunRecord
from sexton.store.coordination import Claimed, Denied, Fire, Granted, Lease, Occurrence, Presence, Signal, Store
from sexton.store.port import Capabilities, Counted, JobHistory, Operations

if TYPE_CHECKING:
    from sexton.store.queue import Queue

logger = logging.getLogger("sexton.store")

T = TypeVar("T")

OWED_SECONDS = 10.0
"""How long a store that was left may take to write a record."""


class Tally:
    """What was asked of one kind, for stores that do not count themselves."""

    __slots__ = ("_done", "_failed", "_seconds")

    def __init__(self) -> None:
        self._done = self._failed = 0
        self._seconds = 0.0

    async def count(self, operation: Coroutine[Any, Any, T]) -> T:
        began = perf_counter()
        try:
            result = await operation
        except BaseException:
            self._failed += 1
            raise
        finally:
            self._seconds += perf_counter() - began
        self._done += 1
        return result

    def told(self) -> Operations:
        return Operations(done=self._done, failed=self._failed, rounds=self._done + self._failed,
                          seconds=self._seconds)


class StoreInUse:
    """Implements `Store` by passing everything on. A run that lives through a move belongs to both stores: the one that
    was left has its intent, and would call it interrupted; so that one gets its record, too."""

    def __init__(self, store: Store) -> None:
        self._now = store
        self._left: dict[str, set[Store]] = {}
        """By id of a run: the stores that were left while it lived."""
        self._owed: dict[Store, set[asyncio.Task[None]]] = {}
        """What each store that was left is being told."""
        self._put: dict[tuple[str, str], str] | None = None
        """While a move is prepared: what `take_put` has not told yet."""
        self.untold = 0
        """Ends of runs that a store that was left could not be told."""
        self.intending: set[str] = set()
        """Ids of the runs whose intents are being written."""
        self._reads, self._writes, self._talks = Tally(), Tally(), Tally()
        self._counts_itself = isinstance(store, Counted)

    # ---------------------------------------------------------------- moving

    def move(self, to: Store, living: Collection[str]) -> Store:
        """Everything goes to the other store from now on, which has to know the runs with these ids already; it may be
        one that was left and not closed yet. Returns the one that is left; it stays open."""
        left, self._now, self._put = self._now, to, None
        self._counts_itself = isinstance(to, Counted)
        self._no_longer_left(to)
        for run in living:
            self._left.setdefault(run, set()).add(left)
        self._owed.setdefault(left, set())
        return left

    async def leave_for_good(self, left: Store) -> None:
        """Close a store that is owed nothing more, once. What it is being told is waited for."""
        while owed := self._owed.get(left):
            await asyncio.wait(owed)
        if left in self._owed:
            self._no_longer_left(left)
            await left.close()

    def take_put(self) -> Mapping[tuple[str, str], str]:
        """Facts about jobs that were written since the last call, up to the move: (job, key) -> value."""
        put, self._put = self._put, {}
        return put or {}

    def _no_longer_left(self, store: Store) -> None:
        self._owed.pop(store, None)
        self._left = {run: rest for run, stores in self._left.items() if (rest := stores - {store})}

    def _pay(self, record: RunRecord) -> None:
        """Nobody waits for a store that is left, which may be gone for good."""
        for left in self._left.get(record.launch.id, ()):
            owed = self._owed[left]
            task = asyncio.get_running_loop().create_task(self._record_there(left, record))
            owed.add(task)
            task.add_done_callback(owed.discard)

    async def _record_there(self, left: Store, record: RunRecord) -> None:
        try:
            async with asyncio.timeout(OWED_SECONDS):
                await left.record(record)
        except (StoreError, TimeoutError) as failure:
            self.untold += 1
            logger.warning("Job %s: the store that was left cannot be told of the end of run %s (%s): whoever opens it "
                           "next will call it interrupted", record.launch.job, record.launch.id,
                           str(failure) or f"no answer within {OWED_SECONDS:g} seconds")

    # ---------------------------------------------------------------- Ledger

    @property
    def capabilities(self) -> Capabilities:
        return self._now.capabilities

    @property
    def problem(self) -> str | None:
        return self._now.problem

    @property
    def operations(self) -> Mapping[str, Operations]:
        """By kind: also `coordinate` (leases, signals, heartbeats, occurrences) for a store that nodes share."""
        if isinstance(self._now, Counted):
            return self._now.operations
        return {"read": self._reads.told(), "write": self._writes.told(), "coordinate": self._talks.told()}

    @property
    def lost_notes(self) -> int:
        return self._now.lost_notes if isinstance(self._now, Counted) else 0

    def _counted(self, tally: Tally, operation: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return operation if self._counts_itself else tally.count(operation)

    async def open(self) -> None:
        await self._now.open()

    async def close(self) -> None:
        """Also of those that were left and are still owed something."""
        for left in list(self._owed):
            try:
                await self.leave_for_good(left)
            except StoreError as failure:
                logger.warning("the store that was left did not close cleanly: %s", failure)
        await self._now.close()

    async def intend(self, launch: Launch) -> None:
        self.intending.add(launch.id)
        try:
            await self._counted(self._writes, self._now.intend(launch))
        finally:
            self.intending.discard(launch.id)

    def note(self, record: RunRecord) -> None:
        self._now.note(record)

    async def keep(self, record: RunRecord) -> None:
        store = self._now
        await self._counted(self._writes, store.keep(record))
        if store is not self._now:  # we have moved while it wrote
            await self._now.keep(record)

    async def record(self, record: RunRecord) -> None:
        store = self._now
        await self._counted(self._writes, store.record(record))
        if store is not self._now:
            await self._now.record(record)
        self._pay(record)

    async def unfinished(self) -> Sequence[RunRecord]:
        return await self._counted(self._reads, self._now.unfinished())

    async def get(self, run_id: str) -> RunRecord | None:
        return await self._counted(self._reads, self._now.get(run_id))

    async def known(self, run_ids: Sequence[str]) -> frozenset[str]:
        return await self._counted(self._reads, self._now.known(run_ids))

    async def history(self, job: str, limit: int) -> JobHistory:
        return await self._counted(self._reads, self._now.history(job, limit))

    async def recent(self, per_job: int) -> Mapping[str, JobHistory]:
        return await self._counted(self._reads, self._now.recent(per_job))

    async def runs(
        self, *, job: str | None = None, outcome: Outcome | None = None, node: str | None = None, limit: int,
        before: str | None = None, after: str | None = None,
    ) -> Sequence[RunRecord]:
        return await self._counted(self._reads,
            self._now.runs(job=job, outcome=outcome, node=node, limit=limit, before=before, after=after))

    async def prune(self, job: str, keep: int) -> Sequence[str]:
        return await self._counted(self._writes, self._now.prune(job, keep))

    @property
    def queue(self) -> Queue | None:
        """What waits in the queue of a store that is left waits there: nobody knows all that comes to it."""
        return self._now.queue

    # ---------------------------------------------------------------- JobState

    async def get_state(self, job: str, key: str) -> str | None:
        return await self._counted(self._reads, self._now.get_state(job, key))

    async def states(self, key: str) -> Mapping[str, str]:
        return await self._counted(self._reads, self._now.states(key))

    async def put_state(self, job: str, key: str, value: str) -> None:
        store = self._now
        await self._counted(self._writes, store.put_state(job, key, value))
        if store is not self._now:
            await self._now.put_state(job, key, value)
        elif self._put is not None:
            self._put[job, key] = value

    # ---------------------------------------------------------------- Coordination

    async def claim(self, name: str, by: NodeIdentity, ttl: float, *, heir_of: str | None = None) -> Granted | Denied:
        return await self._counted(self._talks, self._now.claim(name, by, ttl, heir_of=heir_of))

    async def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        return await self._counted(self._talks, self._now.renew(lease, ttl))

    async def release(self, lease: Lease) -> bool:
        return await self._counted(self._talks, self._now.release(lease))

    async def read(self, name: str) -> Denied | None:
        return await self._counted(self._talks, self._now.read(name))

    async def send(self, signal: Signal) -> None:
        await self._counted(self._talks, self._now.send(signal))

    async def take(self, me: str) -> Sequence[Signal]:
        return await self._counted(self._talks, self._now.take(me))

    async def signalled(self, me: str, within: float) -> None:
        await self._now.signalled(me, within)

    async def announce(self, facts: NodeFacts) -> None:
        await self._counted(self._talks, self._now.announce(facts))

    async def leave(self, node: str) -> None:
        await self._counted(self._talks, self._now.leave(node))

    async def nodes(self) -> Sequence[Presence]:
        return await self._counted(self._talks, self._now.nodes())

    async def claim_fire(self, job: str, scheduled_for: datetime, by: NodeIdentity) -> bool:
        return await self._counted(self._talks, self._now.claim_fire(job, scheduled_for, by))

    async def claim_fires(self, wanted: Sequence[Occurrence], by: NodeIdentity, most: int) -> Claimed:
        return await self._counted(self._talks, self._now.claim_fires(wanted, by, most))

    async def fired(self, job: str, since: datetime) -> Sequence[Fire]:
        return await self._counted(self._talks, self._now.fired(job, since))

    async def forget_fires(self, before: datetime) -> None:
        await self._counted(self._talks, self._now.forget_fires(before))

    async def unfinished_of(self, node: str) -> Sequence[RunRecord]:
        return await self._counted(self._reads, self._now.unfinished_of(node))

    async def news(self, per_job: int) -> Mapping[str, JobHistory]:
        return await self._counted(self._reads, self._now.news(per_job))

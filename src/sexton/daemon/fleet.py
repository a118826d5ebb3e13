"""This node among the others: it says that it lives, hears who else does, and settles what silent ones have left."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from sexton import __version__
from sexton.daemon.jobs import REMEMBERED_RUNS, Jobs
from sexton.daemon.node import NodeHome, is_provably_dead
from sexton.model.clock import Clock
from sexton.model.errors import StoreError
from sexton.model.node import NodeFacts, NodeIdentity
from sexton.model.run import RunRecord
from sexton.run.identity import job_set_id_of
from sexton.run.registry import Registry
from sexton.run.silent import settle_silent
from sexton.run.slots import Slots
from sexton.store.coordination import Granted, Presence, Signal, SignalKind, Store, boottime, bounded

if TYPE_CHECKING:
    from sexton.daemon.onefire import OneFire

logger = logging.getLogger("sexton.nodes")

SKEW_SECONDS = 5.0
"""A clock that is further off than this is told of."""
KEEP_FIRES = timedelta(days=7)
"""How long it is remembered which occurrences the fleet has fired."""


async def _nothing() -> None:
    pass


class Fleet:
    def __init__(
        self, home: NodeHome, store: Store, jobs: Jobs, registry: Registry, slots: Slots, clock: Clock,
    ) -> None:
        self.me = home.identity
        self._store = store
        self._jobs = jobs
        self._registry = registry
        self._slots = slots
        self._clock = clock
        self._began = clock.now()
        self._seen: Sequence[Presence] = ()
        self._told: set[str] = set()
        self._job_set: tuple[int, str] = (-1, "")
        self._forgot = clock.now() - KEEP_FIRES
        self._looked = math.inf
        """When the store last answered, by `boottime`."""
        self._sees_since = -math.inf
        """Since when it has answered again and again; a store that is open when we start was not away."""
        self.problem: str | None = None
        """Why the other nodes are not seen now."""
        self.one_fire: OneFire | None = None
        self.refresh: Callable[[], Awaitable[None]] = _nothing
        """What else is to be read anew at each look: what other nodes were told."""
        self.on_settled: Callable[[RunRecord], None] = lambda record: None
        """Told of each run of a silent node that we have recorded."""

    @property
    def shared(self) -> bool:
        return self._store.capabilities.shared

    def facts(self) -> NodeFacts:
        return NodeFacts(
            identity=self.me, version=__version__, started_at=self._began, clock=self._clock.now(),
            job_set_id=self._job_set[1], jobs=len(self._jobs), slots=self._slots.names(),
            runs=tuple(run.id for run in self._registry if not run.waits_for_slots),
        )

    async def job_set_id(self) -> str:
        """Of the jobs that are loaded now. With thousands of them it takes so long that a thread does it."""
        version = self._jobs.version
        if self._job_set[0] != version:
            digest = await asyncio.to_thread(job_set_id_of, self._jobs.specs())
            self._job_set = version, digest
        return self._job_set[1]

    def seen(self) -> Sequence[Presence]:
        """The nodes at the last look, this one among them."""
        return self._seen

    def node(self, identity: str) -> Presence | None:
        return next((one for one in self._seen if one.facts.identity.id == identity), None)

    def living(self) -> list[str]:
        """Who is there (by `NodeIdentity.id`), as far as the last look tells."""
        return [one.facts.identity.id for one in self._seen if not self.is_silent(one)]

    def is_silent(self, presence: Presence) -> bool:
        """It has missed all its heartbeats of a time to live."""
        return presence.silent_for > self._slots.ttl() or is_provably_dead(presence.facts.identity, self.me)

    def _fell_silent(self, presence: Presence) -> bool:
        """Silent, and not only unheard: while the store was away nobody could be heard, and the first to come back
        would take all the others for dead."""
        watched = boottime() - self._sees_since > self._slots.ttl()
        return self.is_silent(presence) and (watched or is_provably_dead(presence.facts.identity, self.me))

    async def ask(
        self, kind: SignalKind, run: RunRecord, *, reason: str | None, requested_by: str | None, force: bool = False,
    ) -> Presence | None:
        """Ask the node that a run lives on for something. Returns the node; None when it is not there any more. Raises
        StoreError."""
        there = self.node(run.launch.daemon)
        if there is None or self.is_silent(there):  # it may have come, or come back, since we looked
            self._seen = await bounded(self._store.nodes())
            there = self.node(run.launch.daemon)
        if there is None or there.facts.identity.id == self.me.id or self.is_silent(there):
            return None
        await bounded(self._store.send(Signal(
            to=run.launch.daemon, kind=kind, run=run.launch.id, sender=self.me.name, reason=reason,
            requested_by=requested_by, force=force,
        )))
        return there

    # ---------------------------------------------------------------- living together

    async def announce(self) -> None:
        """A heartbeat, and a look at the others. Raises StoreError."""
        await self.job_set_id()
        await bounded(self._store.announce(self.facts()))
        self._seen = await bounded(self._store.nodes())
        now = boottime()
        if now - self._looked > self._slots.ttl() / 2:  # we look more often than that
            self._sees_since = now
        self._looked = now

    async def look(self) -> None:
        """See the nodes as they are now; where the store does not answer, as they were."""
        try:
            await self.announce()
            self.problem = None
        except StoreError as failure:
            self._tell_problem(failure)

    async def run(self) -> None:
        """For ever, every third of the slots' time to live."""
        while True:
            await asyncio.sleep(self._slots.ttl() / 3)
            try:
                await self.announce()
                await self._tend()
                self.problem = None
            except StoreError as failure:
                self._tell_problem(failure)

    def _tell_problem(self, failure: StoreError) -> None:
        if self.problem is None:
            logger.warning("the other nodes cannot be seen now: %s", failure)
        self.problem = str(failure)

    async def _tend(self) -> None:
        for presence in self._seen:
            identity = presence.facts.identity
            if identity.id == self.me.id:
                self._tell_skew(presence)
            elif self._fell_silent(presence):
                await self._settle(presence)
            elif identity.name == self.me.name and not self.is_silent(presence):
                self._tell_once(f"name {identity.id}", f"another node calls itself {identity.name}, too: give each its "
                                "own `nodeName` in `state`")
        await self.refresh()
        self._jobs.merge(await bounded(self._store.news(REMEMBERED_RUNS)))
        if self._clock.now() - self._forgot > KEEP_FIRES / 7:
            self._forgot = self._clock.now()
            await bounded(self._store.forget_fires(self._clock.now() - KEEP_FIRES))

    async def succeed(self) -> None:
        """Our predecessors' runs are ours, or recorded; what they had claimed and not started is fired now. Nobody else
        need settle them."""
        try:
            for presence in self._seen:
                identity = presence.facts.identity
                if identity.name == self.me.name and identity.id != self.me.id and self.is_silent(presence):
                    await self._make_up_for(presence)
                    await bounded(self._store.leave(identity.id))
        except StoreError as failure:
            logger.warning("what an earlier daemon of this node has left is for other nodes to settle: %s", failure)

    async def _make_up_for(self, presence: Presence) -> None:
        if self.one_fire is not None:
            last_seen = self._clock.now() - timedelta(seconds=presence.silent_for)
            await self.one_fire.make_up_for(presence.facts.identity.id, last_seen)

    async def _settle(self, presence: Presence) -> None:
        """One node does it: whoever gets the lease."""
        node, just_died = presence.facts.identity, presence.silent_for <= self._slots.ttl()
        lease = await bounded(self._store.claim(f"settle/{node.id}", self.me, self._slots.ttl()))
        if not isinstance(lease, Granted):
            return
        self._tell_once(f"silent {node.id}", f"node {node.name} has fallen silent")
        for record in await settle_silent(self._store, node.id, self._clock.now(), spare_kept=just_died):
            self.on_settled(record)
        await self._make_up_for(presence)
        if not just_died:  # otherwise there may be kept runs left to settle
            await bounded(self._store.leave(node.id))
        await bounded(self._store.release(lease.lease))

    async def settle_job(self, node: str, job: str) -> None:
        """We have won the slot of a job from a node that fell silent: its run of the job is recorded now."""
        try:
            for record in await settle_silent(self._store, node, self._clock.now(), job=job):
                self.on_settled(record)
        except StoreError as failure:
            logger.error("Job %s: what a silent node has left of it cannot be recorded yet: %s", job, failure)

    def _tell_skew(self, presence: Presence) -> None:
        if abs(presence.clock_offset) > SKEW_SECONDS:
            self._tell_once("skew", f"this machine's clock is {presence.clock_offset:+.1f} s off the store's; leases "
                            "do not mind, but its jobs fire at the wrong time")

    def _tell_once(self, key: str, text: str) -> None:
        if key not in self._told:
            self._told.add(key)
            logger.warning("%s", text)

    async def end(self) -> None:
        """Say that we go, so that nobody waits for our silence; not where somebody has to make up for us."""
        if self.one_fire is not None and self.one_fire.owes:
            return
        try:
            await bounded(self._store.leave(self.me.id))
        except StoreError as failure:
            logger.warning("the other nodes could not be told that this one ends: %s", failure)


async def dead_daemons(store: Store, me: NodeIdentity, ttl: float) -> Callable[[RunRecord], bool]:
    """Which unfinished runs are ours to end and record at the start: those that a dead daemon of this node has left.
    Raises StoreError."""
    if not store.capabilities.shared:
        return lambda run: True  # nobody else can have the store open
    present = {one.facts.identity.id: one for one in await store.nodes()}

    def is_ours(run: RunRecord) -> bool:
        one = present.get(run.launch.daemon)
        if run.launch.node != me.name:
            return False
        return one is None or is_provably_dead(one.facts.identity, me) or one.silent_for > ttl

    return is_ours



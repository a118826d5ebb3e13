"""Coordination where only one process can have the store open: everybody else is gone, and that is known."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from sexton.model.node import NodeFacts, NodeIdentity
from sexton.store.coordination import Claimed, Denied, Fire, Granted, Lease, Occurrence, Presence, Signal, boottime
from sexton.store.port import JobHistory

KeepFence = Callable[[str, int], Awaitable[None]]
"""Make the fence of a name durable."""


class _Term(msgspec.Struct, frozen=True):
    lease: Lease
    lapses: float
    """Seconds of CLOCK_BOOTTIME: a machine that slept has let its leases lapse."""


class LocalCoordination:
    """Implements `Coordination` but for `unfinished_of`, in the memory of this process. Its contenders are tasks; what
    it must not forget when the process ends is only the fences."""

    def __init__(self, keep_fence: KeepFence | None = None, clock: Callable[[], float] = boottime) -> None:
        self._keep_fence = keep_fence
        self._clock = clock
        self._terms: dict[str, _Term] = {}
        self._fences: dict[str, int] = {}
        self._inboxes: dict[str, list[Signal]] = {}
        self._arrived: dict[str, asyncio.Event] = {}
        self._nodes: dict[str, tuple[NodeFacts, float, float]] = {}
        self._fires: dict[str, list[datetime]] = {}
        self._fired_by: dict[tuple[str, datetime], str] = {}
        self._claims = asyncio.Lock()

    def remember_fences(self, fences: dict[str, int]) -> None:
        """What an earlier process has kept."""
        self._fences.update(fences)

    async def claim(
        self, name: str, by: NodeIdentity, ttl: float, *, heir_of: str | None = None,
    ) -> Granted | Denied:
        async with self._claims:
            now = self._clock()
            term = self._terms.get(name)
            if term is not None and term.lease.holder == by.id:
                self._terms[name] = _Term(term.lease, max(term.lapses, now + ttl))
                return Granted(lease=term.lease)
            inherited = term is not None and term.lease.holder == heir_of
            if term is not None and now < term.lapses and not inherited:
                return Denied(by=term.lease, lapses_in=term.lapses - now)
            fence = self._fences.get(name, 0) + 1
            if self._keep_fence is not None:
                await self._keep_fence(name, fence)
            self._fences[name] = fence
            lease = Lease(name=name, holder=by.id, node=by.name, fence=fence)
            self._terms[name] = _Term(lease, now + ttl)
            return Granted(lease=lease, taken_from=None if term is None or inherited else term.lease)

    async def raise_fence(self, name: str, fence: int) -> None:
        """Of `archive.Restorable`."""
        async with self._claims:
            if fence > self._fences.get(name, 0):
                if self._keep_fence is not None:
                    await self._keep_fence(name, fence)
                self._fences[name] = fence

    async def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        now = self._clock()
        term = self._terms.get(lease.name)
        if term is not None and term.lease == lease:
            self._terms[lease.name] = _Term(lease, max(term.lapses, now + ttl))
            return Granted(lease=lease)
        if term is not None and now < term.lapses:
            return Denied(by=term.lease, lapses_in=term.lapses - now)
        node = NodeIdentity(id=lease.holder, name=lease.node, pid=0, pid_started_ticks=0, boot_id="", pid_namespace=0)
        return await self.claim(lease.name, node, ttl)

    async def release(self, lease: Lease) -> bool:
        term = self._terms.get(lease.name)
        if term is None or term.lease != lease:
            return False
        del self._terms[lease.name]
        return True

    async def read(self, name: str) -> Denied | None:
        term, now = self._terms.get(name), self._clock()
        if term is None or now >= term.lapses:
            return None
        return Denied(by=term.lease, lapses_in=term.lapses - now)

    async def send(self, signal: Signal) -> None:
        self._inboxes.setdefault(signal.to, []).append(signal)
        if (arrived := self._arrived.get(signal.to)) is not None:
            arrived.set()

    async def take(self, me: str) -> Sequence[Signal]:
        return self._inboxes.pop(me, [])

    async def signalled(self, me: str, within: float) -> None:
        arrived = self._arrived.setdefault(me, asyncio.Event())
        if not self._inboxes.get(me):
            arrived.clear()
            try:
                async with asyncio.timeout(within):
                    await arrived.wait()
            except TimeoutError:
                pass

    async def announce(self, facts: NodeFacts) -> None:
        offset = (facts.clock - datetime.now(UTC)).total_seconds()
        self._nodes[facts.identity.id] = facts, self._clock(), offset

    async def leave(self, node: str) -> None:
        self._nodes.pop(node, None)
        self._inboxes.pop(node, None)

    async def nodes(self) -> Sequence[Presence]:
        now = self._clock()
        return [Presence(facts=facts, silent_for=now - at, clock_offset=offset)
                for facts, at, offset in self._nodes.values()]

    async def news(self, per_job: int) -> Mapping[str, JobHistory]:
        return {}  # nobody else records anything

    async def claim_fire(self, job: str, scheduled_for: datetime, by: NodeIdentity) -> bool:
        owner = self._fired_by.get((job, scheduled_for))
        if owner is None:
            self._fired_by[job, scheduled_for] = by.id
            insort(self._fires.setdefault(job, []), scheduled_for)
        return owner is None or owner == by.id

    async def claim_fires(self, wanted: Sequence[Occurrence], by: NodeIdentity, most: int) -> Claimed:
        known = {one: owner for one in wanted if (owner := self._fired_by.get(one)) is not None}
        taken = [one for one in dict.fromkeys(wanted) if one not in known][:most]
        for job, scheduled_for in taken:
            await self.claim_fire(job, scheduled_for, by)
        ours = [one for one, owner in known.items() if owner == by.id]
        return Claimed(frozenset((*ours, *taken)), frozenset(known.keys() - set(ours)))

    async def fired(self, job: str, since: datetime) -> Sequence[Fire]:
        fires = self._fires.get(job, [])
        return [Fire(scheduled_for=at, by=self._fired_by[job, at]) for at in fires[bisect_left(fires, since):]]

    async def forget_fires(self, before: datetime) -> None:
        for job, fires in self._fires.items():
            kept = bisect_left(fires, before)
            for instant in fires[:kept]:
                del self._fired_by[job, instant]
            del fires[:kept]

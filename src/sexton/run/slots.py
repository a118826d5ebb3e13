"""The slots of cluster-scoped jobs that this node holds: leases in the store, shared by the runs that need them.

A slot is claimed before a run starts and given back when the last run that needs it is *gone*. In between it is renewed
every third of its time to live. How long it is trusted is counted from when the last renewal that succeeded *began*, on
a clock that goes on while the machine or the process sleeps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.run.background import Background
from sexton.store.coordination import OPERATION_SECONDS, Denied, Granted, Lease, Leases, boottime, bounded

logger = logging.getLogger("sexton.slots")

TRUST_MARGIN = 0.1
"""Share of the time to live that a lease is not trusted for: two machines do not count seconds alike."""
WARNING = 0.2
"""Share of the time to live before that: who must not outlive its lease begins to end then."""
AGAIN_SHARE, AGAIN_SECONDS = 0.1, 1.0
"""How long until a renewal that went unanswered is tried again: a share of the time to live, and at most so long."""


def slot_name(job: str) -> str:
    return f"slots/{job}"


class HeldSlot:
    __slots__ = ("lease", "lost", "runs", "timers", "trusted_until", "uncertain")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.runs: set[str] = set()
        """Ids of the runs that need it."""
        self.trusted_until = 0.0
        self.lost: Denied | None = None
        """Another node has taken it over."""
        self.uncertain = False
        """The last renewal went unanswered."""
        self.timers: tuple[asyncio.TimerHandle, ...] = ()
        """For the end of the trust, and for a while before it."""

    @property
    def doubtful(self) -> bool:
        """Another node has it, or may have it by now."""
        return self.lost is not None or boottime() >= self.trusted_until

    def stop_timers(self) -> None:
        for timer in self.timers:
            timer.cancel()
        self.timers = ()


class Slots:
    def __init__(self, leases: Leases, me: NodeIdentity, ttl: Callable[[], float]) -> None:
        """`ttl` in seconds, asked for with each claim and renewal: a reload may change it."""
        self._leases = leases
        self._me = me
        self.ttl = ttl
        self._held: dict[str, HeldSlot] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._releases = Background()
        self._left: list[Slots] = []
        """What was held in each of the stores that were left."""
        self.moves = 0
        """How often the store has been changed."""
        self._doubtful: dict[str, Lease] = {}
        """By job: the lease whose release was not answered, or not yet."""
        self._loop = asyncio.get_running_loop()
        self.seen: dict[str, Denied] = {}
        """By job: who had the slot when we last asked in vain."""
        self.on_lost: Callable[[str, Collection[str]], None] = lambda job, runs: None
        """Another node has taken a slot over while these runs (by id) of the job live here."""
        self.on_endangered: Callable[[str, Collection[str]], None] = lambda job, runs: None
        """A slot that these runs need has not been renewed for long; another node may have it soon."""
        self.on_distrusted: Callable[[str, Collection[str]], None] = lambda job, runs: None
        """It could not be renewed in time: in a tenth of its time to live another node may have it."""
        self.takeovers = 0
        self.lost = 0
        self.renewals_failed = 0

    def of(self, job: str) -> HeldSlot | None:
        """The slot of the job, if this node holds it."""
        held = self._held.get(job)
        return held if held is not None and held.lost is None else None

    def names(self) -> tuple[str, ...]:
        return tuple(held.lease.name for held in self._held.values() if held.lost is None)

    def held(self) -> list[tuple[str, HeldSlot]]:
        """All that this node holds or held when it was taken over, by job."""
        return list(self._held.items())

    # ---------------------------------------------------------------- claim and give back

    def share(self, job: str, run_id: str) -> bool:
        """Use the slot that this node has already: a run that is replaced hands it to the one that replaces it."""
        held = self._held.get(job)
        if held is None or not held.runs or held.doubtful:
            return False
        held.runs.add(run_id)
        return True

    def is_doubtful(self, job: str, run_id: str) -> bool:
        """The run has the slot, and so much time has passed since that another node may have it by now."""
        held = self._held.get(job)
        return held is not None and run_id in held.runs and held.doubtful

    async def is_ours(self, job: str) -> bool:
        """Whether the slot is this node's now. If it cannot be trusted any more the store is asked; one that does not
        answer changes nothing."""
        held = self._held.get(job)
        if held is not None and held.lost is None and held.doubtful:
            await self._renew(job, held)
        return self.of(job) is not None

    async def claim(self, job: str, run_id: str, heir_of: str | None = None) -> Granted | Denied:
        """Ask the store for the slot. Raises StoreError when it does not answer in time, or not at all."""
        async with self._locks.setdefault(job, asyncio.Lock()):
            if self.share(job, run_id):
                return Granted(lease=self._held[job].lease)
            while True:
                moves = self.moves
                answer, until = await self._ask_for(job, heir_of)
                if moves == self.moves:
                    break  # otherwise the store was changed meanwhile: what the other one has granted lapses there
            if isinstance(answer, Denied):
                self.seen[job] = answer
                return answer
            self.seen.pop(job, None)
            if boottime() >= until:
                raise StoreError("the store granted the slot so late that another node could have it by now")
            before = self._held.get(job)
            held = self._held[job] = HeldSlot(answer.lease)
            held.runs = {run_id} if before is None else {*before.runs, run_id}
            self._trust(job, held, until)
            self.takeovers += answer.taken_from is not None
            return answer

    async def _ask_for(self, job: str, heir_of: str | None) -> tuple[Granted | Denied, float]:
        """The store's answer, and until when a lease that it grants is trusted. A lease that we have tried to release,
        without an answer, may yet be released by that: it is released for certain, and another one asked for."""
        began, ttl = boottime(), self.ttl()
        answer = await bounded(self._leases.claim(slot_name(job), self._me, ttl, heir_of=heir_of))
        doubtful = self._doubtful.get(job)
        if doubtful is not None and isinstance(answer, Granted) and answer.lease == doubtful:
            await bounded(self._leases.release(doubtful))
            began, ttl = boottime(), self.ttl()
            answer = await bounded(self._leases.claim(slot_name(job), self._me, ttl, heir_of=heir_of))
        self._doubtful.pop(job, None)
        return answer, _trusted_until(began, ttl)

    async def inherit(self, job: str, run_id: str, heir_of: str) -> None:
        """A run lives here that a process which is dead has started: its slot is ours. Asked for until it is answered;
        where another node has it, the run goes on beside that, as one whose slot was taken over."""
        await self._insist(job, run_id, "taken over from an earlier daemon", heir_of)

    async def take_along(self, job: str, run_id: str) -> None:
        """As `inherit`, for a run whose slot we have in the store that was left."""
        await self._insist(job, run_id, "begun before the store was moved", None)

    async def _insist(self, job: str, run_id: str, origin: str, heir_of: str | None) -> None:
        while True:
            try:
                answer = await self.claim(job, run_id, heir_of)
            except StoreError as failure:
                logger.warning("Job %s: the slot of run %s, %s, cannot be claimed (%s); it is tried again", job, run_id,
                               origin, failure)
                await asyncio.sleep(1.0)
                continue
            if isinstance(answer, Denied):
                self.lost += 1
                logger.warning("Job %s: the slot of run %s, %s, is held by %s; the run continues", job, run_id, origin,
                               answer.by.node)
                self.on_lost(job, (run_id,))
            return

    def give_back(self, job: str, run_id: str) -> None:
        """The run needs it no longer; the last one releases it."""
        for left in self._left:
            left.give_back(job, run_id)
        held = self._held.get(job)
        if held is None:
            return
        held.runs.discard(run_id)
        if not held.runs:
            self._releases.begin(self._release(job))

    async def _release(self, job: str) -> None:
        async with self._locks.setdefault(job, asyncio.Lock()):
            held = self._held.get(job)
            if held is None or held.runs:
                return  # somebody has begun to share it
            del self._held[job]
            held.stop_timers()
            if held.lost is not None:
                return
            self._doubtful[job] = held.lease
            try:
                await bounded(self._leases.release(held.lease))
                if self._doubtful.get(job) == held.lease:
                    del self._doubtful[job]
            except StoreError as failure:
                logger.warning("state: failed to release the concurrency slot for %s (%s); it frees by TTL", job,
                               failure)

    # ---------------------------------------------------------------- another store

    def move(self, left: Leases, back_to: Slots | None = None) -> Slots:
        """Our store has been put in the place of another one, `left`. What is held stays held there, under the object
        that is returned, until the runs that need it are gone: whoever has not moved yet does not get in. `back_to` is
        such an object of a store that was left and that we come back to; what it holds is ours again."""
        behind = Slots(left, self._me, self.ttl)
        behind._held, behind._doubtful = self._held, self._doubtful
        self._held, self._doubtful = {}, {}
        for held in behind._held.values():
            held.stop_timers()  # it is the new lease that a run lives by
        if back_to is not None:
            self._left.remove(back_to)
            self._held, self._doubtful, back_to._held = back_to._held, back_to._doubtful, {}
            for job, held in self._held.items():
                if held.lost is None:
                    self._trust(job, held, held.trusted_until)
        self.seen.clear()
        self._left.append(behind)
        self.moves += 1
        return behind

    async def close(self) -> None:
        """Wait for the releases that are under way; they are bounded."""
        if self._releases.tasks:
            await asyncio.wait(set(self._releases.tasks))
        for held in self._held.values():
            held.stop_timers()

    # ---------------------------------------------------------------- renew

    async def keep_renewing(self) -> None:
        """For ever: every third of the time to live. An error says nothing, and is soon tried again."""
        while True:
            uncertain = any(held.uncertain for held in self._held.values() if held.lost is None)
            await asyncio.sleep(min(self.ttl() * AGAIN_SHARE, AGAIN_SECONDS) if uncertain else self.ttl() / 3)
            await self.renew_all()

    async def renew_all(self) -> None:
        await asyncio.gather(*(self._renew(job, held) for job, held in list(self._held.items()) if held.lost is None))

    async def _renew(self, job: str, held: HeldSlot) -> None:
        async with self._locks.setdefault(job, asyncio.Lock()):
            if self._held.get(job) is not held or not held.runs:
                return
            began, ttl = boottime(), self.ttl()
            if _trusted_until(began, ttl) < held.trusted_until:  # a shorter one may hold even if we never hear of it
                self._trust(job, held, _trusted_until(began, ttl))
            try:
                answer = await bounded(self._leases.renew(held.lease, ttl), min(OPERATION_SECONDS, ttl / 2))
            except StoreError as failure:
                self.renewals_failed += 1
                if not held.uncertain:
                    logger.warning("Job %s: its cluster concurrency slot could not be renewed (%s); it is tried again",
                                   job, failure)
                held.uncertain = True
                return
            if isinstance(answer, Denied):
                self._lose(job, held, answer)
                return
            if held.uncertain:
                logger.info("Job %s: its cluster concurrency slot is renewed again", job)
            held.uncertain, held.lease = False, answer.lease
            self._trust(job, held, _trusted_until(began, ttl))

    def _trust(self, job: str, held: HeldSlot, until: float) -> None:
        held.trusted_until = until
        left = held.trusted_until - boottime()
        held.stop_timers()
        held.timers = (
            self._loop.call_later(max(0.0, left - WARNING * self.ttl()), self._tell, job, held, False),
            self._loop.call_later(max(0.0, left), self._tell, job, held, True),
        )

    def _tell(self, job: str, held: HeldSlot, over: bool) -> None:
        if self._held.get(job) is held and held.runs and held.lost is None:
            (self.on_distrusted if over else self.on_endangered)(job, tuple(held.runs))

    def _lose(self, job: str, held: HeldSlot, answer: Denied) -> None:
        held.lost = self.seen[job] = answer
        held.trusted_until = 0.0
        self.lost += 1
        logger.warning(
            "Job %s: its cluster concurrency slot was taken over by %s while it is still running here (a store outage "
            "outlasted the slot TTL?)", job, answer.by.node)
        self.on_lost(job, tuple(held.runs))


def _trusted_until(began: float, ttl: float) -> float:
    """For how long a lease is ours for certain that was asked for at `began`, by the boottime of this node."""
    return began + ttl * (1 - TRUST_MARGIN)

"""A world in which nodes hold leases: true time, clocks that are none of them right, processes that stop, crash and are
not answered. The code under test is the real one: `run/slots.py` in an event loop for each node, whose time is that
node's own, on the real lease rules of each store (`lease_stores.py`).

Everything is decided by a plan (clocks and a list of steps) and a seed, so a history can be had again and made smaller.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from enum import Enum
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol

import msgspec
from lease_nodes import JOB, Broken, Node

from sexton.model.errors import StoreError
from sexton.run.slots import slot_name
from sexton.store.coordination import Lease, Leases

NAME = slot_name(JOB)
NODES = 3


class Kind(Enum):
    """What a step does."""

    START = "a node claims the slot for a run"
    END = "a run of a node is gone"
    STOP = "SIGSTOP, later SIGCONT"
    SUSPEND = "the machine sleeps"
    CRASH = "SIGKILL; the next process starts at once, knowing nothing"
    TAKEOVER = "SIGKILL; the next process takes the runs over"
    OUTAGE = "the store answers nobody; what it was asked for it does afterwards"
    CUT = "questions or answers of a node are lost"
    SLOW = "answers to a node take very long"
    STALE = "an old release arrives once more"
    CLOCK = "the file system's clock is set back"
    RELOAD = "all nodes get another time to live"


class Step(msgspec.Struct, frozen=True):
    gap: float
    """After the step before, in times to live."""
    kind: Kind
    node: int
    amount: float
    """0 to 1: how long, how much."""


class Plan(msgspec.Struct, frozen=True):
    seed: int
    ttl: float
    rates: tuple[float, ...]
    """Seconds that each node's clock counts in a true one; the last is the store's."""
    grain: int
    """Of modification times, in nanoseconds."""
    steps: tuple[Step, ...]


SLOWEST, FASTEST = 0.96, 1.04
"""The margin is 10 %: a clock that loses 4 % beside one that gains 4 % is within it."""


def plan_from(seed: int) -> Plan:
    """The same for the same seed."""
    draw = random.Random(seed)
    kinds = list(Kind)
    weights = [10 if kind is Kind.START else 4 if kind is Kind.END else 1 for kind in kinds]
    steps = tuple(
        Step(draw.random() ** 2 * 1.2, draw.choices(kinds, weights)[0], draw.randrange(NODES), draw.random())
        for _ in range(draw.randrange(5, 30)))
    rates = tuple(draw.choice((SLOWEST, FASTEST, draw.uniform(SLOWEST, FASTEST))) for _ in range(NODES + 1))
    return Plan(seed, draw.choice((5.0, 8.0, 30.0)), rates, draw.choice((1, 4_000_000, 10**9, 2 * 10**9)), steps)


class Standing(msgspec.Struct, frozen=True):
    """What a store has of the lease."""

    holder: str | None
    fence: int


class LeaseStore(Protocol):
    """A store as the world sees it."""

    def leases_of(self, node: Node) -> Leases:
        """As this process has it open."""
        ...

    def standing(self) -> Standing: ...

    def release_now(self, lease: Lease) -> bool:
        """A release that arrives at this moment, from nowhere."""
        ...


class World:
    def __init__(self, plan: Plan, make_store: Callable[[World], LeaseStore]) -> None:
        self.plan = plan
        self.ttl = plan.ttl
        self.draw = random.Random(plan.seed)
        self.now = 0.0
        self.set_back = 0.0
        """Seconds that the file system's clock was set back."""
        self.outage_until = 0.0
        self.depth = 0
        self.broken: BaseException | None = None
        """What a node has met."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.granted: list[Lease] = []
        self.grants = 0
        self._last = Standing(None, 0)
        self._last_holder: str | None = None
        self.store = make_store(self)
        self.nodes = [Node(self, number, plan.rates[number]) for number in range(NODES)]

    # ---------------------------------------------------------------- time

    def at(self, when: float, do: Callable[[], None]) -> None:
        heappush(self._events, (max(when, self.now), next(self._order), do))

    def run_until(self, when: float) -> None:
        """Let everything happen that is due until then, also from inside an event: what that one does takes time."""
        self.depth += 1
        try:
            while self._events and self._events[0][0] <= when:
                at, _, do = heappop(self._events)
                self.now = max(self.now, at)
                do()
                self.check()
        finally:
            self.depth -= 1
        self.now = max(self.now, when)

    def store_clock(self) -> float:
        """Seconds by the clock of the server, which gains or loses, and may be set back (a file system's)."""
        return 1.7e9 + self.now * self.plan.rates[-1]

    # ---------------------------------------------------------------- promises

    def check(self) -> None:
        """At no instant do two nodes trust the lease."""
        if self.broken is not None:
            raise self.broken
        first = None
        for node in self.nodes:
            if node.trusts():
                if first is not None:
                    raise Broken(f"{self.now:.3f}: {first.identity.id} and {node.identity.id} both trust the lease")
                first = node

    def check_store(self) -> None:
        """Fences never fall, and grow with each change of owner."""
        before, found = self._last, self.store.standing()
        if found.fence < before.fence:
            raise Broken(f"{self.now:.3f}: the fence fell from {before.fence} to {found.fence}")
        if found.holder is not None:
            if found.holder != self._last_holder and found.fence <= before.fence:
                raise Broken(f"{self.now:.3f}: {found.holder} follows {self._last_holder} with fence {found.fence}")
            self._last_holder = found.holder
        self._last = found

    # ---------------------------------------------------------------- what happens

    def run(self) -> World:
        """The whole plan. Raises Broken."""
        for step in self.plan.steps:
            self.take(step)
        return self.end()

    def end(self) -> World:
        """Peace: all runs end, nothing fails any more, and the lease can be had."""
        self.run_until(self.now + 2 * self.ttl)
        for node in self.nodes:
            node.end_all()
        self._expect_peace()
        for node in self.nodes:
            node.kill()
        return self

    def _expect_peace(self) -> None:
        """A lease that nobody renews any more is granted to whoever keeps asking, within three times to live."""
        one = self.nodes[0]
        for node in self.nodes:
            node.cut_until = node.slow_until = 0.0
        self.run_until(max(self.now, self.outage_until, *(node.stopped_until for node in self.nodes)))
        limit = self.now + 3 * max(self.ttl, self.plan.ttl, 30.0)
        while not one.trusts():
            if self.now > limit:
                raise Broken(f"{self.now:.3f}: the lease cannot be had any more: {self.store.standing()}")
            one.start()
            self.run_until(self.now + self.ttl / 4)
            for node in self.nodes[1:]:
                node.end_all()  # a claim from before may have been granted since

    def take(self, step: Step) -> None:
        """Let time pass, then do what the step says. Raises Broken."""
        self.run_until(self.now + step.gap * self.ttl)
        node, span = self.nodes[step.node % NODES], step.amount * 2.5 * self.ttl
        match step.kind:
            case Kind.START:
                node.start()
            case Kind.END:
                node.end_one()
            case Kind.STOP:
                node.stop(span)
            case Kind.SUSPEND:
                node.stop(span, asleep=True)
            case Kind.CRASH:
                node.crash(takeover=False)
            case Kind.TAKEOVER:
                node.crash(takeover=True)
            case Kind.OUTAGE:
                self.outage_until = max(self.outage_until, self.now + span)
            case Kind.CUT:
                node.cut_until = self.now + span
            case Kind.SLOW:
                node.slow_until, node.slowness = self.now + span, step.amount * 14.0
            case Kind.STALE:
                self._release_stale(step.amount)
            case Kind.CLOCK:
                self.set_back += step.amount * 2 * self.ttl
            case Kind.RELOAD:
                self.ttl = 5.0 + step.amount * 25.0
        self.check()

    def _release_stale(self, amount: float) -> None:
        before = self.store.standing()
        old = [lease for lease in self.granted if (lease.holder, lease.fence) != (before.holder, before.fence)]
        if old and (self.store.release_now(old[int(amount * (len(old) - 1))]) or self.store.standing() != before):
            raise Broken(f"{self.now:.3f}: a stale release changed {before}")

    # ---------------------------------------------------------------- questions to the store

    async def exchange(self, node: Node, work: Callable[[asyncio.Future[Any]], Any]) -> Any:
        """Ask the store. The question, the answer or both may be lost or late; what is asked for may be done long
        after nobody waits for it any more."""
        answer: asyncio.Future[Any] = node.loop.create_future()
        draw, cut = self.draw, self.now < node.cut_until
        arrives = self.now + self._delay(node)
        if not (cut and draw.random() < 0.5):
            self.at(arrives, lambda: self._work(node, work, answer, lost=cut))
        if cut and draw.random() < 0.3:
            failure = StoreError("connection reset")
            self.at(self.now + draw.random(), lambda: node.loop.tell(answer, failure))
        return await answer

    def _work(self, node: Node, work: Callable[[asyncio.Future[Any]], Any], answer: asyncio.Future[Any], *,
              lost: bool) -> None:
        if self.now < self.outage_until:  # it is in a queue of the server's, and comes in any order
            self.at(self.outage_until + self.draw.random(), lambda: self._work(node, work, answer, lost=lost))
            return
        try:
            result = work(answer)
        except StoreError as failure:
            result = failure
        self.check_store()
        if not lost:
            self.at(self.now + self._delay(node), lambda: node.loop.tell(answer, result))

    def _delay(self, node: Node) -> float:
        draw = self.draw
        if self.now < node.slow_until:
            return draw.random() * node.slowness
        return draw.random() * (8.0 if draw.random() < 0.02 else 0.05)

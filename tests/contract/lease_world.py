"""A world in which nodes hold leases: true time, clocks that are none of them right, processes that stop, crash and are
not answered. The code under test is the real one: `run/slots.py` in an event loop for each node, whose time is that
node's own, on the real lease rules of each store (`lease_stores.py`).

Everything is decided by a plan (clocks and a list of steps) and a seed, so a history can be had again and made smaller.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum
from heapq import heappop, heappush
from inspect import CORO_CREATED, getcoroutinestate
from itertools import count
from typing import Any, Protocol

import msgspec

from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.run import slots as slots_module
from sexton.run.slots import Slots, slot_name
from sexton.store.coordination import Denied, Lease, Leases

JOB = "job"
NAME = slot_name(JOB)
NODES = 3
DEEPEST = 12
"""How many operations may be under way inside each other's steps."""


class Broken(AssertionError):
    """A promise was not kept."""


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


class Loop(asyncio.AbstractEventLoop):
    """An event loop of one process, in the world's time as its node counts it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()
        self.dead = False
        self.tasks: set[asyncio.Task[Any]] = set()

    def time(self) -> float:
        return self.node.monotonic()

    def boottime(self) -> float:
        return self.node.boottime()

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heappush(self._timers, (when, next(self._order), handle))
        self._wake_for(when)
        return handle

    def _wake_for(self, when: float) -> None:
        self.node.world.at(self.node.true_time(when) + 1e-9, self.turn)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self)
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not self.dead and not task.cancelled() and (error := task.exception()) is not None:
            self.node.world.broken = self.node.world.broken or error

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def call_exception_handler(self, context: Any) -> None:
        if not self.dead and "exception" in context and not isinstance(context["exception"], StoreError):
            self.node.world.broken = self.node.world.broken or context["exception"]

    def spawn(self, coro: Coroutine[Any, Any, None]) -> None:
        """From outside of the loop."""
        self.create_task(coro)
        self.turn()

    def tell(self, future: asyncio.Future[Any], result: Any) -> None:
        """An answer comes in."""
        if self.dead or future.done():
            return
        self.call_soon(_settle, future, result)
        self.turn()

    def turn(self) -> None:
        """Whatever is due, unless the process is stopped: then it comes when it goes on."""
        if self.dead or self.node.world.now < self.node.stopped_until:
            return
        now = self.time()
        while self._timers and self._timers[0][0] <= now:
            handle = heappop(self._timers)[2]
            if not handle.cancelled():
                self._ready.append(handle)
        if not self._ready:
            if self._timers and self._timers[0][0] <= now + 1e-6:  # two clocks and the last digit of a float
                self._wake_for(self._timers[0][0] + 1e-6)
            return
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while self._ready and not self.dead:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(before)

    def rewake(self) -> None:
        """Timers are due at other true times than it looked: the machine has slept."""
        for when, _, handle in self._timers:
            if not handle.cancelled():
                self._wake_for(when)
        self.turn()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


class Node:
    """A machine with a daemon: one process after the other."""

    def __init__(self, world: World, number: int, rate: float) -> None:
        self.world, self.number, self.rate = world, number, rate
        self._offset = world.draw.random() * 1e6
        self._slept = 0.0
        self.stopped_until = self.cut_until = self.slow_until = self.slowness = 0.0
        self._process = count(1)
        self._runs = count(1)
        self.heir_of: str | None = None
        self.begin()

    # ---------------------------------------------------------------- clocks

    def boottime(self) -> float:
        return self._offset + self.world.now * self.rate

    def monotonic(self) -> float:
        return self.boottime() - self._slept

    def true_time(self, monotonic: float) -> float:
        return (monotonic + self._slept - self._offset) / self.rate

    # ---------------------------------------------------------------- processes

    def begin(self) -> None:
        name = f"node-{self.number}"
        self.identity = NodeIdentity(id=f"{name}#{next(self._process)}", name=name, pid=1, pid_started_ticks=1,
                                     boot_id="", pid_namespace=1)
        self.loop = Loop(self)
        self.runs: list[str] = []
        self.loop.spawn(self._daemon())

    async def _daemon(self) -> None:
        leases = self.world.store.leases_of(self)
        self.slots = Slots(leases, self.identity, lambda: self.world.ttl)
        if self.number == 1:
            self.slots.on_distrusted = lambda job: self.end_all()  # slotLost: cancel, with a kill that takes no time
        await self.slots.keep_renewing()

    def kill(self) -> None:
        self.loop.dead = True
        for task in self.loop.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine: Any = task.get_coro()
            if getcoroutinestate(coroutine) == CORO_CREATED:
                coroutine.close()

    def crash(self, *, takeover: bool) -> None:
        kept, before = list(self.runs), self.identity.id
        self.kill()
        self.stopped_until = min(self.stopped_until, self.world.now)
        self.begin()
        if takeover:
            for run in kept:
                self.runs.append(run)
                self.loop.spawn(self._inherit(run, before))

    def stop(self, seconds: float, *, asleep: bool = False) -> None:
        """What counts time counts on; CLOCK_MONOTONIC does not while the machine sleeps."""
        self.stopped_until = max(self.stopped_until, self.world.now + seconds)
        loop = self.loop

        def go_on() -> None:
            if asleep and loop is self.loop:
                self._slept += seconds * self.rate
            loop.rewake()

        self.world.at(self.stopped_until, go_on)

    # ---------------------------------------------------------------- runs

    def start(self) -> None:
        self.loop.spawn(self._start(f"run-{self.number}-{next(self._runs)}"))

    async def _start(self, run: str) -> None:
        try:
            answer = await self.slots.claim(JOB, run)
        except StoreError:
            return
        if isinstance(answer, Denied):
            return
        self.world.grants += 1
        self.world.granted.append(answer.lease)
        if not self.trusts():
            raise Broken(f"{self.world.now:.3f}: {self.identity.id} starts a run with a lease that it does not trust")
        self.runs.append(run)

    async def _inherit(self, run: str, before: str) -> None:
        """As `launch.py` does it."""
        await self.slots.inherit(JOB, run, before)
        if run not in self.runs:
            self.slots.give_back(JOB, run)

    def end_one(self) -> None:
        if self.runs:
            run = self.runs.pop(0)
            self.loop.call_soon(lambda: self.slots.give_back(JOB, run))
            self.loop.turn()

    def end_all(self) -> None:
        while self.runs:
            run = self.runs.pop(0)
            self.loop.call_soon(lambda run=run: self.slots.give_back(JOB, run))
        if asyncio._get_running_loop() is None:
            self.loop.turn()

    def trusts(self) -> bool:
        """Whether this node believes, by its own clock and at this moment, that the slot is its."""
        held = self.slots.of(JOB)
        return held is not None and bool(held.runs) and self.boottime() < held.trusted_until


def boottime_of_the_running_node() -> float:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    return loop.boottime()


def use_simulated_clock(patch: Callable[[Any, str, Any], None]) -> None:
    """`patch` as `monkeypatch.setattr`."""
    patch(slots_module, "boottime", boottime_of_the_running_node)
    patch(slots_module.logger, "disabled", True)

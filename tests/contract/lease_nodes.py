"""The nodes of a simulated world (`lease_world.py`): event loops in their own time, and the daemons in them."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from inspect import CORO_CREATED, getcoroutinestate
from itertools import count
from typing import TYPE_CHECKING, Any

from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.run import slots as slots_module
from sexton.run.slots import Slots
from sexton.store.coordination import Denied

if TYPE_CHECKING:
    from lease_world import World

JOB = "job"


class Broken(AssertionError):
    """A promise was not kept."""


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
            # slotLost: cancel, with a kill that takes no time
            self.slots.on_distrusted = lambda job, runs: self.end_all()
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

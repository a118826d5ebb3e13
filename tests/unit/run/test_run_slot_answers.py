"""What a node believes of its slots when answers of the store are late or lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.run import slots as module
from sexton.run.launch import Launcher
from sexton.run.slots import Slots
from sexton.store.coordination import Denied, Granted, Lease
from sexton.store.local import LocalCoordination


def node(name: str) -> NodeIdentity:
    return NodeIdentity(id=f"{name}#1", name=name, pid=1, pid_started_ticks=1, boot_id="", pid_namespace=1)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Wire(LocalCoordination):
    """A store whose answers may be lost or take time."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.clock = clock
        self.takes = 0.0
        self.lost = False
        """What is asked for is done, and nobody hears of it."""
        self.held_up: list[Coroutine[Any, Any, Any]] = []
        self.holds_up = False
        """Releases are done later, and nobody hears of it."""

    async def claim(self, *values: Any, **named: Any) -> Granted | Denied:
        answer = await super().claim(*values, **named)
        self.clock.now += self.takes
        return answer

    async def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        answer = await super().renew(lease, ttl)
        if self.lost:
            raise StoreError("no answer")
        return answer

    async def release(self, lease: Lease) -> bool:
        if self.holds_up:
            self.held_up.append(super().release(lease))
            raise StoreError("no answer")
        return await super().release(lease)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "boottime", made)
    return made


@pytest.fixture
def wire(clock: Clock) -> Wire:
    return Wire(clock)


async def test_a_slot_that_is_granted_too_late_is_none(wire: Wire) -> None:
    """It could be another's by the time that the run starts. One that comes in time is trusted."""
    slots = Slots(wire, node("a"), lambda: 10.0)
    wire.takes = 9.1
    with pytest.raises(StoreError, match="so late"):
        await slots.claim("j", "r1")
    assert slots.of("j") is None
    wire.takes = 8.9
    assert isinstance(await slots.claim("j", "r2"), Granted)
    assert slots.share("j", "r3")


async def test_a_lease_whose_release_may_come_yet_is_not_used_again(wire: Wire) -> None:
    """The next claim has a higher fence, so that the release that was held up frees nothing."""
    slots = Slots(wire, node("a"), lambda: 10.0)
    await slots.claim("j", "r1")
    wire.holds_up = True
    slots.give_back("j", "r1")
    await slots.close()
    with pytest.raises(StoreError):
        await slots.claim("j", "r2")  # it cannot be released for certain now
    wire.holds_up = False
    answer = await slots.claim("j", "r2")
    assert isinstance(answer, Granted) and answer.lease.fence == 2
    for late in wire.held_up:
        assert not await late
    assert isinstance(await wire.claim("slots/j", node("b"), 10.0), Denied)


async def test_a_shorter_time_to_live_counts_from_when_it_is_asked_for(wire: Wire, clock: Clock) -> None:
    """The store may have heard it although we did not hear of that."""
    ttl = 30.0
    slots = Slots(wire, node("a"), lambda: ttl)
    await slots.claim("j", "r1")
    ttl, wire.lost = 5.0, True
    await slots.renew_all()
    clock.now += 4.6
    assert not slots.share("j", "r2")


async def test_the_margin_is_of_the_time_to_live_that_was_asked_for(wire: Wire, clock: Clock) -> None:
    """Not of one that a reload has brought since."""
    asked_for = iter([30.0])
    slots = Slots(wire, node("a"), lambda: next(asked_for, 5.0))
    await slots.claim("j", "r1")
    held = slots.of("j")
    assert held is not None and held.trusted_until == clock.now + 27.0


async def test_renewals_make_no_lease_shorter(clock: Clock) -> None:
    """An old one may come late."""
    store = LocalCoordination(clock=clock)
    answer = await store.claim("x", node("a"), 30.0)
    assert isinstance(answer, Granted)
    await store.renew(answer.lease, 5.0)
    await store.claim("x", node("a"), 5.0)
    clock.now += 20.0
    assert isinstance(await store.claim("x", node("b"), 5.0), Denied)


async def test_an_inherited_slot_is_given_back_although_it_came_after_the_end(wire: Wire) -> None:
    """The store did not answer while the run that was taken over lived."""
    slots = Slots(wire, node("a"), lambda: 10.0)
    freed = asyncio.Event()
    freed.set()
    run: Any = SimpleNamespace(id="r", job=SimpleNamespace(name="j"), freed=freed)
    await Launcher._hold_inherited(run, slots, "old#1")
    for _ in range(20):
        await asyncio.sleep(0)  # whatever it may have left to do
    await slots.close()
    assert await wire.read("slots/j") is None and slots.of("j") is None

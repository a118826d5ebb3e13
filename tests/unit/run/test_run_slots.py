"""Slots of cluster-scoped jobs: requests by fence, pursuit without answers, what becomes of runs whose slot is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from simulated import job, launch

from sexton.daemon.inbox import Inbox
from sexton.model.clock import Clock, Monotonic
from sexton.model.errors import StoreError
from sexton.model.job import ConcurrencyPolicy, ConcurrencyScope, SlotLost
from sexton.model.node import NodeIdentity
from sexton.model.run import StopCause
from sexton.run.entrance import enter
from sexton.run.facilities import Facilities
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.run.registry import Registry
from sexton.run.slotloss import SlotLoss
from sexton.run.slots import Slots, slot_name
from sexton.store.coordination import Denied, Granted, Lease, Signal, SignalKind
from sexton.store.inuse import StoreInUse
from sexton.store.memory.store import MemoryStore

TTL = 0.6
CLOCK = Clock(now=lambda: datetime.now(UTC), monotonic=lambda: Monotonic(time.monotonic()))


def identity(name: str) -> NodeIdentity:
    return NodeIdentity(id=f"{name}#1", name=name, pid=1, pid_started_ticks=1, boot_id="b", pid_namespace=1)


HERE, THERE = identity("here"), identity("there")


class FlakyStore(MemoryStore):
    """Leases of a store that can be made to fail."""

    failing = False

    def __init__(self) -> None:
        super().__init__()
        self.answering = asyncio.Event()
        self.answering.set()

    async def claim(self, *arguments: Any, **more: Any) -> Granted | Denied:
        self._check()
        return await super().claim(*arguments, **more)

    async def renew(self, *arguments: Any, **more: Any) -> Granted | Denied:
        await self.answering.wait()
        self._check()
        return await super().renew(*arguments, **more)

    def _check(self) -> None:
        if self.failing:
            raise StoreError("it is down")


@pytest.fixture
async def store() -> AsyncIterator[FlakyStore]:
    made = FlakyStore()
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def slots(store: FlakyStore) -> AsyncIterator[Slots]:
    made = Slots(store, HERE, lambda: TTL)
    renewing = asyncio.create_task(made.keep_renewing())
    yield made
    renewing.cancel()
    await made.close()


def a_run(registry: Registry, run_id: str = "run-1", **options: Any) -> Run:
    spec = job(concurrency_policy=ConcurrencyPolicy.REPLACE, concurrency_scope=ConcurrencyScope.CLUSTER, **options)
    run = Run(spec, launch(run_id=run_id), CLOCK)
    registry.add(run)
    return run


def stops(run: Run) -> Iterator[StopRequested]:
    while run.mailbox.waiting:
        message = run.mailbox._messages.popleft()
        assert isinstance(message, StopRequested)
        yield message


async def until_true(condition: Callable[[], object], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(("change", "obeyed"), [(0, True), (-1, False), (1, False)])
async def test_a_request_to_another_fence_is_inert(
    store: FlakyStore, slots: Slots, change: int, obeyed: bool,
) -> None:
    """Only the exact fence is asked to yield: a takeover bumps it, and a late request concerns nobody."""
    registry = Registry()
    run, stranger = a_run(registry), a_run(registry, "run-2")
    granted = await slots.claim("j", run.id)
    assert isinstance(granted, Granted)
    inbox = Inbox(store, HERE.id, registry, slots)
    await inbox.obey(Signal(to=HERE.id, kind=SignalKind.YIELD, sender="there", lease=slot_name("j"),
                            fence=granted.lease.fence + change))
    assert [request.cause for request in stops(run)] == ([StopCause.REPLACED] if obeyed else [])
    assert not stranger.mailbox.waiting, "it does not run under the lease"


@pytest.mark.parametrize("taken", [True, False])
async def test_who_wakes_up_asks_whose_the_slot_is_before_it_yields(store: FlakyStore, taken: bool) -> None:
    """A node was stopped for longer than its slot lives, and finds a request to yield: if the slot is another's by now
    the request is stale, and the run is one whose slot was taken over; otherwise it is meant."""
    slots, registry = Slots(store, HERE, lambda: 0.1), Registry()  # nobody renews
    run = a_run(registry)
    granted = await slots.claim("j", run.id)
    assert isinstance(granted, Granted)
    await until_true(lambda: slots.is_doubtful("j", run.id))
    if taken:
        async with asyncio.timeout(5.0):
            while not isinstance(await store.claim(slot_name("j"), THERE, TTL), Granted):
                await asyncio.sleep(0.005)
    await Inbox(store, HERE.id, registry, slots).obey(
        Signal(to=HERE.id, kind=SignalKind.YIELD, sender="there", lease=slot_name("j"), fence=granted.lease.fence))
    assert [request.cause for request in stops(run)] == ([] if taken else [StopCause.REPLACED])
    assert slots.lost == int(taken)
    await slots.close()


async def test_a_request_that_waits_for_the_store_holds_up_none_behind_it(store: FlakyStore) -> None:
    """Whose an expired slot is takes as long as the store takes to answer; a cancel that came after is obeyed at
    once."""
    ttl = 0.1
    slots, registry = Slots(store, HERE, lambda: ttl), Registry()  # nobody renews
    held, other = a_run(registry), a_run(registry, "run-2")
    granted = await slots.claim("j", held.id)
    assert isinstance(granted, Granted)
    await until_true(lambda: slots.is_doubtful("j", held.id))
    store.answering.clear()
    ttl = 60.0  # for so long an answer is waited for, at most ten seconds
    await store.send(Signal(to=HERE.id, kind=SignalKind.YIELD, sender="there", lease=slot_name("j"),
                            fence=granted.lease.fence))
    await store.send(Signal(to=HERE.id, kind=SignalKind.CANCEL, sender="there", run=other.id))
    listening = asyncio.create_task(Inbox(store, HERE.id, registry, slots).run())
    await until_true(lambda: other.mailbox.waiting)
    assert [request.cause for request in stops(other)] == [StopCause.CANCEL]
    assert not held.mailbox.waiting
    listening.cancel()
    await asyncio.wait({listening})
    assert listening.cancelled()


def facilities(store: FlakyStore, slots: Slots, registry: Registry, *, fail_closed: bool) -> Facilities:
    absent: Any = None
    return Facilities(
        ledger=store, supervisors=absent, registry=registry, clock=CLOCK, mirror=None, output_files=None,
        on_recorded=lambda run, record: None, slots=slots, signals=store, intent_required=fail_closed,
    )


async def waits(run: Run, condition: Callable[[], bool], limit: Monotonic | None = None) -> bool:
    while not condition():
        message = await run.mailbox.take(limit)
        if message is None:
            return False
        run.learn(message)
    return True


@pytest.mark.parametrize("fail_closed", [True, False])
async def test_no_answer_in_a_pursuit_is_no_yielding(
    store: FlakyStore, slots: Slots, caplog: pytest.LogCaptureFixture, fail_closed: bool,
) -> None:
    """The holder was seen, so a store that stops answering leaves no question open that `degrade` could decide: the
    pursuit asks on, and ends after twice the time to live without a start."""
    assert isinstance(await store.claim(slot_name("j"), THERE, 100.0), Granted)
    registry = Registry()
    run, daemon = a_run(registry), facilities(store, slots, registry, fail_closed=fail_closed)
    entering = asyncio.create_task(enter(run, daemon, waits))
    await run.answered.wait()
    assert run.pursues == "there"
    store.failing = True
    began = time.monotonic()
    assert await entering is False
    assert 2 * TTL - 0.3 < time.monotonic() - began < 2 * TTL + 1.5
    assert "the foreign holder (there) did not yield its cluster concurrency slot within 1.2s" in caplog.text
    assert "whether there has yielded cannot be said now (it is down)" in caplog.text
    assert "degrade" not in caplog.text and run.refusal is not None


async def test_a_pursuit_goes_on_when_the_store_is_back(store: FlakyStore, slots: Slots) -> None:
    """It starts when the holder has yielded, whatever the store did in between."""
    held = await store.claim(slot_name("j"), THERE, 100.0)
    assert isinstance(held, Granted)
    registry = Registry()
    run, daemon = a_run(registry), facilities(store, slots, registry, fail_closed=False)
    entering = asyncio.create_task(enter(run, daemon, waits))
    await run.answered.wait()
    store.failing = True
    await until_true(lambda: daemon.counters.slots_unanswered)
    store.failing = False
    (asked,) = await store.take(THERE.id)
    assert asked.kind is SignalKind.YIELD and asked.fence == held.lease.fence
    assert await store.release(held.lease)
    assert await entering is True and slots.of("j") is not None


async def test_a_pursuit_ends_when_the_store_is_moved() -> None:
    """The slot is free in the new store, where the holder has not come yet: no run rather than two, and the slot there
    is free again."""
    old, new = FlakyStore(), FlakyStore()
    await old.open()
    await new.open()
    await old.claim(slot_name("j"), THERE, 100.0)
    store, registry = StoreInUse(old), Registry()
    slots = Slots(store, HERE, lambda: TTL)
    run = a_run(registry)
    entering = asyncio.create_task(enter(run, facilities(old, slots, registry, fail_closed=False), waits))
    await run.answered.wait()
    slots.move(store.move(new, [run.id]))
    assert await entering is False
    assert run.refusal is not None and "the store was moved while there was asked to yield" in run.refusal.message
    await slots.close()
    assert await new.read(slot_name("j")) is None


async def test_slot_lost_cancel(store: FlakyStore, slots: Slots) -> None:
    """A run of `slotLost: cancel` is asked to end at seven tenths of the time to live after the last renewal began, and
    told to at nine; one of `continue` never. A peer that asks all the time gets in after that."""
    registry = Registry()
    run = a_run(registry, slot_lost=SlotLost.CANCEL)
    goes_on = a_run(registry, "run-2", slot_lost=SlotLost.CONTINUE)
    SlotLoss(registry, slots)
    for one in (run, goes_on):
        await slots.claim("j", one.id)
    store.failing = True
    last = time.monotonic()
    await until_true(lambda: run.mailbox.waiting)
    asked = time.monotonic() - last
    (first,) = stops(run)
    await until_true(lambda: run.mailbox.waiting)
    told = time.monotonic() - last
    (second,) = stops(run)
    assert {first.cause, second.cause} == {StopCause.LOST_LEASE} and (first.force, second.force) == (False, True)
    assert asked <= told < TTL and not goes_on.mailbox.waiting
    denied = await MemoryStore.claim(store, slot_name("j"), THERE, TTL)
    assert isinstance(denied, Denied), "the lease has not lapsed yet"


async def test_a_renewal_takes_the_danger_away(store: FlakyStore, slots: Slots) -> None:
    """A blip shorter than that ends no run, though one renewal has failed."""
    registry = Registry()
    run = a_run(registry, slot_lost=SlotLost.CANCEL)
    SlotLoss(registry, slots)
    await slots.claim("j", run.id)
    store.failing = True
    await until_true(lambda: slots.renewals_failed)
    store.failing = False
    await asyncio.sleep(2 * TTL)
    assert not run.mailbox.waiting and slots.of("j") is not None


async def test_a_slot_that_was_taken_over(store: FlakyStore, slots: Slots) -> None:
    """The takeover is noticed with the next renewal; then `slotLost: cancel` ends the run, and what it gives back is
    not the other node's lease."""
    registry = Registry()
    run = a_run(registry, slot_lost=SlotLost.CANCEL)
    SlotLoss(registry, slots)
    granted = await slots.claim("j", run.id)
    assert isinstance(granted, Granted)
    assert await store.release(granted.lease)
    taken = await store.claim(slot_name("j"), THERE, 100.0)
    assert isinstance(taken, Granted)
    await until_true(lambda: run.mailbox.waiting)
    assert next(stops(run)).cause is StopCause.LOST_LEASE and slots.of("j") is None and slots.lost == 1
    slots.give_back("j", run.id)
    await slots.close()
    held = await store.read(slot_name("j"))
    assert held is not None and held.by == Lease(name=slot_name("j"), holder=THERE.id, node="there",
                                                 fence=taken.lease.fence)


async def test_a_node_that_slept_between_grant_and_start_asks_again(
    store: FlakyStore, slots: Slots, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the intent was written the machine was suspended, and a peer took the slot: nothing is started."""
    registry = Registry()
    run, daemon = a_run(registry), facilities(store, slots, registry, fail_closed=False)
    run.job = msgspec.structs.replace(run.job, concurrency_policy=ConcurrencyPolicy.FORBID)

    async def sleep_through(launched: object) -> None:
        held = slots.of("j")
        assert held is not None
        assert await store.release(held.lease)
        assert isinstance(await store.claim(slot_name("j"), THERE, 100.0), Granted)
        held.trusted_until = 0.0

    monkeypatch.setattr(store, "intend", sleep_through)
    assert await enter(run, daemon, waits) is False
    assert run.refusal is not None and "held by there" in run.refusal.message

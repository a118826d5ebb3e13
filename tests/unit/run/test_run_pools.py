"""The desk of the pools: slots follow runs, whatever order things happen in."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from simulated import BEGIN, job, launch

from sexton.admission.decide import Refuse
from sexton.model.clock import Clock, Monotonic
from sexton.model.errors import StoreError
from sexton.model.job import ConcurrencyPolicy, JobSpec
from sexton.model.pool import PoolSettings, PoolUse
from sexton.model.run import Phase, RunRecord, StopCause
from sexton.run.live import Run
from sexton.run.mailbox import SlotsGiven, StopRequested
from sexton.run.pools import Pools, withdraw
from sexton.run.queueing import wait_for_slots
from sexton.run.registry import Registry

CLOCK = Clock(now=lambda: BEGIN, monotonic=lambda: Monotonic(asyncio.get_running_loop().time()))


def of(name: str, policy: ConcurrencyPolicy = ConcurrencyPolicy.ALLOW, slots: int = 1, **options: Any) -> JobSpec:
    spec = job(concurrency_policy=policy, pool=PoolUse(name="p", slots=slots), **options)
    return replace(spec, name=name)


class Desk:
    """Pools with runs that do nothing by themselves; what is admitted is started at once or with its victims gone."""

    def __init__(self, slots: int, most: int = 1000) -> None:
        self.registry = Registry()
        self.admitted: list[tuple[str, tuple[str, ...]]] = []
        self.pools = Pools(self.registry, CLOCK, self.admit)
        self.pools.configure([PoolSettings(name="p", slots=slots, max_queued=most)])
        pool = self.pools.get("p")
        assert pool is not None
        self.pool = pool
        self.count = 0

    def admit(self, run: Run, victims: tuple[str, ...]) -> None:
        run.granted = True
        self.admitted.append((run.id, victims))
        for victim in victims:
            found = self.registry.get(victim)
            assert found is not None
            found.mailbox.post(StopRequested(StopCause.REPLACED))

    def ask(self, spec: JobSpec) -> Run:
        assert spec.pool is not None
        self.count += 1
        ticket = self.pools.ticket(spec.pool, BEGIN, "d", BEGIN + timedelta(seconds=self.count))
        run = Run(spec, replace(launch(spec.name, f"{self.count:04}"), ticket=ticket), CLOCK)
        run.phase = Phase.QUEUED
        self.registry.add(run)
        self.pools.enqueue(run)
        return run

    async def end(self, run: Run, *, confirmed: bool = True) -> None:
        if run.phase not in (Phase.ENDED, Phase.RECORDED):
            run.phase = Phase.ENDED
        run.unconfirmed = not confirmed
        if confirmed:
            run.freed.set()
            self.registry.remove(run)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_a_run_that_could_not_be_terminated_keeps_its_slots() -> None:
    """They go to nobody when it has ended, and to the next when it is gone at last."""
    desk = Desk(1)
    first, second = desk.ask(of("a")), desk.ask(of("b"))
    await desk.end(first, confirmed=False)
    assert desk.pool.used == 1 and not second.granted
    await desk.end(first)
    assert second.granted and desk.pool.used == 1


async def test_a_forbid_run_waits_for_an_instance_from_before_the_pool() -> None:
    """One that runs without a slot, because the job had no pool when it started, is waited for all the same."""
    desk = Desk(4)
    spec = of("a", ConcurrencyPolicy.FORBID)
    older = Run(replace(spec, pool=None), launch("a", "older"), CLOCK)
    older.phase = Phase.RUNNING
    desk.registry.add(older)
    run = desk.ask(spec)
    assert not run.granted and desk.pool.used == 0
    await desk.end(older)
    assert run.granted


async def test_a_successor_has_its_slots_when_its_victims_are_gone() -> None:
    """It needs three and inherits two: the third is taken at once, the others when the victim is gone, and nobody gets
    in between."""
    desk = Desk(3)
    victim = desk.ask(of("r", ConcurrencyPolicy.REPLACE, 2))
    other = desk.ask(of("o", slots=2))
    successor = desk.ask(of("r", ConcurrencyPolicy.REPLACE, 3))
    assert desk.admitted == [(victim.id, ()), (successor.id, (victim.id,))]
    assert desk.pool.used == 3
    await desk.end(victim)
    assert desk.pool.used == 3 and desk.pool.holdings[successor.id].slots == 3 and not other.granted
    await desk.end(successor)
    assert other.granted and desk.pool.used == 2


async def test_a_successor_that_is_stopped_leaves_the_slots_to_others() -> None:
    """While it waits for its victim: the victim's slots are free when the victim is gone."""
    desk = Desk(1)
    victim = desk.ask(of("r", ConcurrencyPolicy.REPLACE))
    successor = desk.ask(of("r", ConcurrencyPolicy.REPLACE))
    other = desk.ask(of("o"))
    await desk.end(successor)
    assert desk.pool.used == 1 and not other.granted
    await desk.end(victim)
    assert other.granted


async def test_a_stop_takes_a_run_out_of_the_queue_at_once() -> None:
    """Before its coroutine hears of it: nobody is replaced for a run that is to stop, and who waits behind moves up."""
    desk = Desk(1)
    desk.ask(of("a"))
    second = desk.ask(of("b"))
    withdraw(second, StopRequested(StopCause.CANCEL))
    assert not desk.pool.entries and not second.waits_for_slots
    assert isinstance(await second.mailbox.take(), StopRequested)


async def test_max_queued_counts_those_who_wait() -> None:
    """Not those who run; and who is about to leave makes room."""
    desk = Desk(1, most=1)
    desk.ask(of("a"))
    assert desk.pools.refusal(of("b"), 0) is None
    desk.ask(of("b"))
    assert isinstance(desk.pools.refusal(of("c"), 0), Refuse)
    assert desk.pools.refusal(of("c"), 1) is None and desk.pool.refused == 1


async def test_closed_pools_give_nothing() -> None:
    """From the start of a shutdown on, also when slots become free."""
    desk = Desk(1)
    first, second = desk.ask(of("a")), desk.ask(of("b"))
    desk.pools.close()
    await desk.end(first)
    assert not second.granted and desk.pool.used == 0
    desk.pools.open()
    assert second.granted


JOBS = [of("allow"), of("wide", slots=3), of("forbid", ConcurrencyPolicy.FORBID, 2),
        of("replace", ConcurrencyPolicy.REPLACE, 2), of("two", max_instances=2)]
STEP = st.one_of(
    st.tuples(st.just("ask"), st.integers(0, len(JOBS) - 1)), st.tuples(st.just("end"), st.integers(0, 20)),
    st.tuples(st.just("stuck"), st.integers(0, 20)), st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("resize"), st.integers(3, 6)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=50))
def test_slots_add_up_whatever_happens(steps: list[tuple[str, int]]) -> None:
    """Runs come, end, get stuck, are cancelled while they wait, and the pool is resized: what is held is what the runs
    hold, nobody is given more than there is, policies hold, and in the end everybody has had a turn."""
    asyncio.run(_play(steps))


async def _play(steps: list[tuple[str, int]]) -> None:
    desk, alive = Desk(4), list[Run]()
    for what, number in steps:
        used_before, capacity = desk.pool.used, desk.pool.capacity
        running = [run for run in alive if run.granted]
        if what == "ask":
            alive.append(desk.ask(JOBS[number]))
        elif what in ("end", "stuck") and running:
            run = running[number % len(running)]
            await desk.end(run, confirmed=what == "end")
            if what == "end":
                alive.remove(run)
        elif what == "cancel" and len(running) < len(alive):
            run = [run for run in alive if not run.granted][number % (len(alive) - len(running))]
            withdraw(run, StopRequested(StopCause.CANCEL))
            await desk.end(run)
            alive.remove(run)
        elif what == "resize":
            desk.pools.configure([PoolSettings(name="p", slots=number)])
        assert desk.pool.used == sum(holding.slots for holding in desk.pool.holdings.values())
        assert desk.pool.used <= max(used_before, capacity, desk.pool.capacity)
        assert set(desk.pool.holdings) == {run.id for run in alive if run.granted}
        assert len([run for run in alive if run.granted and run.job.name == "forbid"]) <= 1
        assert len([run for run in alive if run.granted and run.job.name == "two"]) <= 2
    for _ in range(len(alive) + 1):
        for run in [run for run in alive if run.granted]:
            await desk.end(run)
            alive.remove(run)
    assert not alive and desk.pool.used == 0 and not desk.pool.entries


class FailingLedger:
    """Takes nothing; says whether it was asked before the run could start."""

    capabilities = SimpleNamespace(durable=True)

    def __init__(self) -> None:
        self.asked: list[RunRecord] = []

    async def keep(self, record: RunRecord) -> None:
        self.asked.append(record)
        raise StoreError("the disk is full")


@pytest.mark.parametrize("required", [True, False])
async def test_a_turn_that_cannot_be_written(required: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The store is told that the run waits no longer before it starts. Where it cannot be told: degrade starts it and
    says what a crash would do, fail-closed does not start it."""
    desk, ledger = Desk(1), FailingLedger()
    run = desk.ask(of("a"))
    run.mailbox.post(SlotsGiven(BEGIN))
    daemon: Any = SimpleNamespace(
        ledger=ledger, clock=CLOCK, intent_required=required, counters=SimpleNamespace(store_failures=0))

    async def until(run: Run, condition: Any, limit: Monotonic | None = None) -> bool:
        while not condition():
            message = await run.mailbox.take(limit)
            if message is None:
                return False
            run.learn(message)
        return True

    with caplog.at_level(logging.ERROR):
        assert await wait_for_slots(run, daemon, until) is not required
    assert [record.phase for record in ledger.asked] == [Phase.CLAIMED] and daemon.counters.store_failures == 1
    if required:
        assert run.fail_reason is not None and "fail-closed" in run.fail_reason and run.start_failed is not None
    else:
        assert "would have it started again" in caplog.text

"""Runs that are made ready before their instant: never early, never twice, given up when the instant goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from time import monotonic

import pytest
from msgspec.structs import replace

from sexton.daemon.ahead import Ahead
from sexton.daemon.jobs import Jobs
from sexton.daemon.pauses import Pauses
from sexton.daemon.scheduler import MANY, Scheduler
from sexton.daemon.timetable import occurrences_for
from sexton.execution.supervisors import Supervisors
from sexton.model.clock import Clock, Monotonic
from sexton.model.job import JobSpec, Place
from sexton.model.run import Outcome, RunRecord, StopCause, Trigger
from sexton.run.facilities import Facilities
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.run.registry import Registry
from sexton.schedule.agenda import Agenda, Due
from sexton.store.memory.store import MemoryStore

JOB = JobSpec(name="j", command=("true",), schedule="0 0 * * *", place=Place("t", 1, 1), capture_stderr=False)
MIDNIGHT = datetime(2030, 1, 2, tzinfo=UTC)
BEFORE = MIDNIGHT - timedelta(seconds=0.2)
DUE = Due("j", MIDNIGHT)


class World:
    """A daemon's scheduling side with a wall clock that the test sets."""

    def __init__(self) -> None:
        self.now = BEFORE
        self.records: list[RunRecord] = []
        self.store = MemoryStore()
        self.supervisors = Supervisors(None)
        clock = Clock(now=lambda: self.now, monotonic=lambda: Monotonic(monotonic()))
        self.registry = Registry()
        facilities = Facilities(
            ledger=self.store, supervisors=self.supervisors, registry=self.registry, clock=clock, mirror=None,
            output_files=None, on_recorded=lambda run, record: self.records.append(record),
        )
        self.launcher = Launcher(facilities, "node", "boot")
        self.jobs = Jobs()
        self.agenda = Agenda(BEFORE)
        self.ahead = Ahead(self.agenda, self.jobs, self.launcher, self.supervisors)
        self.scheduler = Scheduler(self.agenda, self.jobs, self.launcher, self.supervisors, clock,
                                   Pauses(self.store, clock, durable=False))
        self.put(JOB)

    def put(self, job: JobSpec) -> None:
        self.jobs.put(job)
        occurrences = occurrences_for(job)
        if occurrences is not None:
            self.agenda.add(job.name, occurrences, self.now)

    def one(self) -> Run:
        (run,) = self.registry.running("j")
        return run

    async def turn(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.store.open()
    yield made
    await made.supervisors.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(15):
        while not condition():
            await asyncio.sleep(0.005)


async def test_nothing_starts_before_the_gate_opens(world: World) -> None:
    """A run that is ready has its claim and no process; when the instant comes it starts, once."""
    await world.ahead.make_ready(MIDNIGHT)
    run = world.one()
    world.supervisors.prefill(1)
    await until(lambda: world.supervisors.counts["idle"] > 0)
    world.ahead.open(BEFORE)
    await world.turn()
    assert run.started is None and run.launch.scheduled_for == MIDNIGHT
    world.now = MIDNIGHT
    world.ahead.open(MIDNIGHT)
    assert world.ahead.has_begun(DUE) and not world.ahead.has_begun(DUE)
    await asyncio.wait_for(run.recorded.wait(), 15)
    assert run.outcome is Outcome.SUCCESS and len(world.records) == 1


async def test_a_removed_job_leaves_the_gate(world: World) -> None:
    """A job that a reload takes away just before its instant does not start at it, and the record says why."""
    await world.ahead.make_ready(MIDNIGHT)
    run = world.one()
    await world.turn()
    world.jobs.remove("j")
    world.agenda.remove("j")
    await world.ahead.look_again()
    world.ahead.open(MIDNIGHT)
    await asyncio.wait_for(run.recorded.wait(), 15)
    assert run.outcome is Outcome.CANCELLED and run.started is None and not world.ahead.has_begun(DUE)
    assert run.stop is not None and "just before its instant" in (run.stop.reason or "")


async def test_a_changed_job_is_launched_as_it_is_now(world: World) -> None:
    """The definition of the instant counts: the run that was made of the old one is given up."""
    await world.ahead.make_ready(MIDNIGHT)
    await world.turn()
    world.put(replace(JOB, command=("false",)))
    await world.ahead.look_again()
    world.ahead.open(MIDNIGHT)
    assert not world.ahead.has_begun(DUE)


async def test_a_clock_that_is_set_back_gives_the_runs_up(world: World) -> None:
    """The instant has gone away: nothing starts, and at the instant, when it comes again, the job is ready again."""
    await world.ahead.make_ready(MIDNIGHT)
    await world.turn()
    hour_before = MIDNIGHT - timedelta(hours=30)
    world.agenda.pop_due(hour_before)
    await world.ahead.look_again()
    await until(lambda: len(world.records) == 1)
    assert world.records[0].outcome is Outcome.CANCELLED
    await world.ahead.make_ready(MIDNIGHT - timedelta(days=1))
    assert world.one().launch.scheduled_for == MIDNIGHT - timedelta(days=1)


async def test_a_run_that_was_stopped_before_its_instant_does_not_count_for_it(world: World) -> None:
    """A cancel ends what there is; the occurrence that is still to come is decided when it comes."""
    await world.ahead.make_ready(MIDNIGHT)
    world.one().mailbox.post(StopRequested(StopCause.CANCEL))
    await until(lambda: len(world.records) == 1)
    world.ahead.open(MIDNIGHT)
    assert not world.ahead.has_begun(DUE)


async def test_a_job_that_runs_is_decided_at_the_instant(world: World) -> None:
    """Its run may end in time: nobody can know before."""
    world.put(replace(JOB, command=("sleep", "30")))
    run = world.launcher.launch(world.jobs.specs()[0], Trigger.MANUAL)
    assert isinstance(run, Run)
    await world.ahead.make_ready(MIDNIGHT)
    world.ahead.open(MIDNIGHT)
    assert not world.ahead.has_begun(DUE) and world.one() is run


async def test_many_jobs_of_one_instant_start_once_each_and_not_before_it(world: World) -> None:
    """The scheduler's own loop, over an instant at which many are due."""
    for number in range(MANY):
        world.put(replace(JOB, name=f"j{number}"))
    shift = MIDNIGHT - timedelta(seconds=0.5) - datetime.now(UTC)

    class Wall:
        def __get__(self, world: World, kind: type) -> datetime:
            return datetime.now(UTC) + shift

        def __set__(self, world: World, value: datetime) -> None: ...

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "now", Wall(), raising=False)
        task = asyncio.create_task(world.scheduler.run())
        await until(lambda: len(world.registry) > 0)
        assert world.now < MIDNIGHT
        await until(lambda: len(world.records) == MANY + 1)
        world.scheduler.stop()
        await task
    assert {record.outcome for record in world.records} == {Outcome.SUCCESS}
    assert len({record.launch.job for record in world.records}) == MANY + 1
    starts = [record.started_at for record in world.records if record.started_at is not None]
    assert len(starts) == MANY + 1 and min(starts) >= MIDNIGHT

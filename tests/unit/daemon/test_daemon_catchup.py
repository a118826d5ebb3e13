"""Making up for what was missed, when the store does not help: what is owed is put off, and not forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sexton.daemon import catchup as module
from sexton.daemon.catchup import DECIDED, NO_JOB, OWED, CatchUp
from sexton.daemon.jobs import Jobs
from sexton.daemon.pauses import Pauses
from sexton.model.clock import Clock, Monotonic
from sexton.model.errors import StoreError
from sexton.model.job import JobSpec, OnMissed, Place
from sexton.model.run import Launch, Outcome, Phase, RunRecord, Trigger
from sexton.run.background import Background
from sexton.run.facilities import Counters
from sexton.schedule.agenda import Skipped
from sexton.store.memory.store import MemoryStore
from sexton.store.port import JobHistory

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
CLOCK = Clock(now=lambda: NOON, monotonic=lambda: Monotonic(0.0))
JOB = JobSpec(name="j", command="true", schedule="0 * * * *", place=Place("t", 1, 1), on_missed=OnMissed.RUN_ALL)


class Store(MemoryStore):
    """Refuses to read as often as it is told."""

    def __init__(self, refusals: int = 0) -> None:
        super().__init__()
        self.refusals = refusals

    async def states(self, key: str) -> Mapping[str, str]:
        if self.refusals:
            self.refusals -= 1
            raise StoreError("the disk does not answer")
        return await super().states(key)


class SlowToNote(Store):
    """The note that the last occurrence is no longer owed takes its time when it is written for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = 0
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def put_state(self, job: str, key: str, value: str) -> None:
        self.empty += value == "[]"
        if self.empty == 2:
            self.reached.set()
            await self.go_on.wait()
        await super().put_state(job, key, value)


class Launches:
    """Takes launches down instead of running them; each has ended at once, or never."""

    def __init__(self) -> None:
        self.shutting_down = False
        self.ends = True
        self.intends = True
        self.occurrences: list[datetime] = []
        self.live: list[Any] = []
        self.background = Background()
        self.facilities = SimpleNamespace(counters=Counters(), registry=SimpleNamespace(of=lambda name: self.live))

    def launch(self, spec: JobSpec, trigger: Trigger, *, scheduled_for: datetime) -> Any:
        assert trigger is Trigger.CATCHUP
        self.occurrences.append(scheduled_for)
        ended = asyncio.Event()
        if self.ends:
            ended.set()
        self.intended = asyncio.Event()
        if self.intends:
            self.intended.set()
        return SimpleNamespace(intended=self.intended, recorded=ended, refusal=None)


def record(hour: int) -> RunRecord:
    at = NOON.replace(hour=hour)
    return RunRecord(launch=Launch(id=f"r{hour}", job="j", trigger=Trigger.SCHEDULE, node="n", scheduled_for=at,
                                   created_at=at), phase=Phase.RECORDED, outcome=Outcome.SUCCESS,
                     started_at=at, finished_at=at)


async def made(store: Store) -> tuple[CatchUp, Launches, Pauses]:
    await store.open()
    jobs, launches = Jobs(), Launches()
    jobs.put(JOB)
    pauses = Pauses(store, CLOCK, durable=True)
    return CatchUp(jobs, launches, pauses, store, CLOCK, durable=True), launches, pauses  # type: ignore[arg-type]


HISTORY = {"j": JobHistory(runs=(record(8),))}
OWED_HOURS = [NOON.replace(hour=hour) for hour in (9, 10, 11, 12)]


async def until_settled(look: Any) -> None:
    async with asyncio.timeout(5):
        while not look():
            await asyncio.sleep(0.001)


async def test_a_store_that_cannot_be_read_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refusals cost time and are counted; nothing is noted as decided before the answer, and what was owed at the
    start is made up for once, whatever the schedule has fired meanwhile."""
    monkeypatch.setattr(module, "READ_AGAIN_SECONDS", 0.02)
    store = Store(refusals=2)
    catchup, launches, _ = await made(store)
    later = Launch(id="r", job="j", trigger=Trigger.SCHEDULE, node="n", created_at=NOON,
                   scheduled_for=NOON + timedelta(hours=1))
    await catchup.start(HISTORY, [], NOON)
    freed = asyncio.Event()
    freed.set()
    launches.live.append(SimpleNamespace(launch=later, freed=freed))
    await catchup.note_decided()
    assert await store.get_state(NO_JOB, DECIDED) is None and not launches.occurrences
    await until_settled(lambda: len(launches.occurrences) == 4)
    assert launches.occurrences == OWED_HOURS and launches.facilities.counters.store_failures == 2
    await catchup.note_decided()
    assert await store.get_state(NO_JOB, DECIDED) == NOON.isoformat()


async def test_what_a_pause_holds_back_is_noted_at_once() -> None:
    """A daemon that dies while the backlog waits for the end of a pause has left it to the next one, although the
    watermark has passed it."""
    store = Store()
    catchup, launches, pauses = await made(store)
    await pauses.pause("j", NOON + timedelta(hours=3), None, None)
    await catchup.start(HISTORY, [], NOON - timedelta(minutes=30))
    await catchup.note_decided()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not launches.occurrences
    assert (await store.states(OWED))["j"].count("2026-05-01T") == 3
    catchup.close()
    again, launches, pauses = await made(store)
    await pauses.resume("j", None)
    await again.start(HISTORY, [], NOON)
    await until_settled(lambda: len(launches.occurrences) >= 3)
    assert launches.occurrences[:3] == OWED_HOURS[:3]


async def test_what_is_owed_waits_until_the_job_is_idle() -> None:
    """Forbid would swallow a run that is launched beside another: while one has its place nothing is launched, and each
    owed run waits for the record of the one before."""
    catchup, launches, _ = await made(Store())
    freed = asyncio.Event()
    other = Launch(id="r", job="j", trigger=Trigger.MANUAL, node="n", created_at=NOON)
    launches.live.append(SimpleNamespace(launch=other, freed=freed))
    await catchup.start(HISTORY, [], NOON)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not launches.occurrences and catchup._owed["j"] == OWED_HOURS
    launches.ends = False
    freed.set()
    await until_settled(lambda: launches.occurrences)
    for _ in range(50):
        await asyncio.sleep(0)
    assert launches.occurrences == OWED_HOURS[:1]
    catchup.close()


async def test_an_occurrence_is_owed_until_the_ledger_has_its_run() -> None:
    """A daemon that dies after it has launched a missed run and before the intent is written has lost nothing: the
    store still says that it is owed. As soon as it is written, it is owed no longer."""
    store = Store()
    catchup, launches, _ = await made(store)
    launches.intends = launches.ends = False
    await catchup.start(HISTORY, [], NOON)
    await until_settled(lambda: launches.occurrences)
    assert (await store.states(OWED))["j"].count("2026-05-01T") == 4
    launches.intended.set()
    await asyncio.sleep(0)
    await until_settled(lambda: len(catchup._owed.get("j", ())) == 3)
    for _ in range(5):
        await asyncio.sleep(0)
    assert (await store.states(OWED))["j"].count("2026-05-01T") == 3
    catchup.close()


async def test_what_has_run_is_not_made_up_for_again() -> None:
    """Of what a crash left noted as owed, that which has a run that ended, or lives on, is done."""
    store = Store()
    catchup, launches, _ = await made(store)
    launches.ends = False
    await store.put_state("j", OWED, "[" + ",".join(f'"2026-05-01T{hour:02}:00:00Z"' for hour in (8, 10, 12)) + "]")
    freed = asyncio.Event()
    freed.set()
    launches.live.append(SimpleNamespace(launch=record(10).launch, freed=freed))
    await catchup.start({"j": JobHistory(runs=(record(8),))}, [], NOON.replace(hour=8))
    await until_settled(lambda: launches.occurrences)
    assert launches.occurrences == [NOON]
    catchup.close()


async def test_a_resumed_job_catches_up_at_once() -> None:
    """What a pause has held back is made up for when the pause is ended, and not a minute later."""
    catchup, launches, pauses = await made(Store())
    await pauses.pause("j", NOON + timedelta(hours=1), None, None)
    await catchup.start({"j": JobHistory(runs=(record(8),))}, [], NOON)
    await until_settled(lambda: catchup._owed.get("j"))
    await asyncio.sleep(0)
    assert not launches.occurrences
    await pauses.resume("j", None)
    await until_settled(lambda: launches.occurrences)


async def test_what_is_missed_while_the_last_is_noted_is_made_up_for() -> None:
    """A pass that comes too late while the store is told that nothing is owed any more: it is owed all the same."""
    store = SlowToNote()
    catchup, launches, _ = await made(store)
    await catchup.start(HISTORY, [], NOON)
    async with asyncio.timeout(5):
        await store.reached.wait()
    later = NOON + timedelta(hours=1)
    assert catchup.fell_behind(Skipped(job="j", count=1, exact=True, first=later, last=later, late_by=60.0))
    store.go_on.set()
    await until_settled(lambda: launches.occurrences == [*OWED_HOURS, later] and not catchup._owed.get("j"))


async def test_what_is_missed_while_a_run_is_waited_for_is_noted_at_once() -> None:
    """A crash before the wait is over must not lose it: what has been decided is noted up to that instant."""
    store = Store()
    catchup, launches, _ = await made(store)
    other = Launch(id="r", job="j", trigger=Trigger.MANUAL, node="n", created_at=NOON)
    launches.live.append(SimpleNamespace(launch=other, freed=asyncio.Event()))
    await catchup.start(HISTORY, [], NOON)
    for _ in range(5):
        await asyncio.sleep(0)
    later = NOON + timedelta(hours=1)
    assert catchup.fell_behind(Skipped(job="j", count=1, exact=True, first=later, last=later, late_by=60.0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert (await store.states(OWED))["j"].count("T13:00:00") == 1 and not launches.occurrences
    catchup.close()


async def test_what_was_taken_over_and_has_ended_is_not_made_up_for() -> None:
    """A run that outlived the last daemon and is recorded between the look at the histories and ours: it has fired its
    occurrence, and all before it was decided."""
    catchup, launches, _ = await made(Store())
    await catchup.start(HISTORY, [], NOON, [record(11).launch])
    await until_settled(lambda: launches.occurrences == OWED_HOURS[3:] and not catchup._owed.get("j"))

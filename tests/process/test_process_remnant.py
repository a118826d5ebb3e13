"""What an earlier daemon could not terminate, with a real process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from time import monotonic

import pytest
from msgspec.structs import replace

from sexton.admission.decide import Refusal, Refuse
from sexton.execution import processes
from sexton.model.clock import Clock, Monotonic
from sexton.model.job import ConcurrencyPolicy, JobSpec, Place, WhenUnconfirmed
from sexton.model.run import Gone, GoneState, Launch, Outcome, Phase, RunRecord, Stop, StopCause, Survivor, Trigger
from sexton.run.facilities import Facilities
from sexton.run.launch import Launcher
from sexton.run.mailbox import AbandonRequested
from sexton.run.registry import Registry
from sexton.run.remnant import find_remnants
from sexton.store.memory.store import MemoryStore
from sexton.store.port import JobHistory

CLOCK = Clock(now=lambda: datetime.now(UTC), monotonic=lambda: Monotonic(monotonic()))
JOB = JobSpec(name="j", command=("true",), schedule="@daily", place=Place("t", 1, 1),
              concurrency_policy=ConcurrencyPolicy.FORBID)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    made = subprocess.Popen(["sleep", "60"])
    yield made
    made.kill()
    made.wait()


def record_of(pid: int, ticks: int | None) -> RunRecord:
    launch = Launch(id="r", job="j", trigger=Trigger.SCHEDULE, node="n", created_at=CLOCK.now(), boot_id="boot")
    gone = Gone(state=GoneState.SURVIVORS, survivors=(Survivor(pid=pid, started_ticks=ticks),))
    return RunRecord(launch=launch, phase=Phase.RECORDED, outcome=Outcome.FAILURE, pid=pid, gone=gone,
                     stop=Stop(cause=StopCause.TIMEOUT, requested_at=CLOCK.now()))


async def launcher_of(records: list[RunRecord]) -> tuple[Launcher, MemoryStore]:
    store = MemoryStore()
    await store.open()
    facilities = Facilities(
        ledger=store, supervisors=None,  # type: ignore[arg-type]
        registry=Registry(), clock=CLOCK, mirror=None, output_files=None,
        on_recorded=lambda run, record: None, on_amended=lambda run, record: records.append(record))
    return Launcher(facilities, "n", "boot"), store


@pytest.mark.parametrize("how", ["it ends", "abandoned"])
async def test_the_place_is_kept_until_the_process_is_gone(process: subprocess.Popen[bytes], how: str) -> None:
    """A later daemon refuses the next run as the earlier one did, and amends the record when the place is free."""
    amended: list[RunRecord] = []
    launcher, store = await launcher_of(amended)
    record = record_of(process.pid, processes.start_ticks(process.pid))
    (remnant,) = find_remnants({"j": JobHistory(runs=(record,))}, [JOB], "boot", CLOCK)
    launcher.keep_place_of(remnant)
    answer = launcher.launch(JOB, Trigger.SCHEDULE)
    assert isinstance(answer, Refuse) and answer.refusal is Refusal.UNCONFIRMED
    if how == "it ends":
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    else:
        remnant.mailbox.post(AbandonRequested("known", "ada"))
    async with asyncio.timeout(10):
        await remnant.freed.wait()
        while not amended:
            await asyncio.sleep(0.01)
    assert len(launcher.facilities.registry) == 0
    (made,) = amended
    assert made.gone is not None and await store.get("r") == made
    by_itself = how == "it ends"
    assert (made.gone.state is GoneState.PROVEN) == by_itself and (made.abandoned is None) == by_itself


async def test_a_stranger_with_its_pid_keeps_no_place(process: subprocess.Popen[bytes]) -> None:
    """Pid and start time together are the process: another start time is another process, and the run is gone."""
    amended: list[RunRecord] = []
    launcher, _ = await launcher_of(amended)
    record = record_of(process.pid, 12345)
    (remnant,) = find_remnants({"j": JobHistory(runs=(record,))}, [JOB], "boot", CLOCK)
    launcher.keep_place_of(remnant)
    async with asyncio.timeout(10):
        while not amended:
            await asyncio.sleep(0.01)
    assert amended[0].gone is not None and amended[0].gone.state is GoneState.PROVEN
    assert amended[0].stop is not None and amended[0].stop.confirmed_at is not None


async def test_who_keeps_no_place(process: subprocess.Popen[bytes]) -> None:
    """Another boot, release, Allow, an abandoned run, one that ended by itself: nothing to keep."""
    record = record_of(process.pid, processes.start_ticks(process.pid))

    def found(record: RunRecord, job: JobSpec = JOB, boot: str = "boot") -> bool:
        return bool(find_remnants({"j": JobHistory(runs=(record,))}, [job], boot, CLOCK))

    assert found(record)
    assert not found(record, boot="another")
    assert not found(record, replace(JOB, when_unconfirmed=WhenUnconfirmed.RELEASE))
    assert not found(record, replace(JOB, concurrency_policy=ConcurrencyPolicy.ALLOW))
    assert not found(replace(record, stop=None, outcome=Outcome.SUCCESS))
    assert found(replace(record, stop=None, outcome=Outcome.UNKNOWN))

"""What follows a run may fail: it costs neither the place of the run nor the other runs, and is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from sexton.execution.supervisors import Supervisors
from sexton.model.clock import Clock, Monotonic
from sexton.model.job import ConcurrencyPolicy, JobSpec, Place
from sexton.model.run import Outcome, RunRecord, Trigger
from sexton.run.facilities import Facilities
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.run.registry import Registry
from sexton.store.memory.store import MemoryStore

CLOCK = Clock(now=lambda: datetime.now(UTC), monotonic=lambda: Monotonic(time.monotonic()))


@pytest.fixture
async def supervisors() -> AsyncIterator[Supervisors]:
    made = Supervisors(None)
    yield made
    await made.close()


def forbidden(name: str) -> JobSpec:
    return JobSpec(name=name, command=("/bin/true",), schedule="0 0 1 1 *", place=Place("t", 1, 1),
                   capture_stderr=False, concurrency_policy=ConcurrencyPolicy.FORBID)


async def test_a_bug_after_one_run_strands_no_other(supervisors: Supervisors) -> None:
    """Of runs that end together the finishing of one raises: all are recorded, all may start again, the bug is counted
    each time."""
    finished: list[str] = []

    def finish(run: Run, record: RunRecord) -> None:
        if run.job.name == "b":
            raise ZeroDivisionError("a bug")
        finished.append(run.job.name)

    store = MemoryStore()
    await store.open()
    facilities = Facilities(ledger=store, supervisors=supervisors, registry=Registry(), clock=CLOCK, mirror=None,
                            output_files=None, on_recorded=finish)
    launcher = Launcher(facilities, "node", "boot")
    for _ in range(2):
        runs = [launcher.launch(forbidden(name), Trigger.SCHEDULE) for name in "abc"]
        for run in runs:
            assert isinstance(run, Run), "the place is free again"
            await asyncio.wait_for(run.recorded.wait(), 15)
            assert run.outcome is Outcome.SUCCESS
    assert sorted(finished) == ["a", "a", "c", "c"] and facilities.counters.internal_errors == 2
    assert len(facilities.registry) == 0

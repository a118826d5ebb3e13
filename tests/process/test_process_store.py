"""A store that hangs or fails delays nobody for long, and is never silent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from sexton.execution.supervisors import Supervisors
from sexton.model.clock import Clock, Monotonic
from sexton.model.errors import StoreError
from sexton.model.job import JobSpec, Place
from sexton.model.run import Launch, Outcome, RunRecord, Trigger
from sexton.run import conduct as conduct_module
from sexton.run import intent as intent_module
from sexton.run.facilities import Facilities
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.run.registry import Registry
from sexton.store.memory.store import MemoryStore
from sexton.store.port import Capabilities

JOB = JobSpec(name="j", command=("/bin/true",), schedule="0 0 1 1 *", place=Place("t", 1, 1), capture_stderr=False)
CLOCK = Clock(now=lambda: datetime.now(UTC), monotonic=lambda: Monotonic(time.monotonic()))


class HangingStore(MemoryStore):
    """A disk that does not answer when an intent is written."""

    capabilities = Capabilities(durable=True)

    async def intend(self, launch: Launch) -> None:
        await asyncio.Event().wait()


class FailingStore(MemoryStore):
    """A disk that is full."""

    capabilities = Capabilities(durable=True)

    async def intend(self, launch: Launch) -> None:
        raise StoreError("disk full")

    async def record(self, record: RunRecord) -> None:
        raise StoreError("disk full")


@pytest.fixture
async def supervisors() -> AsyncIterator[Supervisors]:
    made = Supervisors(None)
    yield made
    await made.close()


async def launch(supervisors: Supervisors, store: MemoryStore, *, required: bool = False) -> tuple[Run, Facilities]:
    await store.open()
    facilities = Facilities(
        ledger=store, supervisors=supervisors, registry=Registry(), clock=CLOCK, mirror=None, output_files=None,
        on_recorded=lambda run, record: None, intent_required=required,
    )
    run = Launcher(facilities, "node", "boot").launch(JOB, Trigger.MANUAL)
    assert isinstance(run, Run)
    await asyncio.wait_for(run.recorded.wait(), 15)
    return run, facilities


async def test_a_store_that_hangs_is_waited_for_a_moment(
    supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """degrade: the run starts without its intent after a bounded wait, and that is counted."""
    monkeypatch.setattr(intent_module, "INTENT_SECONDS", 0.05)
    run, facilities = await launch(supervisors, HangingStore())
    assert run.outcome is Outcome.SUCCESS and facilities.counters.store_failures == 1


async def test_fail_closed_starts_nothing_that_the_ledger_does_not_know(
    supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fail-closed: without an intent there is no process, and the run says why."""
    monkeypatch.setattr(intent_module, "REQUIRED_INTENT_SECONDS", 0.05)
    run, facilities = await launch(supervisors, HangingStore(), required=True)
    assert run.outcome is Outcome.FAILURE and run.exit_code == 127 and run.started is None
    assert "fail-closed" in (run.fail_reason or "") and facilities.counters.store_failures == 1


async def test_a_full_disk_costs_the_record_and_not_the_run(supervisors: Supervisors) -> None:
    """A store that refuses both writes: the run runs, both refusals are counted, and the run leaves the registry."""
    run, facilities = await launch(supervisors, FailingStore())
    assert run.outcome is Outcome.SUCCESS and facilities.counters.store_failures == 2 and len(facilities.registry) == 0


async def test_a_bug_while_a_run_lives_ends_its_processes(
    supervisors: Supervisors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception in the middle of a run becomes an internal error in its record, and nothing of it is left."""

    async def broken(run: Run) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(conduct_module, "_watch", broken)
    monkeypatch.setitem(globals(), "JOB", JobSpec(
        name="j", command=("sleep", "60"), schedule="0 0 1 1 *", place=Place("t", 1, 1), capture_stderr=False))
    run, facilities = await launch(supervisors, MemoryStore())
    assert facilities.counters.internal_errors == 1 and run.emptied is not None
    assert run.outcome is Outcome.FAILURE and "internal error" in (run.fail_reason or "")

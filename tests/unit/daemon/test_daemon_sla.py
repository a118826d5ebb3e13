"""What is late, as the watch of the promises sees it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sexton.daemon.jobs import Jobs
from sexton.daemon.pauses import Pauses
from sexton.daemon.sla import SlaWatch
from sexton.model.clock import Clock, Monotonic
from sexton.model.job import JobSpec, Place
from sexton.model.run import Trigger
from sexton.model.sla import Sla, SlaCheck
from sexton.store.memory.store import MemoryStore

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DUE = NOON - timedelta(minutes=5)
JOB = JobSpec(name="j", command="true", schedule="*/5 * * * *", place=Place("t", 1, 1), sla=Sla(late_after=60.0))


def run(*, started: bool, scheduled: bool = True) -> Any:
    launch = SimpleNamespace(trigger=Trigger.SCHEDULE if scheduled else Trigger.MANUAL, scheduled_for=DUE)
    return SimpleNamespace(launch=launch, over=False, started=object() if started else None, unconfirmed=False,
                           started_at=DUE if started else None, counts_as_running=True, stop=None)


@pytest.mark.parametrize(("live", "upcoming", "late"), [
    ([], NOON + timedelta(minutes=1), False),
    ([run(started=True)], NOON + timedelta(minutes=1), False),
    ([run(started=False)], NOON + timedelta(minutes=1), True),
    ([run(started=False, scheduled=False)], NOON + timedelta(minutes=1), False),
    ([], DUE, True),
])
async def test_only_what_is_still_to_start_is_late(live: list[Any], upcoming: datetime, late: bool) -> None:
    """An occurrence that Forbid or a pause has dropped leaves nothing to wait for, and is not late for ever; one that
    waits, or that the scheduler has not come to, is."""
    clock = Clock(now=lambda: NOON, monotonic=lambda: Monotonic(0.0))
    jobs = Jobs()
    jobs.put(JOB)
    registry: Any = SimpleNamespace(of=lambda name: live)
    watch = SlaWatch(jobs, registry, Pauses(MemoryStore(), clock, durable=False), clock, lambda name: upcoming)
    for _ in range(2):
        watch.look()
    assert [breach.check for breach in watch.of("j")] == ([SlaCheck.LATE] if late else [])
    assert watch.count.get(("j", SlaCheck.LATE), 0) == late

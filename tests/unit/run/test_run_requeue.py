"""What becomes of a run that an earlier daemon left in a queue. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from sexton.model.job import JobSpec, Place
from sexton.model.pool import PoolUse, Ticket
from sexton.model.run import GoneState, Launch, Outcome, Phase, Trigger, intent_of
from sexton.run.identity import definition_of
from sexton.run.requeue import settle

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = JobSpec(name="j", command="true", schedule="@daily", place=Place("a.yml", 1, 1), pool=PoolUse(name="p"))
RECORD = intent_of(Launch(
    id="r", job="j", trigger=Trigger.SCHEDULE, node="n", created_at=NOW, ticket=Ticket(
        pool="p", slots=1, priority=0, since=NOW, expires_at=NOW + timedelta(seconds=60),
        definition=definition_of(JOB),
    ),
))


def test_it_waits_on() -> None:
    """The same job, wherever it stands now, within its time."""
    assert RECORD.phase is Phase.QUEUED
    assert settle(RECORD, JOB, NOW + timedelta(seconds=59)) is None
    assert settle(RECORD, replace(JOB, place=Place("b.yml", 9, 9)), NOW) is None


@pytest.mark.parametrize(("job", "seconds", "outcome", "said"), [
    (None, 0, Outcome.CANCELLED, "not there any more"),
    (replace(JOB, enabled=False), 0, Outcome.CANCELLED, "disabled"),
    (replace(JOB, command="false"), 0, Outcome.CANCELLED, "changed"),
    (JOB, 60, Outcome.SKIPPED, "queueTimeout"),
    (None, 60, Outcome.CANCELLED, "not there any more"),
])
def test_it_is_settled(job: JobSpec | None, seconds: int, outcome: Outcome, said: str) -> None:
    """With the reason, and the proof that nothing was started."""
    record = settle(RECORD, job, NOW + timedelta(seconds=seconds))
    assert record is not None and record.outcome is outcome and said in (record.fail_reason or "")
    assert record.phase is Phase.RECORDED and record.gone is not None and record.gone.state is GoneState.PROVEN
    assert (record.stop is not None) == (outcome is Outcome.CANCELLED)

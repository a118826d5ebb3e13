"""What is remembered of a job's runs: which of them is the last."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sexton.daemon.jobs import JobEntry
from sexton.model.job import JobSpec, Place
from sexton.model.run import Launch, Outcome, Phase, RunRecord, Trigger
from sexton.store.port import JobHistory

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
JOB = JobSpec(name="j", command="true", schedule="0 * * * *", place=Place("t", 1, 1))


def record(name: str, ended: float, outcome: Outcome) -> RunRecord:
    at = NOON + timedelta(seconds=ended)
    return RunRecord(launch=Launch(id=name, job="j", trigger=Trigger.MANUAL, node="n", created_at=NOON),
                     phase=Phase.RECORDED, outcome=outcome, started_at=NOON, finished_at=at)


def test_the_last_run_is_the_one_that_ended_last() -> None:
    """Records that arrive in another order change nothing, for the view and for onlyIfLastSucceeded alike; of two that
    ended together it is the one that was recorded later; what was skipped has not been launched."""
    entry = JobEntry(JOB)
    for name, ended, outcome in (("late", 9, Outcome.FAILURE), ("early", 3, Outcome.SUCCESS)):
        entry.remember(record(name, ended, outcome))
    assert entry.last_run is not None and entry.last_run.launch.id == "late"
    entry.remember(record("same", 9, Outcome.SUCCESS))
    entry.remember(record("skipped", 12, Outcome.SKIPPED))
    assert entry.last_run is not None and entry.last_run.launch.id == "skipped"
    assert entry.last_launched is not None and entry.last_launched.launch.id == "same"


def test_a_run_that_is_recorded_while_the_past_is_read_is_remembered_once() -> None:
    """One that outlived the last daemon may be recorded before the histories of earlier ones are taken up."""
    entry = JobEntry(JOB)
    older, late = (record(name, ended, Outcome.SUCCESS) for name, ended in (("older", 3), ("late", 9)))
    entry.remember(late)
    entry.recall(JobHistory(runs=(older, late)))
    assert [known.launch.id for known in entry.recent] == ["older", "late"]

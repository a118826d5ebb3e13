"""When a failure is tried again: the rules as tables."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sexton.model.retry import RetryOn, RetryPolicy
from sexton.model.run import Launch, Outcome, Phase, RunRecord, Stop, StopCause, Trigger
from sexton.outcome.retry import another, delay_before, failed_of

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def record(outcome: Outcome | None, *, pid: int | None = 7, cause: StopCause | None = None) -> RunRecord:
    launch = Launch(id="r", job="j", trigger=Trigger.SCHEDULE, node="n", created_at=NOW)
    stop = Stop(cause=cause, requested_at=NOW) if cause else None
    return RunRecord(launch=launch, phase=Phase.RECORDED, outcome=outcome, pid=pid, stop=stop)


@pytest.mark.parametrize(("made", "expected"), [
    (record(Outcome.SUCCESS), None),
    (record(Outcome.CANCELLED, cause=StopCause.CANCEL), None),
    (record(Outcome.CANCELLED, cause=StopCause.SHUTDOWN), None),
    (record(Outcome.REPLACED, cause=StopCause.REPLACED), None),
    (record(Outcome.FAILURE), RetryOn.FAILURE),
    (record(Outcome.FAILURE, cause=StopCause.TIMEOUT), RetryOn.TIMEOUT),
    (record(Outcome.FAILURE, cause=StopCause.LIMITS), RetryOn.LIMITS),
    (record(Outcome.FAILURE, pid=None), RetryOn.NOT_STARTED),
    (record(Outcome.UNKNOWN), RetryOn.UNKNOWN),
])
def test_what_a_run_failed_of(made: RunRecord, expected: RetryOn | None) -> None:
    """Whoever was stopped by somebody has not failed; a timeout, a limit and a failed start have, each by its name."""
    assert failed_of(made) is expected


@pytest.mark.parametrize(("retry", "expected"), [(1, 2.0), (2, 6.0), (3, 18.0), (4, 20.0), (400, 20.0), (10**6, 20.0)])
def test_delays_grow_up_to_the_maximum(retry: int, expected: float) -> None:
    """initialDelay, then times backoffMultiplier, never above maximumDelay, however many there were."""
    policy = RetryPolicy(maximum_retries=-1, initial_delay=2.0, maximum_delay=20.0, backoff_multiplier=3.0)
    assert delay_before(policy, retry, 0.7) == expected


def test_jitter_only_shortens() -> None:
    """A share of the delay is left to chance; the maximum stays the maximum."""
    policy = RetryPolicy(initial_delay=10.0, jitter=0.5)
    assert [delay_before(policy, 1, chance) for chance in (0.0, 0.5, 1.0)] == [10.0, 7.5, 5.0]


@pytest.mark.parametrize(("most", "done", "expected"), [
    (0, 0, False), (1, 0, True), (1, 1, False), (3, 2, True), (3, 3, False), (-1, 10**6, True),
])
def test_so_many_and_no_more(most: int, done: int, expected: bool) -> None:
    """maximumRetries counts retries and not attempts; -1 is without end."""
    assert another(RetryPolicy(maximum_retries=most), RetryOn.FAILURE, done, 1.0, 0.0) is expected


def test_only_what_is_to_be_retried() -> None:
    """`on` names the causes; a run whose end was not seen is not among them by default: it may have done its work."""
    assert not another(RetryPolicy(maximum_retries=5), RetryOn.UNKNOWN, 0, 1.0, 0.0)
    only = RetryPolicy(maximum_retries=5, on=(RetryOn.TIMEOUT,))
    assert another(only, RetryOn.TIMEOUT, 0, 1.0, 0.0) and not another(only, RetryOn.FAILURE, 0, 1.0, 0.0)


def test_a_deadline_over_all_attempts() -> None:
    """A retry must begin within it."""
    policy = RetryPolicy(maximum_retries=-1, deadline=60.0)
    assert another(policy, RetryOn.FAILURE, 3, 10.0, 50.0) and not another(policy, RetryOn.FAILURE, 3, 10.1, 50.0)

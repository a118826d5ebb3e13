"""Whether a run that has ended is tried again, and when. Pure."""

from __future__ import annotations

from enum import Enum

from sexton.model.retry import RetryOn, RetryPolicy
from sexton.model.run import Outcome, RunRecord, StopCause

FOREVER = -1
NO_LIMIT = 1e9


class Fate(Enum):
    """What a recorded run means for its job."""

    FINE = "fine"
    """Nothing is to be tried again, and nobody need be told of a failure."""
    RETRY = "retry"
    """It failed, and another attempt will follow."""
    FINAL = "final"
    """It failed, and no attempt will follow."""


def failed_of(record: RunRecord) -> RetryOn | None:
    """What the run failed of; None for a run that did not fail. A run that somebody stopped has not failed."""
    match record.outcome:
        case Outcome.UNKNOWN:
            return RetryOn.UNKNOWN
        case Outcome.FAILURE:
            pass
        case _:
            return None
    if record.stop is not None and record.stop.cause is StopCause.TIMEOUT:
        return RetryOn.TIMEOUT
    if record.stop is not None and record.stop.cause is StopCause.LIMITS:
        return RetryOn.LIMITS
    return RetryOn.NOT_STARTED if record.pid is None else RetryOn.FAILURE


def delay_before(policy: RetryPolicy, retry: int, chance: float) -> float:
    """Seconds to wait before retry number `retry` (1 is the first). `chance`, 0 to 1, decides how much of the jitter is
    taken off."""
    try:
        grown = policy.initial_delay * policy.backoff_multiplier ** (retry - 1)
    except OverflowError:
        grown = policy.maximum_delay
    return min(grown, policy.maximum_delay) * (1.0 - policy.jitter * chance)


def another(policy: RetryPolicy, failed: RetryOn, retries: int, delay: float, elapsed: float) -> bool:
    """Whether one more retry follows after `retries` of them. `elapsed` seconds have passed since the first attempt
    began; a retry after `delay` more must still begin within the policy's deadline."""
    if failed not in policy.on:
        return False
    if policy.maximum_retries != FOREVER and retries >= policy.maximum_retries:
        return False
    return elapsed + delay <= (NO_LIMIT if policy.deadline is None else policy.deadline)

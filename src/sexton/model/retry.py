"""When a failed run is tried again, and what is known of a job's ladder of attempts."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

import msgspec


class RetryOn(Enum):
    """What a run can fail of, as `onFailure.retry.on` names it."""

    FAILURE = "failure"
    """The command ended and failsWhen calls that a failure, or its verification failed."""
    TIMEOUT = "timeout"
    NOT_STARTED = "not-started"
    LIMITS = "limits"
    UNKNOWN = "unknown"
    """Its end was not seen: it may have done its work."""


BY_DEFAULT = (RetryOn.FAILURE, RetryOn.TIMEOUT, RetryOn.NOT_STARTED, RetryOn.LIMITS)


class RetryPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`onFailure.retry`. The delay before retry k is initialDelay x backoffMultiplier^(k-1), at most maximumDelay."""

    maximum_retries: int = 0
    """-1: without end."""
    initial_delay: float = 1.0
    maximum_delay: float = 300.0
    backoff_multiplier: float = 2.0
    jitter: float = 0.0
    """The share of each delay, 0 to 1, that chance may take off it."""
    on: tuple[RetryOn, ...] = BY_DEFAULT
    manual: bool = False
    """Whether a run that somebody started by hand is retried, too."""
    deadline: float | None = None
    """Seconds from the start of the first attempt after which none is begun."""


class PendingRetry(msgspec.Struct, frozen=True, kw_only=True):
    """A retry that waits for its time: what a later daemon needs to know of it."""

    attempt: int
    """Of the run that it will be: 2 for the first retry."""
    not_before: datetime
    delay: float
    occurrence: datetime | None
    """The scheduled instant that all attempts are for; None for a run that no schedule asked for."""
    began_at: datetime
    """When the first attempt was launched."""
    after: str
    """The id of the run that failed."""
    definition: str
    """Digest of the job's definition: after a restart a changed job begins anew."""


class RetryState(msgspec.Struct, frozen=True, kw_only=True):
    """What the store keeps for a job: a pending retry, or why there is none any more."""

    pending: PendingRetry | None = None
    settled: str | None = None

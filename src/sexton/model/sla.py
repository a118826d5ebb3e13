"""What is promised of a job, and what of it is broken."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

import msgspec


class Sla(msgspec.Struct, frozen=True, kw_only=True):
    """`sla`. Seconds; None is no promise."""

    max_time_since_success: float | None = None
    late_after: float | None = None
    max_runtime: float | None = None


class SlaCheck(Enum):
    SINCE_SUCCESS = "maxTimeSinceSuccess"
    LATE = "lateAfter"
    RUNTIME = "maxRuntime"
    TERMINATION = "termination"
    """A run that was stopped is not proven gone."""


class Breach(msgspec.Struct, frozen=True, kw_only=True):
    """A promise that is broken now."""

    check: SlaCheck
    since: datetime
    """When it was first seen to be broken."""
    observed_seconds: float
    threshold_seconds: float

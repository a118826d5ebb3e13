"""Which promises of a job are broken at an instant. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from sexton.model.pause import Pause
from sexton.model.sla import Sla, SlaCheck


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the job."""

    last_success: datetime
    """Or when the job was first seen, for one that has never succeeded."""
    overdue: Sequence[datetime] = ()
    """Occurrences that are past and of which no process has started, without those that were refused or skipped."""
    started: Sequence[datetime] = ()
    """When the runs started that have not ended."""
    stopped: Sequence[datetime] = ()
    """When the runs were asked to stop that could not be terminated."""
    pause: Pause | None = None
    """The latest one, also when it is over."""


def broken(sla: Sla, seen: Seen, now: datetime) -> dict[SlaCheck, tuple[float, float]]:
    """The promises that are broken, each with the seconds that were observed and those that were promised."""
    found: dict[SlaCheck, tuple[float, float]] = {}

    def look(check: SlaCheck, instants: Sequence[datetime], promised: float | None) -> None:
        if promised is not None and instants:
            observed = (now - min(instants)).total_seconds() - _paused(seen.pause, min(instants), now)
            if observed > promised:
                found[check] = (observed, promised)

    look(SlaCheck.SINCE_SUCCESS, [seen.last_success], sla.max_time_since_success)
    look(SlaCheck.LATE, seen.overdue, sla.late_after)
    if sla.max_runtime is not None and seen.started:
        observed = (now - min(seen.started)).total_seconds()
        if observed > sla.max_runtime:
            found[SlaCheck.RUNTIME] = (observed, sla.max_runtime)
    if seen.stopped:
        found[SlaCheck.TERMINATION] = ((now - min(seen.stopped)).total_seconds(), 0.0)
    return found


def _paused(pause: Pause | None, since: datetime, now: datetime) -> float:
    """Seconds of the time from `since` to `now` in which nothing was wanted of the job."""
    if pause is None:
        return 0.0
    return max(0.0, (min(pause.until, now) - max(pause.since, since)).total_seconds())

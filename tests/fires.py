"""The fires of a schedule as a list, for tests to compare."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from sexton.schedule.occurrences import Occurrences, to_instant, to_seconds


def fires(schedule: Occurrences, after: datetime, until: datetime, limit: int) -> list[datetime]:
    """Those in (after, until], the earliest `limit` of them."""
    found = schedule.seconds_between(to_seconds(after), to_seconds(until))
    return [to_instant(second) for second in islice(found, limit)]

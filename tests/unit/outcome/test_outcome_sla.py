"""Which promises are broken: the rules as tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sexton.model.pause import Pause
from sexton.model.sla import Sla, SlaCheck
from sexton.outcome.sla import Seen, broken

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


ALL = Sla(max_time_since_success=100.0, late_after=10.0, max_runtime=50.0)


@pytest.mark.parametrize(("seen", "expected"), [
    (Seen(last_success=ago(100)), {}),
    (Seen(last_success=ago(101)), {SlaCheck.SINCE_SUCCESS: (101.0, 100.0)}),
    (Seen(last_success=NOW, overdue=[ago(3), ago(11)]), {SlaCheck.LATE: (11.0, 10.0)}),
    (Seen(last_success=NOW, overdue=[ago(10)]), {}),
    (Seen(last_success=NOW, started=[ago(20), ago(51)]), {SlaCheck.RUNTIME: (51.0, 50.0)}),
    (Seen(last_success=NOW, stopped=[ago(7)]), {SlaCheck.TERMINATION: (7.0, 0.0)}),
    (Seen(last_success=ago(150), pause=Pause(since=ago(120), until=ago(60))), {}),
    (Seen(last_success=ago(161), pause=Pause(since=ago(120), until=ago(60))), {SlaCheck.SINCE_SUCCESS: (101.0, 100.0)}),
    (Seen(last_success=ago(150), pause=Pause(since=ago(60), until=NOW + timedelta(hours=1))), {}),
])
def test_each_promise(seen: Seen, expected: dict[SlaCheck, tuple[float, float]]) -> None:
    """Broken beyond its threshold, not at it; by the oldest; paused time does not count; what could not be terminated
    counts at once."""
    assert broken(ALL, seen, NOW) == expected


def test_what_is_not_promised_is_not_broken() -> None:
    """None is no promise."""
    assert broken(Sla(), Seen(last_success=ago(1e9), overdue=[ago(1e9)], started=[ago(1e9)]), NOW) == {}

"""What `check` says of a schedule."""

from __future__ import annotations

from sexton.daemon.timetable import check_schedule
from sexton.model.job import DayRule, JobSpec, Place
from sexton.model.settings import Severity


def job(schedule: str, day_rule: DayRule = DayRule.OR) -> JobSpec:
    return JobSpec(name="j", command="x", schedule=schedule, day_rule=day_rule, place=Place("f", 1, 1))


def test_two_day_fields() -> None:
    """Where the rules differ, the warning says where the other one can be had: a cron table has no options."""
    ((severity, message, hint),) = check_schedule(job("0 0 1-7 * 1"))
    assert severity is Severity.WARNING and "either matches" in message
    assert hint is not None and "dayRule: and" in hint and "in YAML" in hint
    assert check_schedule(job("0 0 1-7 * 1", DayRule.AND)) == []
    assert check_schedule(job("0 0 */2 * 1")) == []

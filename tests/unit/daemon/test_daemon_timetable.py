"""What `check` says of a schedule."""

from __future__ import annotations

from sexton.daemon.timetable import check_schedule
from sexton.model.job import DayRule, JobSpec, Place
from sexton.model.settings import Severity


def job(schedule: str, day_rule: DayRule = DayRule.OR) -> JobSpec:
    return JobSpec(name="j", command="x", schedule=schedule, day_rule=day_rule, place=Place("f", 1, 1))


def test_six_fields_with_any_year() -> None:
    """Many schedulers put the second before five fields; here a sixth is the year. Who writes one that says nothing is
    asked what was meant; one that says something, and a schedule with seconds, is clear."""
    ((severity, message, hint),) = check_schedule(job("0 */5 * * * *"))
    assert severity is Severity.WARNING and "minute 0 of hour */5" in message
    assert hint is not None and "`0 */5 * * * * *`" in hint
    for clear in ("*/5 * * * *", "0 */5 * * * 2030-2040", "0 */5 * * * * *"):
        assert check_schedule(job(clear)) == []


def test_two_day_fields() -> None:
    """Where the rules differ, the warning says where the other one can be had: a cron table has no options."""
    ((severity, message, hint),) = check_schedule(job("0 0 1-7 * 1"))
    assert severity is Severity.WARNING and "either matches" in message
    assert hint is not None and "dayRule: and" in hint and "in YAML" in hint
    assert check_schedule(job("0 0 1-7 * 1", DayRule.AND)) == []
    assert check_schedule(job("0 0 */2 * 1")) == []

"""From a job's definition to its occurrences, and what the check has to say about a schedule.

This is the one place where configuration and schedule meet: the two rooms do not know each other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from sexton.model.errors import ScheduleError
from sexton.model.job import DayRule, JobSpec
from sexton.model.settings import Severity
from sexton.schedule.expression import CronExpression, Reboot, day_rules_differ, parse
from sexton.schedule.occurrences import Occurrences, occurrences_of

LOCALTIME = "/etc/localtime"


@lru_cache(maxsize=1024)
def zone_named(name: str | None, *, utc: bool) -> tzinfo:
    """The zone of a job: its own, UTC, or the host's local one (with its clock changes, where the host tells them)."""
    if name is not None:
        return ZoneInfo(name)
    if utc:
        return UTC
    if key := os.environ.get("TZ", "").lstrip(":"):
        try:
            return ZoneInfo(key)
        except (ValueError, OSError, KeyError):
            pass  # a POSIX rule or a path: the file below is the next best source
    try:
        with open(LOCALTIME, "rb") as file:
            return ZoneInfo.from_file(file, key="localtime")
    except (OSError, ValueError):
        offset = datetime.now().astimezone().utcoffset()
        return timezone(offset) if offset is not None else UTC


def zone_of(job: JobSpec) -> tzinfo:
    return zone_named(job.timezone, utc=job.utc)


def expression_of(job: JobSpec) -> CronExpression | Reboot:
    """Raises ScheduleError for a schedule that the check would have refused."""
    return parse(job.schedule, seed=job.name)


def occurrences_for(job: JobSpec) -> Occurrences | None:
    """When the job is due; None for `@reboot` and for a disabled job."""
    if not job.enabled:
        return None
    expression = expression_of(job)
    if isinstance(expression, Reboot):
        return None
    return occurrences_of(expression, zone_of(job), job.day_rule)


def check_schedule(job: JobSpec) -> Sequence[tuple[Severity, str, str | None]]:
    """What `check` reports of a schedule: errors, and what will surprise its author."""
    try:
        expression = expression_of(job)
    except ScheduleError as refused:
        return [(Severity.ERROR, f"invalid schedule: {refused}", refused.hint)]
    if isinstance(expression, Reboot):
        return ()
    said: list[tuple[Severity, str, str | None]] = []
    if job.day_rule is DayRule.OR and day_rules_differ(expression):
        said.append((
            Severity.WARNING,
            "both day fields are restricted: the job runs when either matches, as with cron",
            "`dayRule: and`, of a job in YAML or in its defaults, is what cronstable and yacron mean",
        ))
    written = expression.text.split()
    if len(written) == 6 and written[-1] == "*":
        said.append((
            Severity.WARNING,
            f"six fields end with the year: this is minute {written[0]} of hour {written[1]}",
            f"if the first was meant as the second, write `{expression.text} *`; if not, leave the year out",
        ))
    if _never_fires(expression, job):
        said.append((Severity.WARNING, "this schedule never fires: no date matches it", None))
    return said


_never: dict[tuple[CronExpression, str | None, bool, str], bool] = {}


def _never_fires(expression: CronExpression, job: JobSpec) -> bool:
    """Most jobs of a large file share a few schedules."""
    key = (expression, job.timezone, job.utc, job.day_rule.value)
    if key not in _never:
        _never[key] = occurrences_of(expression, zone_of(job), job.day_rule).never_fires(datetime.now(UTC))
    return _never[key]

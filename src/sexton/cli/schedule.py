"""`sexton next` and `sexton explain`: from a running daemon, or from a file without one."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from sexton.cli.answers import Fire, Fires
from sexton.cli.client import Client, decoded
from sexton.cli.exits import Exit
from sexton.cli.failures import Refused
from sexton.cli.lookup import get_job, job_of, unknown_job
from sexton.cli.terminal import Cell, Screen, Tone, complain
from sexton.cli.times import instant, span
from sexton.model.job import JobSpec

if TYPE_CHECKING:
    from sexton.schedule.explain import Explanation, FieldVerdict

WITHIN_SECONDS = 86400.0
ALL_COUNT, JOB_COUNT = 100, 10
_WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")


def next_of_daemon(options: Namespace, client: Client, screen: Screen) -> int:
    """The next occurrence of every job within a span, or the next ones of a job."""
    if options.job is not None:
        raw = get_job(client, options.job, "next", query={"count": _count(options)})
    else:
        raw = client.get("/schedule/next", {"within": options.within, "limit": options.count or ALL_COUNT})
    return _tell_fires(raw, options, screen)


def next_in_file(options: Namespace, file: str, screen: Screen) -> int:
    """The same of a configuration that nobody runs."""
    now = datetime.now(UTC)
    jobs = _jobs_in(file)
    if options.job is not None:
        fires = _times(_job_in(jobs, options.job), now, _count(options))
    else:
        until = now + timedelta(seconds=WITHIN_SECONDS if options.within is None else options.within)
        firsts = [fire for job in jobs for fire in _times(job, now, 1) if fire.at <= until]
        fires = sorted(firsts, key=lambda fire: (fire.at, fire.job))[: options.count or ALL_COUNT]
    return _tell_fires(msgspec.json.encode(Fires(fires=tuple(fires))), options, screen)


def _tell_fires(raw: bytes, options: Namespace, screen: Screen) -> int:
    fires = decoded(raw, Fires)
    if options.job is not None and options.within is not None:
        fires = Fires(fires=tuple(fire for fire in fires.fires if fire.in_seconds <= options.within))
        raw = msgspec.json.encode(fires)
    if options.json:
        screen.json(raw)
    elif fires.fires:
        rows = [(Cell(instant(fire.at)), Cell(span(fire.in_seconds)), Cell(fire.job)) for fire in fires.fires]
        screen.table(("WHEN", "IN", "JOB"), rows)
    else:
        screen.line(Cell(_nothing(options), Tone.FAINT))
    return Exit.OK


def _count(options: Namespace) -> int:
    """How many times of one job: what is within a span is wanted whole."""
    return options.count or (JOB_COUNT if options.within is None else ALL_COUNT)


def _nothing(options: Namespace) -> str:
    if options.job is None or options.within is not None:
        return f"Nothing is due within {span(WITHIN_SECONDS if options.within is None else options.within)}."
    return "The job is never due: it is disabled, runs at the start of the daemon only, or no date matches."


def _times(job: JobSpec, now: datetime, count: int) -> list[Fire]:
    from sexton.daemon.timetable import occurrences_for

    occurrences = occurrences_for(job)
    fires = [] if occurrences is None else occurrences.following(now, count)
    return [Fire(job=job.name, at=at, in_seconds=round((at - now).total_seconds(), 3)) for at in fires]


def _jobs_in(path: str) -> tuple[JobSpec, ...]:
    """The jobs of a configuration. Raises Refused for one with errors."""
    from sexton.daemon.loading import load_here

    configuration = load_here(path)
    for finding in configuration.errors:
        complain(str(finding))
    if configuration.errors:
        raise Refused(f"{len(configuration.errors)} error(s) in {path}")
    return configuration.jobs


def _job_in(jobs: tuple[JobSpec, ...], name: str) -> JobSpec:
    for job in jobs:
        if job.name == name:
            return job
    raise unknown_job(name, [job.name for job in jobs])


def explain_of_daemon(options: Namespace, client: Client, screen: Screen) -> int:
    """Why a job is or is not due at an instant, field by field."""
    at = options.at.isoformat() if options.at is not None else None
    raw = get_job(client, options.job, "explain", query={"at": at})
    return _tell_why(raw, options, screen, enabled=options.json or job_of(client, options.job).enabled)


def explain_in_file(options: Namespace, file: str, screen: Screen) -> int:
    """The same of a configuration that nobody runs."""
    job = _job_in(_jobs_in(file), options.job)
    return _tell_why(msgspec.json.encode(_explained(job, options.at)), options, screen, enabled=job.enabled)


def _explained(job: JobSpec, at: datetime | None) -> Explanation:
    from sexton.daemon.timetable import expression_of, zone_of
    from sexton.schedule.explain import explain as explained
    from sexton.schedule.expression import Reboot

    expression = expression_of(job)
    if isinstance(expression, Reboot):
        raise Refused("the job runs at the start of the daemon (@reboot), at no other time")
    return explained(expression, zone_of(job), job.day_rule, at or datetime.now(UTC))


def _tell_why(raw: bytes, options: Namespace, screen: Screen, *, enabled: bool) -> int:
    if options.json:
        screen.json(raw)
        return Exit.OK
    from sexton.schedule.explain import Explanation

    found = decoded(raw, Explanation)
    verdict = Cell("due", Tone.GOOD) if found.fires else Cell("not due", Tone.WARN)
    screen.line(f"{options.job}: {found.description}")
    screen.line(f"schedule {found.schedule}, in {found.timezone}, days combined by `{found.day_rule.value}`")
    if not enabled:
        screen.line(Cell("the job is disabled: it does not run, whatever its schedule says", Tone.WARN))
    screen.line(f"at {instant(found.local, found.local.tzinfo)}: ", verdict)
    screen.line("")
    screen.table(("FIELD", "SCHEDULE", "MEANS", "IS", ""), [_field(field) for field in found.fields])
    screen.line("")
    for note in found.notes:
        screen.line(note)
    for word, at in (("before", found.previous), ("after", found.next)):
        screen.line(f"due {word} it: {instant(at) if at else 'never'}")
    return Exit.OK


def _field(field: FieldVerdict) -> tuple[Cell, ...]:
    value = _WEEKDAYS[field.value] if field.field == "day of week" else str(field.value)
    text = field.text if field.text == field.resolved else f"{field.text} = {field.resolved}"
    matches = Cell("matches", Tone.GOOD) if field.matches else Cell("does not match", Tone.BAD)
    return Cell(field.field), Cell(text), Cell(field.meaning), Cell(value), matches

"""`sexton jobs`, and `sexton show` of a job."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from sexton.cli.answers import JobAnswer
from sexton.cli.client import Client, decoded
from sexton.cli.exits import Exit
from sexton.cli.limits import caps_text
from sexton.cli.story import ending, state_of
from sexton.cli.terminal import Cell, Screen, Tone
from sexton.cli.times import distance, instant, span

_HEADS = ("NAME", "STATE", "PIDS", "NEXT", "IN", "LAST", "ENDED", "TOOK", "SKIPPED")


def list_jobs(options: Namespace, client: Client, screen: Screen) -> int:
    raw = client.get("/jobs")
    if options.json:
        screen.json(raw)
        return Exit.OK
    jobs = decoded(raw, list[JobAnswer])
    if not jobs:
        screen.line(Cell("There are no jobs.", Tone.FAINT))
        return Exit.OK
    now = datetime.now(UTC)
    screen.table(_HEADS, [_row(job, now) for job in sorted(jobs, key=lambda job: job.name)])
    return Exit.OK


def _row(job: JobAnswer, now: datetime) -> tuple[Cell, ...]:
    last = job.last_run
    return (
        Cell(job.name),
        _state(job),
        Cell(" ".join(map(str, job.pids))),
        *_next(job, now),
        state_of(last) if last else Cell("-", Tone.FAINT),
        Cell(
            f"{instant(last.finished_at)} ({distance(last.finished_at, now)})"
            if last and last.finished_at
            else ""
        ),
        Cell(span(last.duration) if last and last.duration is not None else ""),
        Cell(str(job.skipped), Tone.WARN if job.skipped else Tone.FAINT),
    )


def _state(job: JobAnswer) -> Cell:
    if job.running:
        return Cell("running", Tone.LIVE)
    if job.queued:
        return Cell(f"{len(job.queued)} queued", Tone.WARN)
    return Cell("scheduled") if job.enabled else Cell("disabled", Tone.FAINT)


def _next(job: JobAnswer, now: datetime) -> tuple[Cell, Cell]:
    if job.scheduled_at is not None:
        return Cell(instant(job.scheduled_at)), Cell(span((job.scheduled_at - now).total_seconds()))
    if job.scheduled_in == "@reboot":
        return Cell("@reboot"), Cell("")
    return Cell("never", Tone.WARN) if job.never_fires else Cell("-", Tone.FAINT), Cell("")


def show_job(job: JobAnswer, screen: Screen) -> None:
    """Every fact about a job."""
    now = datetime.now(UTC)
    when, wait = _next(job, now)
    rows = [
        ("job", Cell(job.name)),
        ("state", _state(job)),
        ("schedule", Cell(_schedule(job))),
        ("next", Cell(when.text + (f" (in {wait.text})" if wait.text else ""), when.tone)),
        *_command(job.command),
        ("overlap", Cell(f"{job.concurrency_policy}, within the {job.concurrency_scope}")),
        ("time limit", Cell(span(job.execution_timeout) if job.execution_timeout is not None else "none")),
        ("kill timeout", Cell(span(job.kill_timeout) if job.kill_timeout is not None else "-")),
        ("priority", Cell(job.priority)),
        ("limits", Cell(caps_text(job.limits) if job.limits is not None else "none")),
        *_pool(job),
        *(("running", Cell(run, Tone.LIVE)) for run in job.runs),
        *(("queued", Cell(run, Tone.WARN)) for run in job.queued),
    ]
    if job.pids:
        rows.append(("pids", Cell(" ".join(map(str, job.pids)))))
    if (last := job.last_run) is not None:
        ended = f", ended {instant(last.finished_at)}" if last.finished_at else ""
        rows += [("last run", Cell(last.id)), ("", Cell(ending(last) + ended, state_of(last).tone))]
    rows.append(("skipped", Cell(f"{job.skipped} since the daemon started")))
    if (skip := job.last_skip) is not None:
        rows.append(("", Cell(f"last {instant(skip.at)}: {skip.reason}", Tone.WARN)))
    if job.ignored_options:
        rows.append(("ignored", Cell(", ".join(job.ignored_options), Tone.WARN)))
    screen.facts([*rows, ("defined in", Cell(job.source))])


def _pool(job: JobAnswer) -> list[tuple[str, Cell]]:
    rows = []
    if job.max_instances is not None:
        rows.append(("instances", Cell(f"at most {job.max_instances}")))
    if job.pool is not None:
        use = job.pool
        text = f"{use.name}: {use.slots} slot(s), priority {use.priority}, waits at most {span(use.queue_timeout)}"
        rows.append(("pool", Cell(text)))
    return rows


def _schedule(job: JobAnswer) -> str:
    zone = job.timezone or ("UTC" if job.utc else "local time of the daemon")
    text = job.schedule if isinstance(job.schedule, str) else " ".join(job.schedule.tokens())
    return f"{text} ({zone})"


def _command(command: str | tuple[str, ...]) -> list[tuple[str, Cell]]:
    """A script keeps its lines; a list is written as a shell would take it."""
    if not isinstance(command, str):
        import shlex

        return [("command", Cell(shlex.join(command)))]
    first, *more = command.rstrip("\n").split("\n")
    return [("command", Cell(first)), *(("", Cell(line)) for line in more)]

"""`sexton runs`, and `sexton show` of a run or a job."""

from __future__ import annotations

from argparse import Namespace

from sexton.cli.answers import JobAnswer, RunAnswer, RunPool, RunsAnswer
from sexton.cli.client import Client, decoded, route
from sexton.cli.exits import Exit
from sexton.cli.failures import NotFound
from sexton.cli.jobs import show_job
from sexton.cli.limits import limit_facts, use_facts
from sexton.cli.lookup import get_job, is_run_id, job_of
from sexton.cli.story import ending, exit_of, gone_facts, output_of, state_of, stop_facts
from sexton.cli.terminal import Cell, Screen, Tone
from sexton.cli.times import instant, span

_HEADS = ("RUN", "JOB", "TRIGGER", "STATE", "CODE", "STARTED", "TOOK", "WHY")


def list_runs(options: Namespace, client: Client, screen: Screen) -> int:
    raw = client.get("/runs", {"job": options.job, "outcome": options.outcome, "limit": options.limit})
    answer = decoded(raw, RunsAnswer)
    if options.job is not None and not answer.runs:
        job_of(client, options.job)
    if options.json:
        screen.json(raw)
    elif answer.runs:
        screen.table(_HEADS, [_row(run) for run in answer.runs])
    else:
        screen.line(Cell("There are no such runs.", Tone.FAINT))
    return Exit.OK


def _row(run: RunAnswer) -> tuple[Cell, ...]:
    return (
        Cell(run.id),
        Cell(run.job),
        Cell(run.trigger.value),
        state_of(run),
        Cell("" if run.exit_code is None else str(run.exit_code)),
        Cell(instant(run.started_at) if run.started_at else "-"),
        Cell(span(run.duration) if run.duration is not None else ""),
        Cell(run.fail_reason or ""),
    )


def show(options: Namespace, client: Client, screen: Screen) -> int:
    """Every fact about a run or a job. A word that looks like a run's id may still be the name of a job."""
    raw, is_run = _find(client, options.what)
    if options.json:
        screen.json(raw)
    elif is_run:
        screen.facts(run_facts(decoded(raw, RunAnswer)))
    else:
        show_job(decoded(raw, JobAnswer), screen)
    return Exit.OK


def _find(client: Client, what: str) -> tuple[bytes, bool]:
    if not is_run_id(what):
        return get_job(client, what), False
    try:
        return client.get(route("runs", what)), True
    except NotFound as unknown:
        try:
            return client.get(route("jobs", what)), False
        except NotFound:
            raise unknown from None


def run_facts(run: RunAnswer) -> list[tuple[str, Cell]]:
    """Everything that is known of a run, in the order in which it happened."""
    by = f", by {run.requested_by}" if run.requested_by else ""
    rows = [
        ("run", Cell(run.id)),
        ("job", Cell(run.job)),
        ("outcome", Cell(ending(run), state_of(run).tone)),
        ("phase", Cell(run.phase.value)),
        ("trigger", Cell(run.trigger.value + by)),
    ]
    for name, at in (
        ("scheduled for", run.scheduled_for),
        ("created", run.created_at),
        ("started", run.started_at),
        ("deadline", run.deadline_at),
        ("finished", run.finished_at),
    ):
        if at is not None:
            rows.append((name, Cell(instant(at, precise=True))))
    if run.duration is not None:
        rows.append(("duration", Cell(span(run.duration))))
    if run.pursues is not None:
        rows.append(("waits for", Cell(f"node {run.pursues} to give up the slot of the job", Tone.WARN)))
    if run.pool is not None:
        rows.append(("pool", Cell(_pool(run.pool))))
    rows += _process_facts(run)
    if run.stop is not None:
        rows += stop_facts(run.stop)
    rows += gone_facts(run)
    rows += [("containment", Cell(run.containment.value)), ("node", Cell(run.node))]
    if run.adopted:
        rows.append(("taken over", Cell(f"{run.adopted} time{'' if run.adopted == 1 else 's'} by a later daemon")))
    if run.output is not None:
        rows.append(("output", Cell(output_of(run.output))))
    if run.limits is not None:
        rows += limit_facts(run.limits)
    return rows + (use_facts(run.resources) if run.resources is not None else [])


def _pool(pool: RunPool) -> str:
    text = f"{pool.slots} slot(s) of {pool.name}, priority {pool.priority}"
    if pool.waited_seconds is not None:
        return f"{text}, after {span(pool.waited_seconds)}"
    return f"{text}; waits until {instant(pool.expires_at)} at most" if pool.expires_at is not None else text


def _process_facts(run: RunAnswer) -> list[tuple[str, Cell]]:
    rows = []
    if run.pid is not None:
        rows.append(("pid", Cell(str(run.pid))))
    if run.exit is not None:
        rows.append(("exit", Cell(exit_of(run.exit))))
    if run.exit_code is not None:
        rows.append(("exit code", Cell(str(run.exit_code))))
    return rows

"""The usual subject and body, where the configuration has none. Pure."""

from __future__ import annotations

from sexton.model.report import ReportEvent
from sexton.model.run import GoneState, RunRecord
from sexton.model.sla import Breach
from sexton.outcome.reporters.facts import Facts, command_text


def subject_of(facts: Facts) -> str:
    """`Cron job 'x' failed`, as the reference daemon says it; the two events that it does not have, likewise."""
    name = facts.job.name
    match facts.event:
        case ReportEvent.TIMEOUT:
            return f"Cron job '{name}' timed out"
        case ReportEvent.UNCONFIRMED:
            return f"Cron job '{name}' could not be terminated"
        case ReportEvent.LATE:
            return f"Cron job '{name}' is late"
        case _:
            return f"Cron job '{name}' {'completed' if facts.success else 'failed'}"


def body_of(facts: Facts) -> str:
    """What somebody who is woken by it wants to know, in that order."""
    if facts.breach is not None:
        return _promise_of(facts, facts.breach)
    record, output = facts.record, facts.output()
    rows = [("Reason", record.fail_reason), ("Exit code", record.exit_code), *_stop_rows(record),
            ("Run", record.launch.id), ("Host", record.launch.node), ("Trigger", record.launch.trigger.value),
            ("Due", record.launch.scheduled_for), ("Started", record.started_at), ("Ended", record.finished_at),
            ("Seconds", record.duration), ("Command", command_text(facts.job.command))]
    parts = ["\n".join(f"{name}: {value}" for name, value in rows if value is not None)]
    if output.stderr:
        parts.append(f"Standard error:\n{output.stderr}")
    if output.stdout:
        parts.append(f"Standard output:\n{output.stdout}")
    return "\n\n".join(parts) + "\n"


def _promise_of(facts: Facts, breach: Breach) -> str:
    last = facts.last_success_at.isoformat() if facts.last_success_at is not None else "not known"
    return (
        f"Promise: {breach.check.value}\nSince: {breach.since}\nSeconds: {breach.observed_seconds:g}\n"
        f"Promised: {breach.threshold_seconds:g}\nLast success: {last}\nHost: {facts.record.launch.node}\n"
    )


def _stop_rows(record: RunRecord) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    if record.stop is not None:
        rows.append(("Stopped for", record.stop.cause.value))
        rows.append(("Stopped by", record.stop.requested_by))
    if record.gone is not None and record.gone.state is not GoneState.PROVEN:
        left = ", ".join(str(survivor.pid) for survivor in record.gone.survivors) or "unknown"
        rows.append(("Processes that may be left", left))
    return rows

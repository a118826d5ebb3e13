"""What a report may say: the facts of one run, and the variables that templates know them by. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from sexton.model.job import JobSpec, ScheduleFields
from sexton.model.report import ReportEvent
from sexton.model.run import Outcome, RunRecord
from sexton.model.sla import Breach

MAX_OUTPUT_CHARACTERS = 256 * 1024
"""Of each stream in one report: the first and the last half; the middle is replaced by a mark."""
CUT = "\n   [.... {} characters left out ....]\n"


class Output(msgspec.Struct, frozen=True):
    """What is kept of the captured streams, as text; a stream that was not captured is empty."""

    stdout: str = ""
    stderr: str = ""
    stdout_truncated: bool = False
    stderr_truncated: bool = False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """One event of one run. `output` is made when it is needed, off the event loop."""

    event: ReportEvent
    job: JobSpec
    record: RunRecord
    output: Callable[[], Output]
    breach: Breach | None = None
    """What a report of lateness is about; its record is then that of no run."""
    last_success_at: datetime | None = None
    redact: Callable[[str], str] = lambda text: text
    """Masks the job's secrets; applied to every text that leaves."""

    @property
    def success(self) -> bool:
        return self.record.outcome is Outcome.SUCCESS


def schedule_text(schedule: str | ScheduleFields) -> str:
    """A schedule on one line; a map becomes the expression with seven fields."""
    return schedule if isinstance(schedule, str) else " ".join(schedule.tokens())


def command_text(command: str | tuple[str, ...]) -> str:
    return command if isinstance(command, str) else shlex.join(command)


def cut_middle(text: str, limit: int = MAX_OUTPUT_CHARACTERS) -> tuple[str, bool]:
    """At most about `limit` characters: the beginning and the end, and whether something was left out."""
    if len(text) <= limit:
        return text, False
    half = limit // 2
    return text[:half] + CUT.format(len(text) - 2 * half) + text[-half:], True


def promise(facts: Facts) -> dict[str, Any]:
    """The variables about a broken promise; none of them for a run."""
    breach, last = facts.breach, facts.last_success_at
    return {
        "SLA_CHECK": breach.check.value if breach else None,
        "THRESHOLD_SECONDS": breach.threshold_seconds if breach else None,
        "OBSERVED_SECONDS": breach.observed_seconds if breach else None,
        "LAST_SUCCESS_AT": last.isoformat() if last else None,
    }


def _every_field(of: msgspec.Struct) -> dict[str, Any]:
    """Also those that are as by default, which are left out where records are written."""
    return {name: msgspec.to_builtins(getattr(of, name)) for name in of.__struct_fields__}


def variables(facts: Facts, environment: Mapping[str, str]) -> dict[str, Any]:
    """The variables of a template. `environment` is the daemon's own; the job's variables lie over it."""
    job, record, output = facts.job, facts.record, facts.output()
    usage = record.usage
    run = {**_every_field(record), "launch": _every_field(record.launch)}
    return {
        "name": job.name,
        "success": facts.success,
        "fail_reason": record.fail_reason,
        "stdout": output.stdout,
        "stderr": output.stderr,
        "exit_code": record.exit_code,
        "command": command_text(job.command),
        "shell": job.shell,
        "environment": {**environment, **dict(job.environment)},
        "host": record.launch.node,
        "schedule": schedule_text(job.schedule),
        "started_at": run["started_at"],
        "finished_at": run["finished_at"],
        "duration": record.duration,
        "run_id": record.launch.id,
        "trigger": record.launch.trigger.value,
        "attempt": record.launch.attempt,
        "outcome": record.outcome.value if record.outcome else None,
        "event": facts.event.value,
        "cpu_seconds": round(usage.cpu_user_seconds + usage.cpu_system_seconds, 6) if usage else None,
        "cpu_user_seconds": usage.cpu_user_seconds if usage else None,
        "cpu_system_seconds": usage.cpu_system_seconds if usage else None,
        "max_rss_bytes": usage.max_rss_bytes if usage else None,
        "verification": run["verification"],
        "limits": run["limits"],
        **{name.lower(): value for name, value in promise(facts).items()},
        "run": run,
        "stop": run["stop"],
        "gone": run["gone"],
    }

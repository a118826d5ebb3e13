"""What a template of a report may name."""

from __future__ import annotations

MARKS = ("{{", "{%", "{#")

VARIABLES = frozenset(
    {
        "name", "success", "fail_reason", "stdout", "stderr", "exit_code", "command", "shell", "environment", "host",
        "schedule", "started_at", "run_id", "cpu_seconds", "cpu_user_seconds", "cpu_system_seconds", "max_rss_bytes",
        "verification", "limits", "sla_check", "threshold_seconds", "observed_seconds", "last_success_at",
        "run", "stop", "gone", "event", "outcome", "trigger", "attempt", "finished_at", "duration",
    }
)  # fmt: skip


def is_template(text: str) -> bool:
    """Whether there is anything to fill in."""
    return any(mark in text for mark in MARKS)

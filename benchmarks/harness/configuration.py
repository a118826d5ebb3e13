"""Configurations as block YAML, which every daemon of this family reads (some refuse JSON)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

NEVER = "0 0 1 1 *"
"""Due at new year: for jobs that are started by hand."""
EVERY_SECOND = {"second": "*"}

Schedule = str | Mapping[str, object]


def _scalar(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value).lower()


def job(name: str, command: str | Sequence[str], schedule: Schedule = NEVER, **options: object) -> str:
    """One entry of `jobs`. A list of words runs without a shell."""
    lines = [f"  - name: {name}"]
    if isinstance(command, str):
        lines.append(f"    command: {_scalar(command)}")
    else:
        lines += ["    command:", *(f"      - {_scalar(word)}" for word in command)]
    if isinstance(schedule, str):
        lines.append(f"    schedule: {_scalar(schedule)}")
    else:
        fields = (f"      {key}: {_scalar(str(value))}" for key, value in schedule.items())
        lines += ["    schedule:", *fields]
    lines += _block(options, 4)
    return "\n".join(lines)


def _block(values: Mapping[str, object], indent: int) -> list[str]:
    lines = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += [" " * indent + f"{key}:", *_block(value, indent + 2)]
        else:
            lines.append(" " * indent + f"{key}: {_scalar(value)}")
    return lines


def document(jobs: Sequence[str], port: int, state: str | None = None, capture: bool = False) -> str:
    lines = ["web:", "  listen:", f"    - http://127.0.0.1:{port}"]
    if state is not None:
        lines += ["state:", f"  path: {_scalar(state)}"]
    flag = _scalar(capture)
    lines += ["defaults:", f"  captureStdout: {flag}", f"  captureStderr: {flag}", "jobs:", *jobs]
    return "\n".join(lines) + "\n"


def due_at(second: int) -> dict[str, object]:
    """The schedule of one instant (of each year)."""
    at = datetime.fromtimestamp(second, UTC)
    return {
        "second": at.second, "minute": at.minute, "hour": at.hour, "dayOfMonth": at.day, "month": at.month,
    }

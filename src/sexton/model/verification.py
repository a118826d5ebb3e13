"""The check that a run's result is subject to, and what became of it."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

import msgspec


class Verify(msgspec.Struct, frozen=True, kw_only=True):
    """`verify`: a command that looks whether the run has done its work. Exit code 0 means that it has."""

    command: str | tuple[str, ...]
    timeout: float = 60.0
    """Seconds; executionTimeout does not cover the check."""


class Checked(Enum):
    RUNNING = "running"
    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    """The run was stopped while it was checked."""
    SKIPPED = "skipped"


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the check of one run. Times are UTC."""

    outcome: Checked
    exit_code: int | None = None
    """-N signal N, -100 its timeout passed, 127 not started."""
    fail_reason: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration: float | None = None
    stdout: str | None = None
    """The beginning and the end of what it wrote."""
    stderr: str | None = None
    output_truncated: bool = False
    """A stream was closed by us before its end."""

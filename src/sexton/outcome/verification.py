"""What the check of a run means. Pure."""

from __future__ import annotations

from sexton.model.run import EXIT_NOT_STARTED, EXIT_TIMED_OUT
from sexton.outcome.verdict import exit_reason

COMMAND_FAILED = "command failed"
NOT_STARTED = "command did not start"
STOPPED = "the run was stopped"


def failure_of(exit_code: int | None, start_failure: str | None, timeout: float) -> str | None:
    """Why a check that is over has failed; None for one that has passed. Only its exit code counts."""
    if exit_code == 0:
        return None
    if exit_code == EXIT_TIMED_OUT:
        return f"exceeded its timeout of {timeout:g} seconds"
    if exit_code is None:
        return "its end was not observed"
    if exit_code == EXIT_NOT_STARTED and start_failure is not None:
        return start_failure
    return exit_reason(exit_code)

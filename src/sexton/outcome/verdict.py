"""What a run's end meant: the one function that decides success or failure."""

from __future__ import annotations

from typing import assert_never

import msgspec

from sexton.model.job import FailsWhen
from sexton.model.run import EXIT_TIMED_OUT, Outcome, Stop, StopCause


class Evidence(msgspec.Struct, frozen=True):
    """All that the verdict may look at."""

    exit_code: int | None
    """-N signal N, -100 the deadline passed, 127 not started; None when it will never be known."""
    stop: Stop | None = None
    skipped: str | None = None
    """Why it was not started at all, though nobody stopped it and nothing failed."""
    start_failure: str | None = None
    lost: str | None = None
    """Why the end of the own process could not be observed."""
    wrote_stdout: bool = False
    """Captured output only: a stream that is not captured says nothing."""
    wrote_stderr: bool = False
    execution_timeout: float | None = None
    refuted: str | None = None
    """Why the check of its result has failed."""


class Verdict(msgspec.Struct, frozen=True):
    outcome: Outcome
    fail_reason: str | None = None


def judge(evidence: Evidence, fails_when: FailsWhen) -> Verdict:
    """The first cause of a stop decides first; then failsWhen, in the reference's order.

    A failed start is a failure under every failsWhen, and so is a timeout unless `failsWhen.timeout` is false
    (decisions/0004): nothing was completed. The record tells a timeout from a success all the same: by its `stop`.
    """
    if evidence.stop is not None:
        match evidence.stop.cause:
            case StopCause.CANCEL:
                return Verdict(Outcome.CANCELLED, _said("cancelled", evidence.stop))
            case StopCause.SHUTDOWN:
                return Verdict(Outcome.CANCELLED, _said("cancelled by the daemon's shutdown", evidence.stop))
            case StopCause.LOST_LEASE:
                return Verdict(Outcome.CANCELLED, _said("cancelled because its slot could not be kept", evidence.stop))
            case StopCause.REPLACED:
                return Verdict(Outcome.REPLACED, _said("replaced by a newer instance", evidence.stop))
            case StopCause.LIMITS:
                return Verdict(Outcome.FAILURE, evidence.stop.reason)
            case StopCause.TIMEOUT:
                pass
            case _:
                assert_never(evidence.stop.cause)
    if evidence.skipped is not None:
        return Verdict(Outcome.SKIPPED, evidence.skipped)
    if evidence.start_failure is not None:
        return Verdict(Outcome.FAILURE, evidence.start_failure)
    timed_out = evidence.exit_code == EXIT_TIMED_OUT
    if timed_out and fails_when.timeout:
        return Verdict(Outcome.FAILURE, f"exceeded its executionTimeout of {evidence.execution_timeout:g} seconds")
    if evidence.exit_code is None:
        return Verdict(Outcome.UNKNOWN, evidence.lost or "the end of the command was not observed")
    if evidence.refuted is not None:
        return Verdict(Outcome.FAILURE, f"verification failed: {evidence.refuted}")
    if fails_when.always:
        return Verdict(Outcome.FAILURE, "configured to mark every run as failed (failsWhen.always)")
    if fails_when.nonzero_return and evidence.exit_code != 0 and not timed_out:
        return Verdict(Outcome.FAILURE, exit_reason(evidence.exit_code))
    if fails_when.produces_stdout and evidence.wrote_stdout:
        return Verdict(Outcome.FAILURE, "command wrote to stdout (failsWhen.producesStdout)")
    if fails_when.produces_stderr and evidence.wrote_stderr:
        return Verdict(Outcome.FAILURE, "command wrote to stderr (failsWhen.producesStderr)")
    return Verdict(Outcome.SUCCESS)


def _said(what: str, stop: Stop) -> str:
    by = f" by {stop.requested_by}" if stop.requested_by else ""
    why = f": {stop.reason}" if stop.reason else ""
    return f"{what}{by}{why}"


def exit_reason(code: int) -> str:
    """What an exit code other than 0 says; -N is signal N."""
    return f"command was ended by signal {-code}" if code < 0 else f"command exited with code {code}"

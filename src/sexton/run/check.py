"""The check of a run (`verify`): a run within the run, with a process, a containment and a bound of its own.

It lives by the same steps as any run. While it is there, whoever wants the run stopped stops the check.
"""

from __future__ import annotations

from itertools import groupby

from msgspec.structs import replace

from sexton.execution.messages import Stream
from sexton.model.job import EndsWhen, FailsWhen, Leftovers
from sexton.model.run import Phase, StopCause
from sexton.model.verification import Checked, Verification
from sexton.outcome.verification import failure_of
from sexton.run.live import Run

KEPT_LINES = 64
LONGEST_LINE = 16 * 1024
LONGEST_TEXT = 16_384


class Check(Run):
    """Never in the registry: the run that it checks counts, and speaks for it."""

    is_check = True

    def verification(self) -> Verification:
        return _verification_of(self)


def check_of(run: Run) -> Check:
    """The check of a run that has ended well so far."""
    verify = run.job.verify
    assert verify is not None
    job = replace(
        run.job, command=verify.command, execution_timeout=verify.timeout, capture_stdout=True, capture_stderr=True,
        mirror_output=False, save_limit=KEPT_LINES, max_line_length=LONGEST_LINE, stdin=None, verify=None,
        fails_when=FailsWhen(produces_stderr=False), ends_when=EndsWhen.OUTPUT_CLOSED, leftovers=Leftovers.KEEP,
        monitor_resources=None,
    )
    return Check(job, replace(run.launch, keep=False), run.clock)


def _verification_of(check: Run) -> Verification:
    """What is known of it now."""
    if check.phase is not Phase.ENDED:
        return Verification(outcome=Checked.RUNNING, started_at=check.started_at)
    stop = check.stop
    stopped = stop is not None and stop.cause not in (StopCause.TIMEOUT, StopCause.LIMITS)
    code = check.exit_code
    failure = stop.reason if stop is not None and stop.cause is StopCause.LIMITS else failure_of(
        code, check.fail_reason, check.job.execution_timeout or 0.0)
    outcome = Checked.CANCELLED if stopped else Checked.SUCCESS if failure is None else Checked.FAILURE
    texts = _texts(check)
    facts = check.capture.facts() if check.capture is not None else None
    cut = facts is not None and any(size is not None and size.truncated for size in (facts.stdout, facts.stderr))
    return Verification(
        outcome=outcome, exit_code=code, fail_reason=None if stopped else failure, started_at=check.started_at,
        finished_at=check.ended_at, duration=check.duration, stdout=texts.get(Stream.STDOUT),
        stderr=texts.get(Stream.STDERR), output_truncated=cut,
    )


def _texts(check: Run) -> dict[Stream, str]:
    if check.capture is None:
        return {}
    saved = sorted(check.capture.saved(), key=lambda pair: pair[0].value)
    return {stream: "\n".join(line for _, line in pairs)[:LONGEST_TEXT]
            for stream, pairs in groupby(saved, key=lambda pair: pair[0])}

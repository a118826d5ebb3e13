"""What an end meant: the verdict as a table, and its order of precedence over every combination of failsWhen."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from sexton.model.job import FailsWhen
from sexton.model.run import Outcome, Stop, StopCause
from sexton.outcome.verdict import Evidence, judge

NOW = datetime(2026, 1, 1, tzinfo=UTC)
EVERY_FAILS_WHEN = [
    FailsWhen(produces_stdout=a, produces_stderr=b, nonzero_return=c, always=d)
    for a, b, c, d in itertools.product([False, True], repeat=4)
]


def stop(cause: StopCause, **facts: Any) -> Stop:
    return Stop(cause=cause, requested_at=NOW, **facts)


@pytest.mark.parametrize("fails_when", EVERY_FAILS_WHEN)
@pytest.mark.parametrize("code", [0, 1, -9, -15, -100, 127, None])
@pytest.mark.parametrize(("cause", "outcome"), [
    (StopCause.CANCEL, Outcome.CANCELLED), (StopCause.SHUTDOWN, Outcome.CANCELLED),
    (StopCause.REPLACED, Outcome.REPLACED),
])
def test_what_stopped_it_decides_first(cause: StopCause, outcome: Outcome, code: int | None,
                                       fails_when: FailsWhen) -> None:
    """A cancelled or replaced run is neither success nor failure, whatever its exit code (-100 too) or its output."""
    evidence = Evidence(exit_code=code, stop=stop(cause), wrote_stdout=True, wrote_stderr=True, execution_timeout=1.0)
    assert judge(evidence, fails_when).outcome is outcome


@pytest.mark.parametrize("fails_when", EVERY_FAILS_WHEN)
def test_a_timeout_is_a_failure_whatever_else_fails_when(fails_when: FailsWhen) -> None:
    """-100 is a failure that names the bound."""
    verdict = judge(Evidence(exit_code=-100, stop=stop(StopCause.TIMEOUT), execution_timeout=1.5), fails_when)
    assert verdict.outcome is Outcome.FAILURE and verdict.fail_reason == "exceeded its executionTimeout of 1.5 seconds"


def test_a_timeout_need_not_be_a_failure() -> None:
    """`failsWhen.timeout: false`: its exit code does not make it one either; other observations do."""
    ended = Evidence(exit_code=-100, stop=stop(StopCause.TIMEOUT), wrote_stderr=True, execution_timeout=1.5)
    tolerant = FailsWhen(timeout=False, produces_stderr=False)
    assert judge(ended, tolerant).outcome is Outcome.SUCCESS
    assert judge(ended, msgspec.structs.replace(tolerant, produces_stderr=True)).outcome is Outcome.FAILURE
    assert judge(ended, msgspec.structs.replace(tolerant, always=True)).outcome is Outcome.FAILURE
    assert judge(Evidence(exit_code=1), tolerant).outcome is Outcome.FAILURE


@pytest.mark.parametrize("fails_when", EVERY_FAILS_WHEN)
def test_a_failed_start_is_a_failure_under_every_fails_when(fails_when: FailsWhen) -> None:
    """127 from us (never started) carries what went wrong."""
    verdict = judge(Evidence(exit_code=127, start_failure="could not be started: no"), fails_when)
    assert verdict.outcome is Outcome.FAILURE and verdict.fail_reason == "could not be started: no"


@pytest.mark.parametrize("fails_when", EVERY_FAILS_WHEN)
def test_an_end_nobody_saw_is_unknown(fails_when: FailsWhen) -> None:
    """Without an exit status nothing is claimed."""
    verdict = judge(Evidence(exit_code=None, lost="its supervisor was killed"), fails_when)
    assert verdict.outcome is Outcome.UNKNOWN and verdict.fail_reason == "its supervisor was killed"


@pytest.mark.parametrize("fails_when", EVERY_FAILS_WHEN)
@pytest.mark.parametrize(("code", "out", "err"), list(itertools.product([0, 1, 127, -9], [False, True], [False, True])))
def test_fails_when_in_order(fails_when: FailsWhen, code: int, out: bool, err: bool) -> None:
    """always, then the exit code, then stdout, then stderr; the first that applies is the reason."""
    verdict = judge(Evidence(exit_code=code, wrote_stdout=out, wrote_stderr=err), fails_when)
    expected = next((word for applies, word in [
        (fails_when.always, "always"),
        (fails_when.nonzero_return and code != 0, "signal" if code < 0 else f"code {code}"),
        (fails_when.produces_stdout and out, "stdout"),
        (fails_when.produces_stderr and err, "stderr"),
    ] if applies), None)
    if expected is None:
        assert verdict.outcome is Outcome.SUCCESS and verdict.fail_reason is None
    else:
        assert verdict.outcome is Outcome.FAILURE and expected in (verdict.fail_reason or "")


@pytest.mark.parametrize("fails_when", EVERY_FAILS_WHEN)
def test_a_memory_cap_is_a_failure_under_every_fails_when(fails_when: FailsWhen) -> None:
    """The reason is exactly the cap's, with nothing before it."""
    reached = stop(StopCause.LIMITS, reason="memory limit exceeded (512 MiB)")
    verdict = judge(Evidence(exit_code=-9, stop=reached, wrote_stderr=True), fails_when)
    assert verdict.outcome is Outcome.FAILURE and verdict.fail_reason == "memory limit exceeded (512 MiB)"


def test_the_reason_of_a_cancel_says_who_and_why() -> None:
    """Who asked and why they said they did is kept in the reason."""
    asked = stop(StopCause.CANCEL, requested_by="ops", reason="too hot")
    verdict = judge(Evidence(exit_code=-15, stop=asked), FailsWhen())
    assert verdict.fail_reason == "cancelled by ops: too hot"

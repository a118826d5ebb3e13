"""A run that reaches its memory cap, in a simulated world."""

from __future__ import annotations

import pytest
from simulated import NOT_GRACEFUL, World, job, lines

from sexton.execution.messages import Emptied, Exited, Measured, MemoryExceeded
from sexton.model.job import FailsWhen
from sexton.model.limits import ResourceLimits
from sexton.model.run import Exit, Outcome, StopCause

CAPPED = {"resource_limits": ResourceLimits(memory=512 * 2**20), "kill_timeout": 30.0}
LENIENT = FailsWhen(nonzero_return=False, produces_stderr=False)


@pytest.mark.parametrize("fails_when", [FailsWhen(), LENIENT])
async def test_it_is_killed_whole_at_once(world: World, caplog: pytest.LogCaptureFixture,
                                          fails_when: FailsWhen) -> None:
    """No graceful step and no killTimeout; a failure with the cap in its reason, whatever failsWhen says."""
    world.after(2.0, lambda: MemoryExceeded(world.now))
    record = await world.live(job(fails_when=fails_when, **CAPPED))
    assert [(world.since_start(at), what) for at, what in world.process.orders] == [(2.0, "KILL")]
    assert record.outcome is Outcome.FAILURE and record.fail_reason == "memory limit exceeded (512 MiB)"
    assert record.exit_code == -9 and world.ended == 2.01 and lines(caplog, NOT_GRACEFUL) == []
    assert record.stop is not None and record.stop.cause is StopCause.LIMITS and record.stop.signalled_at is None
    assert record.stop.confirmed_at is not None and record.limits is not None and record.limits.memory_exceeded


async def test_a_main_process_that_ended_well_beside_it(world: World) -> None:
    """A child was killed at the cap and the shell exits 0 all the same: the code is the kill's, the exit the
    kernel's."""
    world.after(1.0, lambda: MemoryExceeded(world.now))
    world.after(1.0, lambda: world.process.exit(0))
    world.after(1.0, lambda: Emptied(world.now, True))
    record = await world.live(job(fails_when=LENIENT, **CAPPED))
    assert record.exit_code == -9 and record.exit == Exit(code=0) and record.outcome is Outcome.FAILURE


async def test_the_cap_during_a_cancel_does_not_change_its_cause(world: World) -> None:
    """The first cause stays: a run that is being cancelled is cancelled; that it reached its cap is in the record."""
    world.process.dies_of_term_after = None
    world.stop(1.0)
    world.after(1.5, lambda: MemoryExceeded(world.now))
    world.after(1.51, lambda: world.process.exit(9))
    world.after(1.51, lambda: Emptied(world.now, True))
    record = await world.live(job(**CAPPED))
    assert record.outcome is Outcome.CANCELLED and record.limits is not None and record.limits.memory_exceeded
    assert record.stop is not None and record.stop.cause is StopCause.CANCEL and world.ended == 1.51


async def test_a_deadline_after_the_cap_keeps_the_kills_code(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Held output beyond the deadline: the code stays -9."""
    world.after(1.0, lambda: MemoryExceeded(world.now))
    record = await world.live(job(execution_timeout=5.0, capture_stdout=True, **CAPPED))
    assert record.exit_code == -9 and record.outcome is Outcome.FAILURE
    assert world.recorded == 31.01, "output that a stranger holds is waited for as after a cancel"


async def test_what_was_measured_is_kept(world: World) -> None:
    """The latest of the supervisor's sums is the record's."""
    world.after(0.5, lambda: Measured(1, 0.25, 4096))
    world.after(0.9, lambda: Measured(7, 0.5, 8192))
    world.exits(1.0)
    record = await world.live(job(**CAPPED))
    assert record.outcome is Outcome.SUCCESS and record.limits is not None and lines_of(record.limits) == (7, 0.5, 8192)
    assert isinstance(world.run.exited, Exited) and not record.limits.memory_exceeded


def lines_of(limits: object) -> tuple[object, ...]:
    return tuple(getattr(limits, name) for name in (
        "process_limit_hits", "cpu_throttled_seconds", "peak_memory_bytes"))

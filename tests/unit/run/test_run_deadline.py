"""executionTimeout, in a simulated world: what it bounds, what it records, and what it leaves alone."""

from __future__ import annotations

import logging

import pytest
from simulated import EXCEEDED, HELD, NOT_GRACEFUL, USAGE, WARNING, World, job, lines

from sexton.execution.messages import Emptied, Exited, Stream
from sexton.model.clock import Monotonic
from sexton.model.run import Outcome, StopCause

CAPTURED = {"capture_stdout": True, "capture_stderr": True}
BY_US = {Stream.STDERR: "stderr", Stream.STDOUT: "stdout"}


async def test_without_a_deadline_a_run_may_take_for_ever(world: World) -> None:
    """executionTimeout is unset by default: ten days later the exit code is still the process's own."""
    world.exits(864_000.0)
    record = await world.live(job())
    assert record.deadline_at is None and record.duration == 864_000.0
    assert record.outcome is Outcome.SUCCESS and record.exit_code == 0 and world.process.orders == []


async def test_a_deadline_ends_the_run_with_minus_100(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """At the deadline: the line is logged at INFO, the run is brought down, exit code and outcome say timeout."""
    record = await world.live(job(execution_timeout=1.0))
    assert [(world.since_start(at), what) for at, what in world.process.orders] == [(1.0, "TERM"), (1.01, "KILL")]
    assert lines(caplog, "Job j exceeded its executionTimeout of 1 seconds, cancelling it...", logging.INFO)
    assert record.exit_code == -100 and record.outcome is Outcome.FAILURE
    assert record.stop is not None and record.stop.cause is StopCause.TIMEOUT
    assert record.exit is not None and record.exit.signal == 15, "what the kernel said is kept beside it"


async def test_a_deadline_that_has_passed_already_is_acted_on_at_once(world: World) -> None:
    """It counts from the start of the process, not from when the daemon heard of it: no time is left, none is given."""
    world.start_heard_late = 5.0
    record = await world.live(job(execution_timeout=1.0))
    assert world.since_start(world.process.orders[0][0]) == 5.0 and record.exit_code == -100
    assert record.deadline_at is not None and record.started_at is not None
    assert (record.deadline_at - record.started_at).total_seconds() == 1.0


async def test_an_end_before_the_deadline_counts_when_it_is_told_after_it(world: World) -> None:
    """News may be held back for other starts: before a run is called too late, what is under way is heard."""
    world.process.under_way = [Exited(0, Monotonic(1000.9), USAGE), Emptied(Monotonic(1000.9), True)]
    record = await world.live(job(execution_timeout=1.0))
    assert record.exit_code == 0 and record.outcome is Outcome.SUCCESS and world.process.orders == []


async def test_output_that_was_not_read_yet_does_not_make_an_end_late(world: World) -> None:
    """A daemon that was stopped, or busy, has both to hear of: the exit, before the deadline, and the rest of the
    output in the pipe. The run had ended."""
    world.process.under_way = [Exited(0, Monotonic(1000.9), USAGE), Emptied(Monotonic(1000.9), True)]
    world.unread = True
    record = await world.live(job(execution_timeout=1.0, **CAPTURED))
    assert record.exit_code == 0 and record.outcome is Outcome.SUCCESS and world.process.orders == []


async def test_exit_and_output_by_the_deadline_keep_the_own_code(world: World) -> None:
    """Process gone and captured output closed before the deadline: its own exit code, no signal."""
    world.exits(0.5, 3)
    world.eof(0.9)
    record = await world.live(job(execution_timeout=1.0, **CAPTURED))
    assert record.exit_code == 3 and record.stop is None and world.process.orders == []
    assert world.ended == 0.9, "the run ended with its output, not with its process"


async def test_output_held_past_the_deadline_times_out(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """An exit of 0 does not save a run whose captured output is open at the deadline: -100; the forced step follows
    without a grace period and without a word about gracefulness."""
    world.exits(0.2, 0, empty=False)
    world.eof(1.05)
    record = await world.live(job(execution_timeout=1.0, kill_timeout=30.0, **CAPTURED))
    assert record.exit_code == -100 and record.outcome is Outcome.FAILURE
    assert [(world.since_start(at), what) for at, what in world.process.orders] == [(1.0, "TERM"), (1.001, "KILL")]
    assert lines(caplog, NOT_GRACEFUL) == [] and lines(caplog, HELD) == []


async def test_nothing_captured_ends_with_the_process(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Without captured streams the run ends when its own process does; the deadline signals nobody it left behind."""
    world.exits(0.2, 0, empty=False)
    world.after(5.0, lambda: None)
    record = await world.live(job(execution_timeout=1.0))
    assert record.exit_code == 0 and record.outcome is Outcome.SUCCESS and world.ended == 0.2
    assert [what for _, what in world.process.orders] == ["RELEASE"] and lines(caplog, EXCEEDED) == []


async def test_the_wall_clock_does_not_move_a_deadline(world: World) -> None:
    """The deadline is monotonic: a wall clock set back an hour changes neither it nor the duration."""
    from datetime import timedelta

    from sexton.model.clock import Clock

    honest = world.clock.now
    jumped = lambda: honest() - timedelta(hours=1 if world.time > 1000.5 else 0)  # noqa: E731
    world.clock = Clock(now=jumped, monotonic=world.clock.monotonic)
    record = await world.live(job(execution_timeout=1.0))
    assert [world.since_start(at) for at, _ in world.process.orders] == [1.0, 1.01]
    assert record.duration == pytest.approx(1.02) and record.exit_code == -100


async def test_after_a_timeout_stderr_then_stdout(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Each captured stream has 30 seconds after the sequence, stderr first: both held are recorded within 60."""
    record = await world.live(job(execution_timeout=1.0, **CAPTURED))
    assert world.pipes is not None
    closed = [(world.since_start(at), stream) for at, stream in world.pipes.closed_by_us]
    assert closed == [(31.02, Stream.STDERR), (61.02, Stream.STDOUT)]
    assert lines(caplog, HELD, WARNING) == [f"job j: stderr {HELD}", f"job j: stdout {HELD}"]
    assert (world.ended, world.recorded) == (1.02, 61.02) and record.duration == pytest.approx(1.02)


@pytest.mark.parametrize("held", [Stream.STDOUT, Stream.STDERR])
async def test_one_held_stream_has_one_bound(world: World, caplog: pytest.LogCaptureFixture, held: Stream) -> None:
    """A run that captures both and whose one stream is held is recorded 30 seconds after the sequence."""
    world.eof(0.1, *({Stream.STDOUT, Stream.STDERR} - {held}))
    await world.live(job(execution_timeout=1.0, **CAPTURED))
    assert world.recorded == 31.02 and lines(caplog, HELD) == [f"job j: {BY_US[held]} {HELD}"]


async def test_a_held_stream_that_closes_in_time_is_whole(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Output that closes 29 seconds after the sequence is waited for; nothing is cut and nothing warned."""
    world.eof(30.0)
    await world.live(job(execution_timeout=1.0, **CAPTURED))
    assert world.recorded == 30.0 and world.ended == 1.02 and lines(caplog, HELD) == []


async def test_a_process_that_outlives_a_timeout(world: World) -> None:
    """Refused signals and a timeout, nothing captured: recorded at once with -100, the process still running."""
    world.process.group_errno = world.process.process_errno = world.process.kill_errno = 1
    world.process.dies_of_term_after = None
    record = await world.live(job(execution_timeout=1.0, kill_timeout=2.0))
    assert record.exit_code == -100 and record.exit is None and world.recorded == world.ended == 3.002
    assert record.gone is not None and record.gone.state.value != "proven"


async def test_a_process_that_outlives_a_timeout_with_output(world: World) -> None:
    """The same with captured output: -100 after the bound of each stream, and our ends are closed then."""
    world.process.group_errno = world.process.process_errno = world.process.kill_errno = 1
    world.process.dies_of_term_after = None
    record = await world.live(job(execution_timeout=1.0, kill_timeout=2.0, **CAPTURED))
    assert world.pipes is not None and world.pipes.open_streams == []
    assert record.exit_code == -100 and record.exit is None and (world.ended, world.recorded) == (3.002, 63.002)


async def test_the_end_is_when_the_process_exited_not_when_that_was_heard(world: World) -> None:
    """Nothing captured: a daemon that hears of the exit two seconds late records the instant of the exit."""
    exit_at = Monotonic(world.time + 1.0)
    world.after(3.0, lambda: Exited(0, exit_at, USAGE))
    world.after(3.0, lambda: Emptied(exit_at, True))
    record = await world.live(job())
    assert record.duration == 1.0 and (world.ended, world.recorded) == (1.0, 3.0)

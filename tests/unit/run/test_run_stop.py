"""Cancel, Replace and shutdown in a simulated world: causes, bounds on held output, refused signals."""

from __future__ import annotations

import pytest
from simulated import EXCEEDED, HELD, NOT_GRACEFUL, WARNING, World, job, lines

from sexton.execution.messages import Stream, SupervisorLost, Swept
from sexton.model.clock import Monotonic
from sexton.model.run import Outcome, Phase, StopCause, Witness
from sexton.run.mailbox import VictimEnded

CAPTURED = {"capture_stdout": True, "capture_stderr": True}
OUTCOMES = {
    StopCause.CANCEL: Outcome.CANCELLED, StopCause.REPLACED: Outcome.REPLACED, StopCause.SHUTDOWN: Outcome.CANCELLED,
}


@pytest.mark.parametrize(("cause", "outcome"), OUTCOMES.items())
async def test_one_bound_covers_both_streams(world: World, caplog: pytest.LogCaptureFixture, cause: StopCause,
                                             outcome: Outcome) -> None:
    """After any stop but a timeout both held streams are closed 30 seconds after the sequence, with one warning."""
    world.stop(2.0, cause)
    record = await world.live(job(**CAPTURED))
    assert world.pipes is not None
    closed = {(world.since_start(at), stream) for at, stream in world.pipes.closed_by_us}
    assert closed == {(32.02, Stream.STDOUT), (32.02, Stream.STDERR)}
    assert lines(caplog, HELD, WARNING) == [f"job j: output {HELD}"]
    assert (world.ended, world.recorded) == (2.02, 32.02)
    assert record.outcome is outcome and record.exit_code == -15 and record.duration == pytest.approx(2.02)


async def test_the_bound_does_not_depend_on_kill_timeout(world: World) -> None:
    """killTimeout 0: the captured output still has its 30 seconds."""
    world.stop(2.0)
    world.process.dies_of_term_after = None
    await world.live(job(kill_timeout=0.0, **CAPTURED))
    assert round(world.recorded - world.ended, 3) == 30.0


async def test_a_cancel_while_only_output_is_held(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The bound also holds for a run whose own process had exited by itself: at once both steps, then 30 seconds."""
    world.exits(0.5, 7, empty=False)
    world.stop(2.0)
    record = await world.live(job(**CAPTURED))
    assert [(world.since_start(at), what) for at, what in world.process.orders] == [(2.0, "TERM"), (2.001, "KILL")]
    assert (world.ended, world.recorded) == (2.011, 32.011) and lines(caplog, NOT_GRACEFUL) == []
    assert record.exit_code == 7 and record.outcome is Outcome.CANCELLED


async def test_a_deadline_that_passes_after_a_cancel(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """While held output is waited for the deadline marks the exit code, sends no signal and moves no bound; the cancel
    still decides the outcome."""
    world.stop(2.0)
    record = await world.live(job(execution_timeout=10.0, **CAPTURED))
    assert [what for _, what in world.process.orders] == ["TERM", "KILL"]
    assert len(lines(caplog, EXCEEDED)) == 1 and lines(caplog, HELD) == [f"job j: output {HELD}"]
    assert record.exit_code == -100 and record.outcome is Outcome.CANCELLED and world.recorded == 32.02
    assert record.stop is not None and record.stop.cause is StopCause.CANCEL


async def test_a_deadline_beyond_the_bound_marks_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A deadline later than the bound never comes: the own code stays."""
    world.stop(2.0, StopCause.REPLACED)
    record = await world.live(job(execution_timeout=40.0, **CAPTURED))
    assert record.exit_code == -15 and record.outcome is Outcome.REPLACED and lines(caplog, EXCEEDED) == []


async def test_a_deadline_that_passes_within_the_grace(world: World) -> None:
    """A replaced run that takes its grace period beyond its own deadline carries -100 and is replaced all the same."""
    world.stop(2.0, StopCause.REPLACED)
    world.process.dies_of_term_after = 5.0
    record = await world.live(job(execution_timeout=4.0))
    assert record.exit_code == -100 and record.outcome is Outcome.REPLACED and world.ended == 7.01
    assert record.fail_reason is not None and record.fail_reason.startswith("replaced")


@pytest.mark.parametrize(("exits_after", "recorded"), [
    (0.2, 32.252), (5, 62.252), (30.2, 62.252), (31, 92.252), (65, 122.252),
])
async def test_looks_at_a_quarter_and_every_30_seconds(world: World, exits_after: float, recorded: float) -> None:
    """Refused signals: the pipes stay open while the process lives; the look that finds it gone
    starts the bound."""
    world.process.group_errno = world.process.process_errno = world.process.kill_errno = 1
    world.process.dies_of_term_after = None
    world.stop(1.0)
    world.exits(2.002 + exits_after, 9)
    record = await world.live(job(kill_timeout=1.0, **CAPTURED))
    assert world.ended == 2.002 and world.recorded == recorded
    assert record.exit_code == 9 and record.outcome is Outcome.CANCELLED


async def test_recorded_when_it_exits_and_its_output_closes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A process that outlived the forced step and closes its output is recorded then, with its own code."""
    world.process.group_errno = world.process.process_errno = world.process.kill_errno = 1
    world.process.dies_of_term_after = None
    world.stop(1.0)
    world.exits(20.0, 0)
    world.eof(21.0)
    record = await world.live(job(kill_timeout=1.0, **CAPTURED))
    assert (world.ended, world.recorded) == (2.002, 21.0) and record.exit_code == 0 and lines(caplog, HELD) == []
    assert record.finished_at is not None and record.duration == pytest.approx(2.002)


async def test_the_deadline_of_a_process_that_cannot_be_ended(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Cancelled, refused, and its deadline passes first: -100 after 30 seconds for each captured stream."""
    world.process.group_errno = world.process.process_errno = world.process.kill_errno = 1
    world.process.dies_of_term_after = None
    world.stop(1.0)
    record = await world.live(job(execution_timeout=10.0, kill_timeout=1.0, **CAPTURED))
    assert record.exit_code == -100 and record.outcome is Outcome.CANCELLED
    assert (world.ended, world.recorded) == (2.002, 70.0) and len(lines(caplog, EXCEEDED)) == 1
    assert lines(caplog, HELD) == [f"job j: stderr {HELD}", f"job j: stdout {HELD}"]


async def test_a_refused_cancel_without_output_or_deadline(world: World) -> None:
    """Nothing captured: the run has ended with the sequence and is recorded when its process exits by itself."""
    world.process.group_errno = world.process.process_errno = world.process.kill_errno = 1
    world.process.dies_of_term_after = None
    world.stop(1.0)
    world.exits(500.0, 4)
    record = await world.live(job(kill_timeout=1.0))
    assert (world.ended, world.recorded) == (2.002, 500.0) and record.exit_code == 4


@pytest.mark.parametrize("first", [StopCause.CANCEL, StopCause.REPLACED, StopCause.SHUTDOWN])
@pytest.mark.parametrize("second", [StopCause.CANCEL, StopCause.REPLACED, StopCause.SHUTDOWN])
async def test_the_first_cause_wins(world: World, first: StopCause, second: StopCause) -> None:
    """A later stop changes neither cause nor outcome, and takes no second graceful step."""
    world.process.dies_of_term_after = 3.0
    world.stop(1.0, first)
    world.stop(2.0, second)
    record = await world.live(job())
    assert record.stop is not None and record.stop.cause is first and record.outcome is OUTCOMES[first]
    assert [what for _, what in world.process.orders] == ["TERM", "KILL"]


async def test_a_cancel_after_a_timeout_does_not_change_it(world: World) -> None:
    """Timed out, then cancelled within the grace: a failure with -100."""
    world.process.dies_of_term_after = 3.0
    world.stop(2.0, StopCause.CANCEL)
    record = await world.live(job(execution_timeout=1.0))
    assert record.stop is not None and record.stop.cause is StopCause.TIMEOUT
    assert record.outcome is Outcome.FAILURE and record.exit_code == -100


async def test_force_cuts_a_grace_short(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """A second cancel with force ends the wait at once, and the line does not claim that killTimeout has passed."""
    world.process.dies_of_term_after = None
    world.stop(1.0)
    world.stop(2.0, force=True)
    record = await world.live(job(kill_timeout=30.0))
    assert [(world.since_start(at), what) for at, what in world.process.orders] == [(1.0, "TERM"), (2.0, "KILL")]
    assert record.exit_code == -9 and lines(caplog, f"{NOT_GRACEFUL} 30") == [] and lines(caplog, "killing it...")


async def test_a_stop_before_the_process_exists(world: World) -> None:
    """Queued for a supervisor, not started: the run is taken back; no process, no exit code, proven never started."""
    world.starts = world.start_asked_supervisor = False
    world.stop(1.0)
    record = await world.live(job(**CAPTURED))
    assert record.outcome is Outcome.CANCELLED and record.exit_code is None and record.started_at is None
    assert record.gone is not None and [w.value for w in record.gone.witnesses] == ["never-started"]
    assert world.process.orders == [] and world.recorded == 1.0


async def test_a_replacement_waits_for_all_victims(world: World) -> None:
    """It starts only when the last of the runs it replaces has ended."""
    world.after(1.0, lambda: VictimEnded("a"))
    world.after(7.0, lambda: VictimEnded("b"))
    world.exits(8.0)
    await world.live(job(), frozenset({"a", "b"}))
    assert world.run.started is not None and world.since_start(world.run.started.at) == 7.0


async def test_a_replacement_that_is_replaced_never_starts(world: World) -> None:
    """Stopped while it waits: ended at once as replaced, without a process. The ledger knew of the promise."""
    world.stop(1.0, StopCause.REPLACED)
    record = await world.live(job(), frozenset({"a"}))
    assert record.outcome is Outcome.REPLACED and record.started_at is None and world.intents == 1
    assert world.ended == 1.0 and record.gone is not None and record.gone.state.value == "proven"


async def test_a_failed_start_has_ended(world: World) -> None:
    """No process: 127, a failure, ended and recorded at once."""
    world.starts = False
    record = await world.live(job(**CAPTURED))
    assert record.exit_code == 127 and record.outcome is Outcome.FAILURE and world.recorded == 0.0
    assert record.fail_reason == "could not be started: cannot execute: No such file or directory"


async def test_a_stop_after_the_end_changes_nothing(world: World) -> None:
    """A request that arrives when the run has ended by itself: it keeps the outcome that it ended with."""
    world.exits(1.0, 0, empty=False)
    world.stop(1.05)
    record = await world.live(job())
    assert world.run.phase is Phase.RECORDED
    assert record.outcome is Outcome.SUCCESS and record.stop is None and record.exit_code == 0


async def test_a_process_that_went_by_itself_is_proven_gone_in_the_record(world: World) -> None:
    """Refused, and gone when the run is recorded: the record carries the proof and its instant, not the survivor."""
    world.process.group_errno = world.process.process_errno = world.process.kill_errno = 1
    world.process.dies_of_term_after = None
    world.stop(1.0)
    world.exits(20.0, 4)
    record = await world.live(job(kill_timeout=1.0))
    assert record.gone is not None and record.gone.state.value == "proven" and not record.gone.survivors
    assert record.stop is not None and record.stop.confirmed_at == world.run.wall(Monotonic(1020.0))


async def test_a_supervisor_that_is_lost_before_it_told_of_the_start(world: World) -> None:
    """It may have started the process: the run has not ended before the sweep, and how it went is unknown."""
    world.start_heard_late = 1e6
    world.after(1.0, lambda: SupervisorLost(world.now))
    world.after(1.5, lambda: Swept(world.now))
    record = await world.live(job(**CAPTURED))
    assert world.ended == 1.5 and record.outcome is Outcome.UNKNOWN and record.exit_code is None
    assert record.fail_reason is not None and "supervisor" in record.fail_reason
    assert record.gone is not None and record.gone.witnesses == (Witness.SWEEP,)

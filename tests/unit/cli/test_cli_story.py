"""How a run's end is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sexton.cli.answers import RunAnswer
from sexton.cli.runs import run_facts
from sexton.cli.story import ending, exit_of, is_proven_gone, output_of, proof, stop_facts
from sexton.cli.terminal import Tone
from sexton.model.run import (
    Exit,
    Gone,
    GoneState,
    Outcome,
    OutputFacts,
    Phase,
    Stop,
    StopCause,
    StreamSize,
    Survivor,
    Trigger,
    Witness,
)

AT = datetime(2026, 10, 5, 12, 0, tzinfo=UTC)
STUCK = Survivor(pid=77, uid=0, state="D", reason="in the kernel")


def run(**more: Any) -> RunAnswer:
    given: dict[str, Any] = {
        "id": "01a22bd7-7085-7000-b983-8db61362bb00", "job": "j", "trigger": Trigger.MANUAL,
        "phase": Phase.RECORDED, "created_at": AT, "outcome": Outcome.FAILURE,
    }  # fmt: skip
    return RunAnswer(**given | more)


def stop(cause: StopCause = StopCause.TIMEOUT, **more: Any) -> Stop:
    return Stop(cause=cause, requested_at=AT, **more)


def test_a_timeout_that_worked_is_told_apart_from_one_that_did_not() -> None:
    """Timed out and gone; timed out and still there; timed out and nobody knows."""
    gone = run(stop=stop(), gone=Gone(state=GoneState.PROVEN, witnesses=(Witness.CGROUP,)))
    stuck = run(stop=stop(), gone=Gone(state=GoneState.SURVIVORS, survivors=(STUCK,)))
    unknown = run(stop=stop(), gone=Gone(state=GoneState.UNKNOWN))
    assert "nothing of the run is left (its cgroup is empty)" in proof(gone).text
    assert "COULD NOT BE TERMINATED: 1 process outlived" in proof(stuck).text
    assert "NOT PROVEN" in proof(unknown).text
    assert [is_proven_gone(each) for each in (gone, stuck, unknown)] == [True, False, False]
    assert [proof(each).tone for each in (gone, stuck, unknown)] == [Tone.GOOD, Tone.BAD, Tone.BAD]


def test_what_a_run_left_behind_by_itself_is_no_failed_stop() -> None:
    """Nobody tried to end it, and it says so."""
    left = run(outcome=Outcome.SUCCESS, gone=Gone(state=GoneState.SURVIVORS, survivors=(STUCK, STUCK)))
    assert proof(left).text == "it ended by itself and left 2 processes behind; they were not touched"


def test_the_steps_of_a_stop_are_told_with_their_distance() -> None:
    """Requested, signalled, forced, confirmed: each with its instant, or that it was not taken."""
    late = AT + timedelta(seconds=30)
    found = stop(StopCause.CANCEL, requested_by="me", reason="enough", signalled_at=AT, forced_at=late)
    rows = {name.strip(): cell.text for name, cell in stop_facts(found)}
    assert rows["stop"] == "cancelled by me: enough"
    assert rows["signalled"].endswith("(after 0 s)")
    assert rows["forced"].endswith("(after 30 s)")
    assert rows["confirmed"] == "not confirmed"


def test_every_survivor_is_named() -> None:
    """With what is known about it: a person has to find it."""
    rows = run_facts(run(stop=stop(), gone=Gone(state=GoneState.SURVIVORS, survivors=(STUCK,))))
    assert "pid 77, uid 0, state D: in the kernel" in [cell.text for name, cell in rows if "survivor" in name]


def test_an_ending_is_one_sentence() -> None:
    """Outcome, time, reason; the phase while there is no outcome."""
    ended = run(duration=1.25, fail_reason="command exited with code 3")
    assert ending(ended) == "failure after 1.2 s: command exited with code 3"
    assert ending(run(outcome=None, phase=Phase.STOPPING)) == "stopping"


def test_the_kernels_word_is_kept_apart() -> None:
    """A code, or a signal with its name."""
    assert exit_of(Exit(code=3)) == "code 3"
    assert exit_of(Exit(signal=9)) == "killed by signal 9 (SIGKILL)"
    assert exit_of(Exit(signal=250)) == "killed by signal 250 (unnamed)"


def test_output_that_is_not_all_there_says_so() -> None:
    """Not captured, cut off, and dropped are three different things."""
    told = output_of(OutputFacts(stderr=StreamSize(bytes=5, truncated=True), log_dropped_bytes=9))
    assert told.split("; ") == [
        "stdout not captured",
        "stderr 5 bytes, closed by us before its end",
        "9 bytes from the middle were not kept",
    ]

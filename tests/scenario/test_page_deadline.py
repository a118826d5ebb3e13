"""The page's rules on executionTimeout, with real runs and real held output."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
from page_kit import Outside, at, cancel, job, line_count, phase, span
from rig import Rig, alive, always, living, new_tag, until

EXCEEDED = "seconds, cancelling it..."
NOT_GRACEFUL = "did not gracefully terminate"
SLACK = 1.5


@pytest.fixture
def outside() -> Iterator[Outside]:
    holder = Outside()
    yield holder
    holder.close()


def test_a_run_beyond_its_time_is_ended_with_all_it_started(rig: Rig) -> None:
    """Line, -100, a failure, and nothing left of helper or main."""
    tag = new_tag()
    rig.start([job("j", f"sleep {tag} & sleep {tag}", executionTimeout=0.5, captureStdout=True, captureStderr=True)])
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == -100 and record["outcome"] == "failure" and record["stop"]["cause"] == "timeout"
    assert at(record["deadline_at"]) - at(record["started_at"]) == pytest.approx(0.5, abs=1e-3)
    assert 0.5 <= record["duration"] < 0.5 + SLACK and record["gone"]["state"] == "proven" and living(tag) == []
    assert "INFO" in rig.logged("Job j exceeded its executionTimeout of 0.5 seconds, cancelling it...")


def test_a_run_within_its_time_keeps_its_code(rig: Rig) -> None:
    """Process gone and output closed before the deadline, which then means nothing."""
    rig.start([job("j", "echo out; (sleep 0.2; echo late) & exit 5", executionTimeout=30, captureStdout=True)])
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == 5 and record["stop"] is None and line_count(rig, record["id"], EXCEEDED) == 0
    assert record["output"]["stdout"]["bytes"] == len("out\nlate\n") and record["duration"] >= 0.15


def test_a_daemon_that_was_stopped_reads_the_output_before_it_judges(rig: Rig) -> None:
    """A run that ends within its time while the daemon is stopped, and whose last output is still in the pipe when the
    daemon goes on after the deadline, has not exceeded it."""
    rig.start([job("j", f"while [ ! -e {rig.folder}/go ]; do sleep 0.02; done; head -c 60000 /dev/zero; exit 5",
                   executionTimeout=2, captureStdout=True)])
    run = rig.fire()
    pid = rig.running(run)
    deadline = at(rig.run(run)["deadline_at"])
    rig.signal(signal.SIGSTOP)
    (rig.folder / "go").touch()
    until(lambda: not alive(pid), 1.5, "its end, in time")
    until(lambda: time.time() > deadline + 0.1, 5, "the deadline has passed")
    rig.signal(signal.SIGCONT)
    record = rig.recorded(run)
    assert record["exit_code"] == 5 and record["stop"] is None and record["output"]["stdout"]["bytes"] == 60000


def test_ignoring_the_graceful_step(rig: Rig) -> None:
    """Ignored by the shell and, inherited, by what it starts: killed when killTimeout is over."""
    rig.start([job("j", "trap '' TERM\necho starting...\nsleep 10\necho never", captureStdout=True,
                   executionTimeout=0.5, killTimeout=0.4)])
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == -100 and record["exit"]["signal"] == 9
    assert 0.39 <= span(record, "signalled_at", "forced_at") < 0.4 + SLACK
    assert record["output"]["stdout"] == {"bytes": len("starting...\n"), "truncated": False}
    rig.logged("Job j did not gracefully terminate after 0.4 seconds, killing it...")


def test_a_handler_does_not_keep_a_job_alive(rig: Rig) -> None:
    """A trap that only runs a command: what the shell waits for dies of the signal, the shell ends by itself."""
    rig.start([job("j", "trap 'echo handler' TERM; sleep 10", captureStdout=True, executionTimeout=0.5,
                   killTimeout=20)])
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == -100 and record["exit"]["code"] is not None and record["duration"] < 0.5 + SLACK
    assert record["output"]["stdout"]["bytes"] == len("handler\n") and line_count(rig, record["id"], NOT_GRACEFUL) == 0


@pytest.mark.parametrize("stream", ["captureStdout", "captureStderr"])
def test_output_held_at_the_deadline_is_a_timeout(rig: Rig, stream: str) -> None:
    """The own process exited with 0, its helper holds a captured stream: -100, the helper gone without a grace."""
    tag = new_tag()
    rig.start([job("j", f"sh -c 'trap \"\" TERM; sleep {tag}; sleep {tag}' & exit 0", executionTimeout=0.6,
                   killTimeout=30, **{stream: True})])
    run = rig.fire()
    assert phase(rig, run, "draining")["exit"]["code"] == 0
    record = rig.recorded(run)
    assert record["exit_code"] == -100 and record["exit"]["code"] == 0 and record["outcome"] == "failure"
    assert span(record, "signalled_at", "forced_at") < SLACK and record["duration"] < 0.6 + SLACK
    assert living(tag) == []
    assert line_count(rig, run, NOT_GRACEFUL) == 0 and line_count(rig, run, EXCEEDED) == 1


def test_a_stream_that_is_not_captured_holds_nothing(rig: Rig) -> None:
    """Stdout is held but only stderr is captured, and that is closed: the run ends with its process."""
    tag = new_tag()
    rig.start([job("j", f"sleep {tag} 2>/dev/null & exit 0", executionTimeout=0.6, captureStderr=True)])
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == 0 and record["stop"] is None
    _still_there_after_the_deadline(rig, record["id"], tag)


def test_what_a_run_left_behind_is_spared(rig: Rig) -> None:
    """Nothing is captured: the run ends with its own process, and the deadline signals nobody."""
    tag = new_tag()
    rig.start([job("j", f"sleep {tag} & exit 0", executionTimeout=0.6)])
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == 0 and record["outcome"] == "success" and record["duration"] < 0.6
    assert [s["pid"] for s in record["gone"]["survivors"]] == living(tag)
    _still_there_after_the_deadline(rig, record["id"], tag)


def _still_there_after_the_deadline(rig: Rig, run: str, tag: str) -> None:
    left = living(tag)
    try:
        always(lambda: living(tag) == left and len(left) == 1, 1.0, "the process that was left behind")
        assert line_count(rig, run, EXCEEDED) == 0
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)


def test_a_timed_out_run_ends_before_its_held_output(rig: Rig, outside: Outside) -> None:
    """Held from outside: the run has ended when the ladder has, is recorded when the stream closes, and its end and
    duration say when it ended."""
    rig.start([job("j", outside.giving(1, 2), executionTimeout=1.0, killTimeout=1, captureStdout=True,
                   captureStderr=True)])
    run = rig.fire()
    outside.take()
    ended = phase(rig, run, "ended")
    assert ended["finished_at"] is not None and ended["outcome"] is None
    always(lambda: rig.run(run)["phase"] == "ended" and rig.job()["running"], 0.7, "not recorded while it is held")
    outside.let_go()
    record = rig.recorded(run)
    assert record["exit_code"] == -100 and record["finished_at"] == ended["finished_at"]
    assert record["duration"] < 1.0 + SLACK and record["output"]["stdout"]["truncated"] is False


def test_the_deadline_of_a_cancelled_run_that_waits_for_output(rig: Rig, outside: Outside) -> None:
    """Cancelled first, its deadline passes while its output is held: -100 and the line, cancelled all the same; no
    second sequence."""
    rig.start([job("j", outside.giving(1), executionTimeout=1.5, killTimeout=1, captureStdout=True)])
    run = rig.fire()
    outside.take()
    view = cancel(rig, run, reason="test")
    assert view["phase"] == "ended" and view["exit_code"] == -15
    rig.logged("Job j exceeded its executionTimeout of 1.5 seconds, cancelling it...")
    assert rig.run(run)["phase"] == "ended" and rig.run(run)["stop"] == view["stop"]
    outside.let_go()
    record = rig.recorded(run)
    assert record["exit_code"] == -100 and record["outcome"] == "cancelled" and record["stop"]["cause"] == "cancel"
    assert record["exit"]["signal"] == 15 and record["finished_at"] == view["finished_at"]


def test_a_command_that_exits_and_is_held_outside_then_cancelled(rig: Rig, outside: Outside) -> None:
    """The own process exited by itself; a cancel finds nobody to signal and ends the run with its own code."""
    rig.start([job("j", outside.giving(1, then="os._exit(6)"), killTimeout=30, captureStdout=True)])
    run = rig.fire()
    outside.take()
    phase(rig, run, "draining")
    view = cancel(rig, run)
    assert view["phase"] == "ended" and span(view, "requested_at", "forced_at") < SLACK
    outside.let_go()
    record = rig.recorded(run)
    assert record["exit_code"] == 6 and record["outcome"] == "cancelled" and line_count(rig, run, NOT_GRACEFUL) == 0


def test_a_failing_start_is_no_timeout(rig: Rig) -> None:
    """127 is for what never started, -100 for what was ended by its deadline."""
    rig.start([job("j", ["/no/such/program"], executionTimeout=0.2)])
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == 127 and record["stop"] is None and record["deadline_at"] is None


def test_forbid_runs_again_after_a_timeout(rig: Rig) -> None:
    """A helper that would hold the output for ever cannot keep a Forbid job from its next fire."""
    tag = new_tag()
    rig.start([job("j", f"sleep {tag} & sleep {tag}", schedule="* * * * * * *", executionTimeout=0.4,
                   captureStdout=True, concurrencyPolicy="Forbid")])
    until(lambda: len(rig.runs()) >= 2, 15, "two records")
    assert {record["exit_code"] for record in rig.runs()} == {-100}

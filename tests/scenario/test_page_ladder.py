"""The page's ladder with real processes: graceful step, the wait for the own process, the forced step, exit codes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from page_kit import PATIENT, Marks, at, cancel, job, line_count, phase, since, span
from rig import Rig, alive, living, new_tag, until

NOT_GRACEFUL = "did not gracefully terminate"
SLACK = 1.5
"""Seconds; two cores and three test processes."""


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path)


def worker(folder: Path, marks: Marks, seconds: float = 0.6) -> str:
    """A program that needs some time to end after SIGTERM, and says when it has."""
    path = folder / "worker"
    path.write_text(f"trap 'sleep {seconds}; {marks.say('drained')}; exit 9' TERM\n{marks.say('ready')}\n{PATIENT}\n")
    return str(path)


def test_each_run_has_a_session_and_a_group(rig: Rig) -> None:
    """The own process leads a session and a group whose number is its pid."""
    tag = new_tag()
    rig.start([job("j", f"sleep {tag}; true")])
    run = rig.fire()
    pid = rig.running(run)
    until(lambda: len(living(tag)) == 2, 10, "shell and sleep")
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert {os.getpgid(member) for member in living(tag)} == {pid}
    cancel(rig, run)


def test_term_reaches_the_whole_group(rig: Rig, marks: Marks) -> None:
    """Own process and descendant both get SIGTERM, at the same moment."""
    child = f"trap '{marks.say('child')}; exit 0' TERM; {marks.say('ready')}; {PATIENT}"
    own = f"trap '{marks.say('parent')}; wait; exit 5' TERM; {marks.say('ready')}; {PATIENT}"
    rig.start([job("j", f"({child}) & {own}")])
    run = rig.fire()
    marks.wait("ready", 2)
    cancel(rig, run)
    record = rig.recorded(run)
    assert sorted(marks.words()) == ["child", "parent", "ready", "ready"] and record["exit_code"] == 5
    assert line_count(rig, run, NOT_GRACEFUL) == 0


def test_term_reaches_the_group_of_an_own_process_that_has_exited(rig: Rig, marks: Marks) -> None:
    """Only a descendant is left and holds the output: it gets SIGTERM, and SIGKILL at once after it."""
    tag = new_tag()
    child = f"trap '{marks.say('asked')}' TERM; {marks.say('ready')}; while :; do sleep 0.02; : {tag}; done"
    rig.start([job("j", f"({child}) & exit 0", captureStdout=True, killTimeout=30)])
    run = rig.fire()
    marks.wait("ready")
    phase(rig, run, "draining")
    asked = time.monotonic()
    view = cancel(rig, run)
    assert since(asked) < 10 and living(tag) == [] and view["stop"]["signalled_at"] <= view["stop"]["forced_at"]
    assert span(view, "requested_at", "forced_at") < SLACK and line_count(rig, run, NOT_GRACEFUL) == 0
    assert rig.recorded(run)["exit_code"] == 0


def test_kill_reaches_the_whole_group(rig: Rig) -> None:
    """Members that ignore SIGTERM die although the own process went at once; the wait did not last killTimeout."""
    tag = new_tag()
    rig.start([job("j", f"sh -c 'trap \"\" TERM; sleep {tag}; sleep {tag}' & exec sleep {tag}", killTimeout=30)])
    run = rig.fire()
    until(lambda: len(living(tag)) == 3, 10, "three processes")
    view = cancel(rig, run)
    assert living(tag) == [] and span(view, "signalled_at", "forced_at") < SLACK
    record = rig.recorded(run)
    assert record["exit_code"] == -15 and record["gone"]["state"] == "proven"
    assert line_count(rig, run, NOT_GRACEFUL) == 0


def test_what_left_the_group_is_ended_too(rig: Rig) -> None:
    """A descendant in a session of its own, that ignores SIGTERM, is gone when the sequence has finished."""
    tag = new_tag()
    rig.start([job("j", f"setsid sh -c 'trap \"\" TERM; sleep {tag}; sleep {tag}' & exec sleep {tag}")])
    run = rig.fire()
    until(lambda: len(living(tag)) == 3, 10, "three processes")
    view = cancel(rig, run)
    assert living(tag) == [] and view["gone"]["state"] == "proven" and view["stop"]["confirmed_at"] is not None


def test_the_wait_ends_with_the_own_process(rig: Rig, marks: Marks) -> None:
    """It takes 0.7 of 30 seconds: the forced step follows within 0.25 s of the exit (and what two cores need)."""
    rig.start([job("j", f"trap 'sleep 0.7; exit 3' TERM; {marks.say('ready')}; {PATIENT}", killTimeout=30)])
    run = rig.fire()
    marks.wait("ready")
    view = cancel(rig, run)
    assert 0.69 <= span(view, "signalled_at", "forced_at") < 0.95 + SLACK
    record = rig.recorded(run)
    assert record["exit_code"] == 3 and record["exit"]["code"] == 3 and record["outcome"] == "cancelled"


def test_the_wait_ends_although_a_descendant_holds_the_output(rig: Rig, marks: Marks) -> None:
    """An open pipe does not lengthen the wait: the exit of the own process is what counts."""
    tag = new_tag()
    own = f"trap 'exit 4' TERM; {marks.say('ready')}; {PATIENT}"
    rig.start([job("j", f"sh -c 'trap \"\" TERM; sleep {tag}; sleep {tag}' & {own}", captureStdout=True,
                   killTimeout=30)])
    run = rig.fire()
    marks.wait("ready")
    view = cancel(rig, run)
    assert span(view, "signalled_at", "forced_at") < 0.25 + SLACK and living(tag) == []
    record = rig.recorded(run)
    assert record["exit_code"] == 4 and record["output"]["stdout"]["truncated"] is False


def test_kill_timeout_is_the_bound(rig: Rig) -> None:
    """A process that ignores SIGTERM has exactly killTimeout, then it is killed, and the log says so."""
    tag = new_tag()
    rig.start([job("j", f"trap '' TERM; sleep {tag}", killTimeout=0.6)])
    run = rig.fire()
    until(lambda: len(living(tag)) == 2, 10, "shell and sleep")
    view = cancel(rig, run)
    assert 0.59 <= span(view, "signalled_at", "forced_at") < 0.6 + SLACK and living(tag) == []
    record = rig.recorded(run)
    assert record["exit_code"] == -9 and record["exit"]["signal"] == 9
    assert "INFO" in rig.logged("Job j did not gracefully terminate after 0.6 seconds, killing it...")


def test_kill_timeout_zero(rig: Rig) -> None:
    """0 is a valid bound: the forced step follows the graceful one with no grace period."""
    tag = new_tag()
    rig.start([job("j", f"trap 'sleep 5' TERM; sleep {tag}", killTimeout=0)])
    run = rig.fire()
    until(lambda: len(living(tag)) == 2, 10, "shell and sleep")
    view = cancel(rig, run)
    assert 0 <= span(view, "signalled_at", "forced_at") < SLACK and living(tag) == []
    assert rig.recorded(run)["exit_code"] == -9


def test_kill_timeout_is_30_seconds_by_default(rig: Rig) -> None:
    """A job that does not say has 30 seconds, and no executionTimeout, and overlaps, on this node."""
    rig.start([{"name": "j", "schedule": "@yearly", "command": "true"}])
    view = rig.job()
    assert view["killTimeout"] == 30 and view["executionTimeout"] is None
    assert view["concurrencyPolicy"] == "Allow" and view["concurrencyScope"] == "node"


def test_defaults_set_them_for_all_jobs(rig: Rig) -> None:
    """The four options are set for each job by itself, or for all in `defaults`."""
    own = {"name": "own", "schedule": "@yearly", "command": "true", "killTimeout": 4}
    rig.start([own, {"name": "j", "schedule": "@yearly", "command": "true"}],
              defaults={"killTimeout": 7, "executionTimeout": 8, "concurrencyPolicy": "Forbid"})
    assert (rig.job("own")["killTimeout"], rig.job()["killTimeout"]) == (4, 7)
    assert rig.job()["executionTimeout"] == 8 and rig.job()["concurrencyPolicy"] == "Forbid"


def test_a_list_is_its_own_process_and_has_the_grace(rig: Rig, marks: Marks, tmp_path: Path) -> None:
    """No shell in between: the program is the own process and may drain."""
    rig.start([job("j", ["/bin/sh", worker(tmp_path, marks)])])
    run = rig.fire()
    marks.wait("ready")
    pid = rig.running(run)
    assert Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1].decode() == str(tmp_path / "worker")
    cancel(rig, run)
    assert marks.words() == ["ready", "drained"] and rig.recorded(run)["exit_code"] == 9


def test_a_shell_without_a_trap_takes_its_child_along(rig: Rig, marks: Marks, tmp_path: Path) -> None:
    """The own process is the shell, which dies at once: its child is killed and does not drain."""
    rig.start([job("j", f"sh {worker(tmp_path, marks)}; true")])
    run = rig.fire()
    marks.wait("ready")
    view = cancel(rig, run)
    assert span(view, "signalled_at", "forced_at") < 0.5 + SLACK
    assert rig.recorded(run)["exit_code"] == -15 and marks.words() == ["ready"]


def test_exec_gives_the_grace_to_the_program(rig: Rig, marks: Marks, tmp_path: Path) -> None:
    """With exec the program replaces the shell and is the own process."""
    rig.start([job("j", f"cd /; exec sh {worker(tmp_path, marks)}")])
    run = rig.fire()
    marks.wait("ready")
    cancel(rig, run)
    assert marks.words() == ["ready", "drained"] and rig.recorded(run)["exit_code"] == 9


def test_a_shell_with_a_trap_waits_for_its_child(rig: Rig, marks: Marks, tmp_path: Path) -> None:
    """The trap runs when the program it waits for has exited: the shell keeps the grace open."""
    rig.start([job("j", f"trap 'exit 143' TERM; sh {worker(tmp_path, marks)}; {marks.say('never')}")])
    run = rig.fire()
    marks.wait("ready")
    cancel(rig, run)
    assert marks.words() == ["ready", "drained"] and rig.recorded(run)["exit_code"] == 143


def test_force_cuts_a_grace_short(rig: Rig) -> None:
    """A cancel waits for an unwilling process; the same request with force ends it at once, and is logged as that."""
    tag = new_tag()
    rig.start([job("j", f"trap '' TERM; sleep {tag}", killTimeout=60)])
    run = rig.fire()
    until(lambda: len(living(tag)) == 2, 10, "shell and sleep")
    status, view = rig.http("POST", f"/runs/{run}/cancel", {"reason": "gently"})
    assert status == 202
    phase(rig, run, "stopping")
    view = cancel(rig, run, force=True, reason="now")
    assert living(tag) == [] and span(view, "signalled_at", "forced_at") < 20
    record = rig.recorded(run)
    assert record["stop"]["reason"] == "gently" and record["exit_code"] == -9
    assert line_count(rig, run, NOT_GRACEFUL) == 0


def test_a_cancel_of_the_job_stops_every_instance(rig: Rig) -> None:
    """POST /jobs/{name}/cancel answers when the sequence of each has finished; then there is nothing to cancel."""
    tag = new_tag()
    rig.start([job("j", f"exec sleep {tag}")])
    runs = [rig.fire() for _ in range(3)]
    for run in runs:
        rig.running(run)
    assert rig.http("POST", "/jobs/j/cancel") == (200, {"cancelled": "j", "instances": 3})
    assert living(tag) == []
    assert {rig.recorded(run)["outcome"] for run in runs} == {"cancelled"}
    status, body = rig.http("POST", "/jobs/j/cancel")
    assert status == 409 and body == {"error": "job 'j' is not running"}


def test_finished_at_is_the_end_of_the_sequence(rig: Rig) -> None:
    """The record's end and duration are those of the ladder, and they agree with its own instants."""
    rig.start([job("j", "trap '' TERM; sleep 60", killTimeout=0.5)])
    run = rig.fire()
    rig.running(run)
    cancel(rig, run)
    record = rig.recorded(run)
    assert record["stop"]["confirmed_at"] == record["finished_at"] >= record["stop"]["forced_at"]
    assert record["duration"] == pytest.approx(at(record["finished_at"]) - at(record["started_at"]), abs=0.05)


CODES = {
    "exit 0": (0, "success"), "exit 7": (7, "failure"),
    "kill -USR1 $$": (-10, "failure"), "kill -9 $$": (-9, "failure"),
}


def test_exit_codes_say_how_it_ended(rig: Rig) -> None:
    """An exit keeps its code; a signal N is -N, whoever sent it; -100 and 127 are ours alone."""
    rig.start([job(f"j{number}", command) for number, command in enumerate(CODES)])
    for number, (code, outcome) in enumerate(CODES.values()):
        record = rig.recorded(rig.fire(f"j{number}"))
        assert (record["exit_code"], record["outcome"], record["stop"]) == (code, outcome, None)
        assert record["exit"]["signal"] == (-code if code < 0 else None)


def test_others_are_not_touched(rig: Rig) -> None:
    """The ladder of one run ends nothing of another run of the same job."""
    tag = new_tag()
    rig.start([job("j", f"sleep {tag}; true")])
    first, second = rig.fire(), rig.fire()
    pids = [rig.running(first), rig.running(second)]
    until(lambda: len(living(tag)) == 4, 10, "two shells and two sleeps")
    cancel(rig, first, force=True)
    assert not alive(pids[0]) and alive(pids[1]) and len(living(tag)) == 2
    cancel(rig, second)

"""Signals that the operating system refuses: a daemon without CAP_KILL and a job of another user."""

from __future__ import annotations

import os
import signal

import pytest
from page_kit import at, job, line_count, phase, span
from refused_kit import NOBODY, needs_root, refused
from rig import Rig, alive, until

pytestmark = needs_root
SLACK = 1.5


def test_a_refused_cancel_runs_to_its_end_and_says_so(weak: Rig) -> None:
    """Each step logs the refusal for the group and for the process; killTimeout is waited for; the run has ended then,
    beside its process; the record comes with the process's own exit and code."""
    weak.start([refused("j", 2.5)])
    run = weak.fire()
    pid = weak.running(run)
    status, view = weak.http("POST", f"/runs/{run}/cancel?wait=30")
    assert status == 200 and view["phase"] == "ended" and alive(pid)
    assert span(view, "signalled_at", "forced_at") >= 0.4 and view["stop"]["confirmed_at"] is None
    assert view["gone"]["state"] == "survivors" and pid in [s["pid"] for s in view["gone"]["survivors"]]
    assert weak.job()["running"] and pid in weak.job()["pids"]
    record = weak.recorded(run)
    assert not alive(pid) and record["exit_code"] == 9 and record["outcome"] == "cancelled"
    assert record["finished_at"] == view["finished_at"] and record["duration"] < 0.4 + SLACK
    assert record["gone"]["state"] == "proven", "by the time of the record it had gone by itself"
    assert at(record["stop"]["confirmed_at"]) > at(record["finished_at"])
    group = f"Job j: could not signal the process group of pid {pid} (Operation not permitted); falling back"
    process = f"Job j: could not signal its process (pid {pid}): Operation not permitted"
    assert line_count(weak, run, "WARNING", group) == 2 and line_count(weak, run, "WARNING", process) == 2
    assert line_count(weak, run, "Job j did not gracefully terminate after 0.4 seconds, killing it...") == 1


@pytest.mark.parametrize("policy", ["Forbid", "Replace"])
def test_the_next_run_starts_beside_a_process_that_cannot_be_ended(weak: Rig, policy: str) -> None:
    """whenUnconfirmed: release. The instance has ended with its sequence: Forbid starts a new one beside the process,
    Replace a replacement."""
    weak.start([refused("j", 3.0, concurrencyPolicy=policy, whenUnconfirmed="release")])
    old = weak.fire()
    first = weak.running(old)
    if policy == "Forbid":
        assert weak.http("POST", "/jobs/j/start")[0] == 409
        assert weak.http("POST", f"/runs/{old}/cancel?wait=30")[0] == 200
    new = weak.fire()
    second = weak.running(new)
    assert alive(first) and alive(second) and set(weak.job()["pids"]) == {first, second}
    assert weak.run(old)["phase"] == "ended"
    assert at(weak.run(new)["started_at"]) >= at(weak.run(old)["finished_at"])
    record = weak.recorded(old)
    assert record["exit_code"] == 9 and record["outcome"] == ("cancelled" if policy == "Forbid" else "replaced")


@pytest.mark.parametrize("policy", ["Forbid", "Replace"])
def test_the_place_of_a_process_that_cannot_be_ended_is_kept(weak: Rig, policy: str) -> None:
    """By default nothing starts beside it: Forbid refuses and says why, Replace waits; when it has gone by itself the
    place is free and the record carries the proof."""
    weak.start([refused("j", 3.0, executionTimeout=0.4, killTimeout=0.2, concurrencyPolicy=policy)])
    old = weak.fire()
    pid = weak.running(old)
    record = weak.recorded(old)
    assert record["exit_code"] == -100 and record["gone"]["state"] == "survivors" and alive(pid)
    (survivor,) = [found for found in record["gone"]["survivors"] if found["pid"] == pid]
    assert survivor["uid"] == NOBODY and survivor["state"] in "SR" and survivor["started_ticks"] > 0
    view = weak.job()
    assert view["unconfirmed"] == [old] and view["running"] and weak.http("GET", "/health")[1]["unconfirmed"] == 1
    status, answer = weak.http("POST", "/jobs/j/start")
    if policy == "Forbid":
        assert status == 409 and old in answer["error"] and "abandon" in answer["error"]
    else:
        assert status == 200 and answer["waits_for"] == [old] and weak.run(answer["run"])["started_at"] is None
    until(lambda: not weak.job()["unconfirmed"], 10, "the end of the process")
    assert not alive(pid)
    amended = weak.run(old)
    assert amended["gone"]["state"] == "proven" and amended["stop"]["confirmed_at"] is not None
    again = answer["run"] if policy == "Replace" else weak.fire()
    assert at(weak.run(again)["started_at"] or weak.recorded(again)["started_at"]) > at(record["finished_at"])


def test_a_place_is_free_when_the_restart_has_ended_the_process(weak: Rig) -> None:
    """kill -9 while a place is kept: the next daemon's sweep ends by cgroup what a signal was denied; the place is
    free, and the record carries the proof."""
    weak.start([refused("j", 60.0, executionTimeout=0.4, killTimeout=0.2, concurrencyPolicy="Forbid")],
               state={"path": str(weak.folder / "state")})
    old = weak.fire()
    pid = weak.running(old)
    assert weak.recorded(old)["gone"]["state"] == "survivors"
    weak.kill9()
    weak.start()
    assert not alive(pid) and not weak.job()["unconfirmed"]
    until(lambda: weak.run(old)["gone"]["state"] == "proven", 5, "the amended record")
    assert weak.run(old)["stop"]["confirmed_at"] is not None and weak.http("POST", "/jobs/j/start")[0] == 200


def test_a_place_can_be_given_up(weak: Rig) -> None:
    """abandon: the next run starts beside what is left, and the record says who answers for that."""
    weak.start([refused("j", 6.0, executionTimeout=0.4, killTimeout=0.2, concurrencyPolicy="Forbid")])
    old = weak.fire()
    pid = weak.running(old)
    weak.recorded(old)
    assert weak.http("POST", "/jobs/j/start")[0] == 409
    status, view = weak.http("POST", f"/runs/{old}/abandon", {"reason": "the array is dead", "requested_by": "ada"})
    assert status == 200 and view["abandoned"]["requested_by"] == "ada" and view["gone"]["state"] == "survivors"
    new = weak.fire()
    assert weak.running(new) != pid and alive(pid)
    until(lambda: weak.run(old)["abandoned"] is not None, 5, "the amended record")
    assert weak.run(old)["abandoned"]["reason"] == "the array is dead"
    assert weak.logged("WARNING", old, "is abandoned by ada: the array is dead")
    assert weak.http("POST", f"/runs/{old}/abandon")[0] == 409 and weak.http("POST", f"/runs/{new}/abandon")[0] == 409


def test_a_refused_timeout_is_recorded_at_once(weak: Rig) -> None:
    """Nothing is captured: -100 as soon as the sequence is over, while the process runs on; the record names it."""
    weak.start([refused("j", 4.0, executionTimeout=0.5, killTimeout=0.3)])
    run = weak.fire()
    pid = weak.running(run)
    record = weak.recorded(run)
    assert alive(pid), "it runs until it exits by itself"
    assert record["exit_code"] == -100 and record["exit"] is None and record["outcome"] == "failure"
    assert record["gone"]["state"] == "survivors" and record["duration"] < 0.8 + SLACK
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), 5, "the end of the process")


def test_output_of_a_process_that_cannot_be_ended_stays_open(weak: Rig) -> None:
    """Cancelled and refused: the pipes are read until the process has gone, and nothing of its output is lost."""
    weak.start([job("j", ["/bin/sh", "-c", "echo one; sleep 2; echo two; exit 3"], user=NOBODY, group=NOBODY,
                    killTimeout=0.3, captureStdout=True)])
    run = weak.fire()
    weak.running(run)
    weak.http("POST", f"/runs/{run}/cancel?wait=30")
    assert phase(weak, run, "ended")["outcome"] is None
    record = weak.recorded(run)
    assert record["exit_code"] == 3 and record["output"]["stdout"] == {"bytes": len("one\ntwo\n"), "truncated": False}


def test_an_unwilling_process_that_may_be_signalled_is_no_such_case(rig: Rig) -> None:
    """A process that only ignores the graceful step keeps Forbid closed for the whole killTimeout, then it is gone."""
    rig.start([job("j", "trap '' TERM; sleep 60", concurrencyPolicy="Forbid", killTimeout=0.8)])
    run = rig.fire()
    rig.running(run)
    assert rig.http("POST", f"/runs/{run}/cancel")[0] == 202
    phase(rig, run, "stopping")
    assert rig.http("POST", "/jobs/j/start")[0] == 409
    record = rig.recorded(run)
    assert record["gone"]["state"] == "proven"
    again = rig.fire()
    rig.running(again)
    rig.http("POST", f"/runs/{again}/cancel", {"force": True})

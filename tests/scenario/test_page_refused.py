"""Signals that the operating system refuses: a daemon without CAP_KILL and a job of another user."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig as rig_module
from page_kit import at, job, line_count, phase, span
from pool_kit import ask
from rig import Rig, alive, always, until

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv, to run a daemon that may not signal another user's process",
)
WITHOUT_KILL = ("setpriv", "--bounding-set=-kill", "--inh-caps=-kill")
NOBODY = 65534
SLACK = 1.5


@pytest.fixture
def weak(tmp_path: Path) -> Iterator[Rig]:
    """A daemon that may become another user for a job, but not signal that user's processes."""
    for made in rig_module.rig(tmp_path):
        made.prefix = WITHOUT_KILL
        yield made
        for pid in (pid for view in made.http_or_none("/jobs") or [] for pid in view["pids"]):
            try:
                os.kill(pid, signal.SIGKILL)  # this test process may
            except ProcessLookupError:
                pass


def refused(name: str, seconds: float, **options: object) -> dict[str, object]:
    options.setdefault("killTimeout", 0.4)
    return job(name, ["/bin/sh", "-c", f"sleep {seconds}; exit 9"], user=NOBODY, group=NOBODY, **options)


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


def test_the_slot_of_a_process_that_cannot_be_ended_is_kept(weak: Rig) -> None:
    """Another job of the pool waits until it has gone."""
    weak.start([refused("j", 3.0, executionTimeout=0.4, killTimeout=0.2, pool="p"), job("other", "true", pool="p")],
               pools={"p": {"slots": 1}})
    old = ask(weak, "j")
    pid = weak.running(old)
    assert weak.recorded(old)["gone"]["state"] == "survivors" and alive(pid)
    other = ask(weak, "other")
    always(lambda: not alive(pid) or weak.run(other)["phase"] == "queued", 1.0, "it waits")
    record = weak.recorded(other)
    assert record["outcome"] == "success" and not alive(pid)
    assert at(record["started_at"]) >= at(weak.run(old)["stop"]["confirmed_at"])


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


def test_a_place_can_be_given_up_from_the_command_line(weak: Rig) -> None:
    """`sexton abandon` says so, and the record has who and why."""
    weak.start([refused("j", 6.0, executionTimeout=0.4, killTimeout=0.2, concurrencyPolicy="Forbid")])
    old = weak.fire()
    pid = weak.running(old)
    weak.recorded(old)
    told = subprocess.run([sys.executable, "-m", "sexton", "--url", f"http://127.0.0.1:{weak.port}", "abandon", old,
                           "--reason", "the array is dead"], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told
    assert until(lambda: weak.run(old)["abandoned"], 5, "it is known")["reason"] == "the array is dead"
    assert weak.run(old)["abandoned"]["requested_by"] and weak.running(weak.fire()) != pid and alive(pid)


def figure(rig: Rig, series: str) -> float:
    text: str = rig.http("GET", "/metrics")[1]
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(series))


def test_timed_out_and_could_not_be_terminated_are_told_apart(weak: Rig) -> None:
    """In the record, in the log and in the figures: both runs are timeouts, one of them lives on."""
    weak.start([refused("stays", 6.0, executionTimeout=0.4, killTimeout=0.2),
                job("goes", "sleep 60", executionTimeout=0.4, killTimeout=0.2)])
    stays, goes = weak.fire("stays"), weak.fire("goes")
    weak.running(stays)
    for run, name, state, count in ((stays, "stays", "survivors", 1), (goes, "goes", "proven", 0)):
        record = weak.recorded(run)
        assert (record["exit_code"], record["stop"]["cause"], record["gone"]["state"]) == (-100, "timeout", state)
        assert (record["stop"]["confirmed_at"] is None) is bool(count)
        assert figure(weak, f'sexton_job_stops_total{{cause="timeout",job_name="{name}"}}') == 1
        assert figure(weak, f'sexton_job_unconfirmed_terminations_total{{job_name="{name}"}}') == count
    weak.logged("ERROR", stays, "could not be terminated")
    assert not any(goes in line and "could not be terminated" in line for line in weak.log().splitlines())


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

"""Faults that a daemon of this kind has had, and ours must not have: those that no other test shows. The whole list
is in docs/reference/traps.md."""

from __future__ import annotations

import http.client
import signal
import socket
import threading
import time
from typing import Any

from rig import NEVER, Rig, living, new_tag, until

EVERY_SECOND = "* * * * * * *"
BAD_DEPLOY = ["/no/such/program"]


def test_a_program_that_is_gone_costs_runs_and_not_the_daemon(rig: Rig) -> None:
    """A bad deployment of a Replace job: each fire is a failed run, the second meets nothing to replace, and others go
    on; a cancel finds nothing to cancel."""
    rig.start([{"name": "j", "command": BAD_DEPLOY, "schedule": EVERY_SECOND, "concurrencyPolicy": "Replace"},
               {"name": "other", "command": "true", "schedule": EVERY_SECOND}])
    until(lambda: len([run for run in rig.runs() if run["phase"] == "recorded"]) >= 3, 10, "three fires")
    recorded = [run for run in rig.runs() if run["phase"] == "recorded"]
    assert {(run["outcome"], run["exit_code"]) for run in recorded} == {("failure", 127)}
    assert rig.http("POST", "/jobs/j/cancel")[0] == 409
    until(lambda: len(rig.runs("other")) >= 2, 5, "the other job")
    assert "Traceback" not in rig.log()


def test_a_replacement_that_cannot_start_leaves_the_place_free(rig: Rig) -> None:
    """The victim has been ended for it all the same, and the next start finds the place free; so does a pool."""
    good = {"name": "j", "command": "exec sleep 600", "schedule": NEVER, "concurrencyPolicy": "Replace",
            "killTimeout": 2, "pool": "p"}
    pools = {"pools": {"p": {"slots": 1}}}
    rig.start([good], **pools)
    victim = rig.http("POST", "/jobs/j/start")[1]["run"]
    rig.running(victim)
    rig.write([{**good, "command": BAD_DEPLOY}], **pools)
    assert rig.http("POST", "/reload")[0] == 200
    failed = rig.http("POST", "/jobs/j/start")[1]["run"]
    assert rig.recorded(failed)["exit_code"] == 127 and rig.recorded(victim)["outcome"] == "replaced"
    assert rig.job()["running"] is False and rig.http("GET", "/pools/p")[1]["inUse"] == 0
    rig.write([{**good, "command": "exit 0"}], **pools)
    assert rig.http("POST", "/reload")[0] == 200
    assert rig.recorded(rig.http("POST", "/jobs/j/start")[1]["run"])["outcome"] == "success"


def test_a_cancel_that_races_with_the_end_is_told_once(rig: Rig) -> None:
    """Runs that end while two callers cancel them: one record and one stop datagram each, and the outcomes add up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        where = {"prefix": "p", "host": "127.0.0.1", "port": server.getsockname()[1]}
        rig.start([{"name": "j", "command": "sleep 0.05", "schedule": NEVER, "statsd": where}])
        runs = [rig.fire() for _ in range(12)]
        for run in runs:
            both = [threading.Thread(target=rig.http, args=("POST", f"/runs/{run}/cancel")) for _ in range(2)]
            for thread in both:
                thread.start()
            for thread in both:
                thread.join(20)
        for run in runs:
            rig.recorded(run)
        heard: list[str] = []
        while sum(text.startswith("p.stop") for text in heard) < len(runs):
            heard.append(server.recv(1000).decode())
        server.settimeout(0.3)
        try:
            heard.append(server.recv(1000).decode())
        except TimeoutError:
            pass
    assert sum(text.startswith("p.stop") for text in heard) == len(runs)
    stats = rig.http("GET", "/jobs/j/runs")[1]["stats"]
    assert stats["total"] == len(runs) == stats["success"] + stats["cancelled"]


def test_the_retry_of_a_job_that_was_removed(rig: Rig) -> None:
    """When its time comes it is given up, is settled in the store, and does not come back with the job."""
    job = {"name": "j", "command": f"echo x >> {rig.folder}/marks; exit 1", "schedule": NEVER,
           "onFailure": {"retry": {"maximumRetries": 3, "initialDelay": 1.5, "manual": True}}}
    other = {"name": "other", "command": "true", "schedule": NEVER}
    state = {"path": str(rig.folder / "state")}
    rig.start([job, other], state=state)
    rig.recorded(rig.fire())
    until(lambda: rig.job()["retry"], 5, "the pending retry")
    rig.write([other], state=state)
    assert rig.http("POST", "/reload")[0] == 200
    rig.logged("Job j: the pending retry #1 is given up: the job is not there any more", seconds=10)
    rig.write([job, other], state=state)
    assert rig.http("POST", "/reload")[0] == 200 and rig.job()["retry"] is None
    until(lambda: "settled" in (rig.state_of("j", "retry") or ""), 5, "settled")
    assert (rig.folder / "marks").read_text() == "x\n" and "Traceback" not in rig.log()


def away(rig: Rig, job: dict[str, Any]) -> None:
    """A daemon that was there for two fires of the job, then for three seconds not, and is there again."""
    rig.start([job], state={"path": str(rig.folder / "state")})
    until(lambda: len(rig.runs()) >= 2, 10, "two fires")
    rig.stop()
    gone = time.time()
    until(lambda: time.time() > gone + 3.5, 10, "time passes")
    rig.start()
    until(lambda: rig.http("GET", "/health")[1]["missed_made_up"] >= 3 and rig.state_of("j", "catchup") == "[]", 20,
          "catching up")


def test_what_is_made_up_for_has_no_ladder(rig: Rig) -> None:
    """A catch-up run that fails is not retried, whatever ladder the schedule has."""
    retry = {"maximumRetries": 2, "initialDelay": 0.1, "maximumDelay": 0.1}
    away(rig, {"name": "j", "command": "exit 1", "schedule": EVERY_SECOND, "onMissed": "run-all",
               "concurrencyPolicy": "Allow", "onFailure": {"retry": retry}})

    def of(trigger: str) -> set[str]:
        return {run["scheduled_for"] for run in rig.runs() if run["trigger"] == trigger}

    newest = max(of("catchup"))
    until(lambda: max(of("retry"), default="") > newest, 10, "a retry of a later occurrence")
    assert len(of("catchup")) >= 3 and not of("catchup") & of("retry")
    assert all(run["attempt"] == 1 for run in rig.runs() if run["trigger"] == "catchup")


def test_owed_runs_do_not_run_at_once(rig: Rig) -> None:
    """A Forbid job that takes its time owes several runs: none of them is swallowed by Forbid, and no two run at once,
    beside a schedule that goes on."""
    away(rig, {"name": "j", "schedule": EVERY_SECOND, "concurrencyPolicy": "Forbid", "onMissed": "run-all",
               "command": f"echo + >> {rig.folder}/marks; sleep 0.3; echo - >> {rig.folder}/marks"})
    owed = rig.logged("missed occurrence(s) are made up for").split("Job j: ")[1].split()[0]
    until(lambda: sum(run["trigger"] == "catchup" for run in rig.runs()) == int(owed), 10, "all that was owed")
    assert "the missed run of" not in rig.log()
    marks = (rig.folder / "marks").read_text().split()
    assert all(mark == "+-"[number % 2] for number, mark in enumerate(marks))


def test_a_nul_in_a_secret_costs_its_run(rig: Rig) -> None:
    """What no environment can hold and no configuration shows: the run is not started and says why, at each fire; the
    daemon and its other jobs go on."""
    (rig.folder / "secret").write_bytes(b"before\0after")
    rig.start([{"name": "j", "command": "true", "schedule": EVERY_SECOND,
                "secrets": [{"name": "A", "fromFile": str(rig.folder / "secret")}]},
               {"name": "other", "command": "true", "schedule": EVERY_SECOND}])
    until(lambda: len([run for run in rig.runs() if run["phase"] == "recorded"]) >= 2, 10, "two fires")
    for run in (run for run in rig.runs() if run["phase"] == "recorded"):
        assert run["exit_code"] == 127 and run["fail_reason"] and "after" not in run["fail_reason"]
    until(lambda: len(rig.runs("other")) >= 2, 5, "the other job")
    assert "Traceback" not in rig.log() and rig.http("GET", "/health")[1]["internal_errors"] == 0


def test_followers_do_not_hold_up_the_end(rig: Rig) -> None:
    """Readers of the events and of the log of a silent run are let go when the daemon ends."""
    tag = new_tag()
    rig.start([{"name": "j", "command": f"exec sleep {tag}", "schedule": NEVER, "captureStdout": True,
                "killTimeout": 1}])
    run = rig.fire()
    rig.running(run)
    readers = []
    for path in ("/jobs/j/logs", f"/runs/{run}/log?follow=1"):
        reader = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=30)
        reader.request("GET", path)
        readers.append((reader, reader.getresponse()))
    began = time.monotonic()
    assert rig.stop() == 0
    assert time.monotonic() - began < 10 and living(tag) == []
    for reader, answer in readers:
        answer.read()
        reader.close()


def test_hup_never_ends_the_daemon(rig: Rig) -> None:
    """SIGHUP with a broken file, and again and again: what ran goes on, and the next good file is taken up."""
    job = {"name": "j", "command": "exec sleep 600", "schedule": NEVER, "killTimeout": 1}
    rig.start([job])
    run = rig.fire()
    pid = rig.running(run)
    rig.write_text("jobs: [")
    for _ in range(3):
        rig.signal(signal.SIGHUP)
    rig.logged("configuration not taken up")
    rig.write([job, {**job, "name": "new"}])
    rig.signal(signal.SIGHUP)
    until(lambda: rig.http("GET", "/jobs/new")[0] == 200, 15, "the good file")
    assert rig.run(run)["pid"] == pid and rig.run(run)["phase"] == "running"
    rig.http("POST", f"/runs/{run}/cancel")

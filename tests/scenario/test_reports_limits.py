"""Kinds of fault that people reported of other schedulers: the system refuses processes or descriptors, handles leak, a
reader of the daemon's own output stalls. Numbers are those of the table in README.md."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from probes import children, holdings, peak_rss, rss
from rig import NEVER, Rig, alive, living, new_tag, until

NOBODY = 65534
CGROUPS = Path("/sys/fs/cgroup")


CAPABILITIES = "-all,+dac_override,+dac_read_search"


def as_nobody(rig: Rig, processes: int) -> None:
    """Prepare the rig to run its daemon as an unprivileged user with a limit of processes. It may still read all files:
    the interpreter may lie in somebody's home."""
    tool = shutil.which("setpriv")
    if os.geteuid() != 0 or tool is None:
        pytest.skip("the limit does not bind root, and changing to another user needs root and setpriv")
    rig.prefix = (tool, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--inh-caps={CAPABILITIES}",
                  f"--ambient-caps={CAPABILITIES}", f"--bounding-set={CAPABILITIES}")
    probe = [*rig.prefix, sys.executable, "-c", "import sexton"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no other user can run the interpreter here")
    rig.popen = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))}


def threads_of(uid: int) -> int:
    """How many tasks the user has: what RLIMIT_NPROC counts."""
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                count += len(os.listdir(entry / "task"))
        except OSError:
            continue
    return count


def test_93_no_more_processes(rig: Rig) -> None:
    """A job eats all processes of the user: a run that cannot be started is one failed run with the system's error, the
    daemon lives, still cancels the eater (without any helper process), and starts the next run when there is room."""
    tag = new_tag()
    room = threads_of(NOBODY) + 60
    as_nobody(rig, room)
    rig.start([
        {"name": "eater", "schedule": NEVER, "killTimeout": 0.5,
         "command": f"trap '' TERM; i=0; while [ $i -lt 90 ]; do sleep {tag} & i=$((i+1)); done; wait; sleep {tag}"},
        {"name": "list", "schedule": NEVER, "concurrencyPolicy": "Allow", "command": ["sleep", "0.01"]},
    ])
    assert rig.recorded(rig.fire("list"))["outcome"] == "success"
    eater = rig.fire("eater")
    until(lambda: threads_of(NOBODY) >= room, 15, "all processes are eaten")
    failed = until(lambda: r if (r := rig.recorded(rig.fire("list")))["outcome"] == "failure" else None, 15,
                   "a start that is refused")
    assert failed["exit_code"] == 127 and "Resource temporarily unavailable" in failed["fail_reason"]
    assert failed["started_at"] is None and failed["gone"]["witnesses"] == ["never-started"]
    assert rig.http("POST", "/reload")[0] in (200, 422), "a reload needs a process; without it the old one stays"
    status, view = rig.http("POST", f"/runs/{eater}/cancel?wait=20")
    assert status == 200 and view["gone"]["state"] == "proven" and living(tag) == []
    assert rig.recorded(rig.fire("list"))["outcome"] == "success"
    assert rig.http("POST", "/reload")[0] == 200
    assert rig.stop() == 0


def test_93_the_limit_of_time_needs_no_process(rig: Rig) -> None:
    """The eater's own deadline ends it whole while no process can be made, and the next run starts."""
    tag = new_tag()
    room = threads_of(NOBODY) + 60
    as_nobody(rig, room)
    rig.start([
        {"name": "eater", "schedule": NEVER, "killTimeout": 0.5, "executionTimeout": 4,
         "command": f"trap '' TERM; i=0; while [ $i -lt 90 ]; do sleep {tag} & i=$((i+1)); done; wait; sleep {tag}"},
        {"name": "list", "schedule": NEVER, "concurrencyPolicy": "Allow", "command": ["sleep", "0.01"]},
    ])
    assert rig.recorded(rig.fire("list"))["outcome"] == "success"
    eater = rig.fire("eater")
    until(lambda: rig.run(eater)["stop"] or rig.recorded(rig.fire("list"))["outcome"] == "failure", 15, "a refusal")
    assert rig.run(eater)["stop"] is None, "it was refused before the deadline"
    record = rig.recorded(eater)
    assert record["exit_code"] == -100 and record["gone"]["state"] == "proven" and living(tag) == []
    assert rig.recorded(rig.fire("list"))["outcome"] == "success"


@pytest.mark.parametrize("spare", [2, 6, 14])
def test_93_no_more_descriptors(rig: Rig, tmp_path: Path, spare: int) -> None:
    """The daemon has hardly a descriptor left: runs that cannot be started are failed runs with the cause, none hangs,
    and when descriptors are free again everything works."""
    rig.start([
        {"name": "slow", "schedule": NEVER, "concurrencyPolicy": "Allow", "command": "sleep 1", "captureStdout": True,
         "captureStderr": True, "killTimeout": 0.2},
        {"name": "stdin", "schedule": NEVER, "command": "cat", "captureStdout": True},
    ], state={"path": str(tmp_path / "state")})
    first = rig.recorded(rig.fire("slow"))
    assert first["outcome"] == "success"
    before = holdings(rig.pid)
    used = max(int(name) for name in os.listdir(f"/proc/{rig.pid}/fd")) + 1
    soft, hard = resource.prlimit(rig.pid, resource.RLIMIT_NOFILE)
    connection = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=30)  # kept: a new one may not be accepted
    connection.connect()
    resource.prlimit(rig.pid, resource.RLIMIT_NOFILE, (used + spare, hard))

    def ask(method: str, path: str) -> Any:
        connection.request(method, path)
        return json.loads(connection.getresponse().read())

    runs = [ask("POST", "/jobs/slow/start")["run"] for _ in range(12)]
    for run in runs:
        until(lambda run=run: ask("GET", f"/runs/{run}")["phase"] == "recorded", 20, "the record of each")
    records = [ask("GET", f"/runs/{run}") for run in runs]
    failed = [record for record in records if record["outcome"] != "success"]
    assert failed, "some must have been refused"
    for record in failed:
        assert record["exit_code"] == 127 and "Too many open files" in record["fail_reason"], record
    resource.prlimit(rig.pid, resource.RLIMIT_NOFILE, (soft, hard))
    connection.close()
    for _ in range(3):
        assert rig.recorded(rig.fire("slow"))["outcome"] == "success"
    assert rig.recorded(rig.fire("stdin"))["outcome"] == "success"
    until(lambda: holdings(rig.pid).fds <= before.fds + 3 + len(children(rig.pid)) + 12, 10, "the descriptors are back")
    assert "Traceback" not in rig.log().replace("socket.accept() out of system resource", "")


def cgroup_folders(pid: int) -> list[Path]:
    return list(CGROUPS.rglob(f"sexton-{pid}-*/s*")) if CGROUPS.exists() else []


def test_95_nothing_leaks(rig: Rig) -> None:
    """Hundreds of runs that succeed, cannot start, or are ended with an escaped child, reloads and readers that break
    off: descriptors, threads and children are as after the first round, no zombie, and memory stands still."""
    tag = new_tag()
    common = {"schedule": NEVER, "captureStdout": True, "concurrencyPolicy": "Allow"}
    jobs = [
        {**common, "name": "ok", "command": "true", "captureStderr": True},
        {**common, "name": "bad", "command": ["./nope"]},
        {**common, "name": "held", "command": f"setsid sleep {tag} & sleep {tag}", "executionTimeout": 0.2,
         "killTimeout": 0},
        {**common, "name": "cancelled", "command": f"exec sleep {tag}", "killTimeout": 1},
    ]
    rig.start(jobs)

    def round_(starts: int) -> None:
        for number in range(starts):
            for name in ("ok", "bad", "held", "cancelled"):
                rig.fire(name)
            if number % 4 == 3:
                until(lambda: rig.http("POST", "/jobs/cancelled/cancel")[0] == 409, 10, "all are cancelled")
            if number % 10 == 9:
                rig.write([*jobs, {**jobs[0], "name": f"more{number}"}])
                assert rig.http("POST", "/reload")[0] == 200
            connection = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=20)
            connection.request("GET", "/jobs/held/logs")
            connection.close()
        rig.http("POST", "/jobs/cancelled/cancel")
        until(lambda: rig.http("GET", "/health")[1]["running"] == 0, 20, "all have ended")
        until(lambda: not any(job["runs"] for job in rig.http("GET", "/jobs")[1]), 20, "all are recorded")

    def descriptors() -> int:
        """Without the one that each warm supervisor has, of which there may be more or less."""
        supervisors: int = rig.http("GET", "/health")[1]["supervisors"]["supervisors"]
        return holdings(rig.pid).fds - supervisors

    round_(30)
    baseline, memory, fds = holdings(rig.pid), rss(rig.pid), descriptors()
    until(lambda: len(cgroup_folders(rig.pid)) <= 40, 5, "run cgroups as many as supervisors")
    round_(60)
    until(lambda: descriptors() <= fds + 3, 20, f"descriptors as before: {fds}")
    after = holdings(rig.pid)
    assert after.threads <= baseline.threads + 3 and after.children <= baseline.children and after.zombies == 0
    assert rss(rig.pid) - memory < 12 * 1024 * 1024
    assert living(tag) == [] and "Traceback" not in rig.log()
    codes = {run["exit_code"] for run in rig.runs("bad")}
    assert codes == {127}


@pytest.mark.parametrize("which", ["stdout", "stderr", "both"])
def test_a_stalled_reader_of_the_daemon(rig: Rig, tmp_path: Path, which: str) -> None:
    """Nobody reads the pipe that is the daemon's standard output, or its log: jobs keep their times, a flood goes on,
    the daemon does not grow, says what it dropped, and ends when told."""
    marks = tmp_path / "marks"
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    rig.popen = {name: write for name in ("stdout", "stderr") if which in (name, "both")}
    try:
        rig.start([
            {"name": "beat", "schedule": "* * * * * * *", "concurrencyPolicy": "Allow", "captureStdout": True,
             "command": f"date +%s.%N >> {marks}; echo tick"},
            {"name": "flood", "schedule": NEVER, "captureStdout": True,
             "command": "yes 0123456789 | head -c 50000000"},
            {"name": "chatty", "schedule": NEVER, "concurrencyPolicy": "Allow", "captureStdout": True,
             "command": "exit 3"},
        ])
        until(lambda: marks.exists(), 10, "the first beat")
        before = peak_rss(rig.pid)
        flood = rig.fire("flood")
        for _ in range(40):
            rig.recorded(rig.fire("chatty"))  # each writes some lines to the log
        assert rig.recorded(flood, 30)["output"]["stdout"]["bytes"] == 50_000_000
        until(lambda: len(marks.read_text().split()) >= 4, 10, "the beat goes on")
        times = [float(line) for line in marks.read_text().split()]
        assert max(b - a for a, b in pairwise(times)) < 1.6
        assert peak_rss(rig.pid) - before < 64 * 1024 * 1024
        health = rig.http("GET", "/health")[1]
        if which != "stderr":
            assert health["mirror_dropped_bytes"] > 40_000_000
        rig.signal(signal.SIGTERM)
        assert rig.wait(15) == 0
    finally:
        rig.close()
        os.close(read)
        os.close(write)


def test_a_flood_of_short_lines_delays_nobody(rig: Rig, tmp_path: Path) -> None:
    """While a run writes hundreds of thousands of lines a second, is followed, is asked for and is ended, another job
    starts each second."""
    marks = tmp_path / "marks"
    rig.popen = {"stdout": open(os.devnull, "wb")}  # noqa: SIM115
    rig.start([
        {"name": "beat", "schedule": "* * * * * * *", "concurrencyPolicy": "Allow",
         "command": f"echo $(date +%s.%N) $SEXTON_SCHEDULED_AT >> {marks}"},
        {"name": "flood", "schedule": NEVER, "captureStdout": True, "command": "exec yes ''", "killTimeout": 0.3},
    ])
    run = rig.fire("flood")
    rig.running(run)
    slow = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=20)
    slow.request("GET", f"/runs/{run}/log?follow=1")
    for _ in range(3):
        asked = time.monotonic()
        rig.http("GET", f"/runs/{run}/log")
        assert time.monotonic() - asked < 2
    until(lambda: marks.exists() and len(marks.read_text().splitlines()) >= 3, 10, "the beat")
    asked = time.monotonic()
    rig.http("POST", f"/runs/{run}/cancel?wait=10")
    rig.recorded(run)
    assert time.monotonic() - asked < 3
    count = len(marks.read_text().splitlines())
    until(lambda: len(marks.read_text().splitlines()) > count, 5, "one more")
    times = [float(line.split()[0]) for line in marks.read_text().splitlines()]
    assert max(b - a for a, b in pairwise(times)) < 1.5
    slow.close()
    assert alive(rig.pid)

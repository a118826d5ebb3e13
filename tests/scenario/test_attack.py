"""Jobs and clients that attack the daemon: what they can reach stays bounded, and what is recorded stays true."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from probes import children, named
from rig import NEVER, Rig, living, new_tag, until

ENDED_SECONDS = 20.0
"""For a supervisor that does not answer: five seconds each for the two steps, and slack."""


def job(command: str, name: str = "j", **more: Any) -> dict[str, Any]:
    return {"name": name, "command": command, "schedule": NEVER, "captureStderr": False, **more}


def cgroup_of(pid: int) -> Path | None:
    """The directory of a process's own cgroup v2, where it can be frozen."""
    groups = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    inside = next((line[3:] for line in groups if line.startswith("0::")), "")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        if right.split()[0] == "cgroup2":
            path = Path(left.split()[4]) / inside.lstrip("/")
            return path if os.access(path / "cgroup.freeze", os.W_OK) and "sexton-" in inside else None
    return None


def send(port: int, data: bytes) -> bytes:
    """The status line that a raw request is answered with."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(data)
        return client.recv(4096).split(b"\r\n")[0]


def test_a_run_that_stops_its_supervisor_is_ended_all_the_same(rig: Rig) -> None:
    """SIGSTOP to the supervisor before it has told of the start: a cancel sets it going again, and is proven."""
    tag = new_tag()
    rig.start([job(f"kill -STOP $PPID; exec sleep {tag}", killTimeout=0.3)])
    run = rig.fire()
    until(lambda: living(tag), what="the command")
    status, _ = rig.http("POST", f"/runs/{run}/cancel?wait={ENDED_SECONDS}")
    record = rig.recorded(run)
    assert status == 200 and record["outcome"] == "cancelled" and record["gone"]["state"] == "proven"
    assert not living(tag)


def test_a_stopped_supervisor_holds_up_no_deadline(rig: Rig) -> None:
    """The start becomes known without anybody's help, and executionTimeout applies."""
    tag = new_tag()
    rig.start([job(f"kill -STOP $PPID; exec sleep {tag}", killTimeout=0.3, executionTimeout=0.5)])
    record = rig.recorded(rig.fire(), 30.0)
    assert record["exit_code"] == -100 and record["gone"]["state"] == "proven" and not living(tag)


def test_a_supervisor_that_is_stopped_later_tells_of_the_end_within_seconds(rig: Rig) -> None:
    """No deadline and nobody who cancels: the end of the run becomes known all the same, with its exit code."""
    rig.start([job("sleep 0.2; kill -STOP $PPID; exit 3", concurrencyPolicy="Forbid")])
    record = rig.recorded(rig.fire(), 20.0)
    assert record["exit_code"] == 3 and record["gone"]["state"] == "proven"


def test_a_run_that_freezes_its_cgroup_is_ended_before_its_successor_starts(rig: Rig) -> None:
    """Nothing in a frozen cgroup acts, its supervisor neither: that is ended, the sweep is the witness, and only then
    does the replacement start."""
    tag = new_tag()
    rig.start([job(f"exec sleep {tag}", concurrencyPolicy="Replace", killTimeout=0.2)])
    victim = rig.fire()
    where = cgroup_of(rig.running(victim))
    if where is None:
        pytest.skip("runs have no cgroup that can be frozen here")
    (where / "cgroup.freeze").write_text("1")
    frozen = living(tag)
    successor = rig.fire()
    rig.running(successor, ENDED_SECONDS)
    assert not set(frozen) & set(living(tag)), "the victim lives beside its successor"
    record = rig.recorded(victim)
    assert record["outcome"] == "replaced"
    assert record["gone"] == {"state": "proven", "witnesses": ["sweep"], "survivors": []}


def test_a_stopped_zygote_goes_on(rig: Rig) -> None:
    """SIGSTOP to the zygote delays what needs a new supervisor by seconds, and nothing for ever."""
    tag = new_tag()
    rig.start([job(f"exec sleep {tag}", concurrencyPolicy="Allow", killTimeout=0.2)])
    rig.running(rig.fire())
    (zygote,) = set(named(rig.pid, "sexton-zygote")) & set(children(rig.pid))  # a newborn supervisor has its name
    os.kill(zygote, signal.SIGSTOP)
    warm = len(children(zygote))
    runs = [rig.fire() for _ in range(warm + 2)]
    for run in runs:
        rig.running(run, 20.0)


def test_broken_requests_are_refused_quietly(rig: Rig) -> None:
    """A Host that is none, or two of them: a refusal and no traceback, whoever knocks."""
    rig.start([job("true")])
    for host in (b"[", b"[::1", b"[x]", b"a]b"):
        line = send(rig.port, b"GET /version HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert b" 403 " in line or b" 400 " in line, (host, line)
    assert b" 400 " in send(rig.port, b"GET /version HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n")
    assert b" 400 " in send(rig.port, b"\x16\x03\x01\x00\x00\r\n\r\n")
    rig.http("POST", "/reload")
    rig.logged("configuration taken up")
    assert "Traceback" not in rig.log()


def test_a_reason_forges_no_log_line(rig: Rig) -> None:
    """Line ends and terminal codes in what a client says are written out: one event is one line."""
    rig.start([job("exec sleep 60", killTimeout=0.2)])
    run = rig.fire()
    rig.running(run)
    reason = "x\n2026-01-01 00:00:00,000 INFO sexton.daemon: forged\x1b[31m\u2028"
    assert rig.http("POST", f"/runs/{run}/cancel?wait=5", {"reason": reason, "requested_by": "a\rb"})[0] == 200
    assert rig.recorded(run)["stop"]["reason"] == reason
    line = rig.logged("requested by", "forged", "\\n2026", "\\x1b", "a\\rb", "\\u2028")
    assert "Job j: cancel of run" in line
    assert not any(line.startswith("2026-01-01 00:00:00,000") for line in rig.log().splitlines())


def test_a_full_disk_loses_no_record(rig: Rig) -> None:
    """The state is full while runs end: they are shown as they ended, and written when there is room again."""
    state = rig.folder / "state"
    state.mkdir()
    mount = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m none "$0" && exec "$@"', str(state))
    if subprocess.run([*mount, "true"], capture_output=True).returncode:
        pytest.skip("needs a mount namespace of its own")
    rig.prefix = mount
    jobs = [job("exit 3"), job(f"cat /dev/zero >{state}/fill", "fill"), job(f"rm {state}/fill", "free")]
    rig.start(jobs, state={"path": str(state)})
    rig.recorded(rig.fire("fill"))
    run = rig.fire()
    record = rig.recorded(run)
    assert record["exit_code"] == 3 and rig.http("GET", "/health")[1]["store_failures"] > 0
    rig.logged("the record of run", run, "tried again")
    assert [shown["id"] for shown in rig.runs()] == [run]
    assert run in [shown["id"] for shown in rig.http("GET", "/runs?job=j&outcome=failure")[1]["runs"]]
    rig.recorded(rig.fire("free"))
    rig.logged("waited for the store are written; 0 still wait", seconds=15.0)
    assert [(shown["id"], shown["exit_code"]) for shown in rig.runs()] == [(run, 3)]


def test_a_flood_of_reload_requests_costs_few_loads(rig: Rig) -> None:
    """Requests that come while one waits to begin are answered by that one, which reads the files as they are then."""
    rig.start([job("true")])
    for number in range(100):
        rig.signal(signal.SIGHUP)
        if number == 98:
            rig.write([job("true"), job("true", "late")])
    until(lambda: rig.http("GET", "/jobs/late")[0] == 200, 10.0, "the last change")
    assert rig.http("POST", "/reload")[0] == 200
    assert rig.log().count("configuration taken up") < 15


def test_more_runs_than_the_soft_limit_of_descriptors(rig: Rig) -> None:
    """Each run takes descriptors of the daemon, which takes what it may have; jobs keep the limit that there was."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1024:
        pytest.skip("the hard limit of descriptors is low here")
    rig.popen["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    tag = new_tag()
    rig.start([job(f"exec sleep {tag}", captureStdout=True, captureStderr=True, killTimeout=1),
               job("exit $(ulimit -Sn)", "limit")])
    for _ in range(60):
        rig.fire()
    until(lambda: len(living(tag)) == 60, 20.0, "60 runs at a time")
    assert rig.recorded(rig.fire("limit"))["exit_code"] == 64
    rig.http("POST", "/jobs/j/cancel")


def test_a_killed_zygote_leaves_no_cgroups(rig: Rig) -> None:
    """Directories that it would have removed are removed by the daemon, beside those of runs that live on."""
    tag = new_tag()
    rig.start([job(f"exec sleep {tag}", killTimeout=1, concurrencyPolicy="Allow")])
    runs = [rig.fire() for _ in range(12)]
    where = cgroup_of(rig.running(runs[0]))
    if where is None:
        pytest.skip("runs have no cgroup here")
    for run in runs:
        rig.running(run)
    (zygote,) = set(named(rig.pid, "sexton-zygote")) & set(children(rig.pid))  # a newborn supervisor has its name
    before = {path.name for path in where.parent.glob("s*")}
    os.kill(zygote, signal.SIGKILL)
    for run in runs[1:]:
        assert rig.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
    rig.running(rig.fire())
    until(lambda: before & {path.name for path in where.parent.glob("s*")} == {where.name}, 15.0, "one of the old left")
    assert where.exists() and living(tag)

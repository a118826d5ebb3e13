"""Following a run's output: server-sent events of a job, the followed log of a run, and readers that go away."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from probes import holdings
from rig import NEVER, Rig, until


def talker(folder: Path, name: str = "j") -> dict[str, Any]:
    """Says `first`, then one line for each file `go<N>` that appears, until `go9`."""
    return {
        "name": name, "schedule": NEVER, "captureStdout": True, "captureStderr": True, "killTimeout": 0.2,
        "failsWhen": {"producesStderr": False},
        "command": "echo first; echo wrong >&2; n=1; while [ ! -e go9 ]; do "
                   "if [ -e go$n ]; then echo line $n; n=$((n+1)); fi; sleep 0.02; done; printf last",
        "workingDirectory": str(folder),
    }


@contextmanager
def reading(rig: Rig, path: str) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=25)
    connection.request("GET", path)
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def event(reply: http.client.HTTPResponse) -> tuple[str, Any]:
    """The next event; comments are passed over."""
    lines = []
    while (line := reply.readline().decode()) != "\n" or not lines:
        assert line, "the stream has ended"
        if line.startswith(":"):
            assert reply.readline() == b"\n"
        else:
            lines.append(line.rstrip("\n"))
    assert len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: ")
    return lines[0][7:], json.loads(lines[1][6:])


def test_events_of_a_running_job(rig: Rig, tmp_path: Path) -> None:
    """What was written before comes first, then each line when it is written, then `end` with the start of the run, and
    the stream closes; two readers see the same; later ones get the last run's lines and `end`."""
    rig.start([talker(tmp_path)])
    run = rig.fire()
    rig.running(run)
    until(lambda: rig.run(run)["output"]["stderr"]["bytes"] > 0, 5, "the first lines")
    with reading(rig, "/jobs/j/logs") as one, reading(rig, "/jobs/j/logs") as two:
        assert one.headers["Content-Type"] == "text/event-stream" and one.headers["Cache-Control"] == "no-store"
        for reply in (one, two):
            first = sorted([event(reply), event(reply)], key=lambda found: str(found[1]["stream"]))
            assert first == [("line", {"stream": "stderr", "line": "wrong"}),
                             ("line", {"stream": "stdout", "line": "first"})]
        for number in (1, 2):
            (tmp_path / f"go{number}").touch()
            for reply in (one, two):
                assert event(reply) == ("line", {"stream": "stdout", "line": f"line {number}"})
        (tmp_path / "go9").touch()
        for reply in (one, two):
            assert event(reply) == ("line", {"stream": "stdout", "line": "last"})
            kind, data = event(reply)
            assert kind == "end" and data["started_at"] and "dropped_lines" not in data
            assert reply.read() == b""
    record = rig.recorded(run)
    assert record["outcome"] == "success"
    with reading(rig, "/jobs/j/logs") as late:
        kinds = [event(late) for _ in range(6)]
    spoken = [data["line"] for _, data in kinds[:-1] if data["stream"] == "stdout"]
    assert spoken == ["first", "line 1", "line 2", "last"]
    assert kinds[-1][0] == "end" and kinds[-1][1]["started_at"][:19] == record["started_at"][:19]


def test_a_job_without_lines(rig: Rig) -> None:
    """No run yet, or nothing captured: an `end` and nothing else."""
    rig.start([{"name": "j", "schedule": NEVER, "command": "echo unseen"}])
    assert rig.http("GET", "/jobs/j/logs") == (200, "event: end\ndata: {}\n\n")
    rig.recorded(rig.fire())
    status, text = rig.http("GET", "/jobs/j/logs")
    assert status == 200 and text.count("event:") == 1 and '"started_at"' in text


def test_following_a_log(rig: Rig, tmp_path: Path) -> None:
    """?follow=1 gives all lines so far and those that come, as text, and ends with the run; without follow, what is
    there now."""
    rig.start([talker(tmp_path)], state={"path": str(tmp_path / "state")})
    run = rig.fire()
    rig.running(run)
    until(lambda: rig.run(run)["output"]["stderr"]["bytes"] > 0, 5, "the first lines")
    with reading(rig, f"/runs/{run}/log?follow=1") as reply:
        assert sorted([reply.readline(), reply.readline()]) == [b"first\n", b"wrong\n"]
        (tmp_path / "go1").touch()
        assert reply.readline() == b"line 1\n"
        until(lambda: "line 1" in rig.http("GET", f"/runs/{run}/log")[1], 5, "the line in the file")
        (tmp_path / "go9").touch()
        assert reply.read() == b"last\n"
    rig.recorded(run)
    assert rig.http("GET", f"/runs/{run}/log?follow=1")[1].endswith("last")


def descriptors(rig: Rig) -> int:
    """Without the one that each warm supervisor has, of which there may be more or less."""
    supervisors: int = rig.http("GET", "/health")[1]["supervisors"]["supervisors"]
    return holdings(rig.pid).fds - supervisors


def test_readers_that_go_away(rig: Rig, tmp_path: Path) -> None:
    """Sixty followers of silent and of talking runs break off in the middle: descriptors and threads are as before, the
    runs go on, nothing is logged as an internal error."""
    rig.start([talker(tmp_path), {**talker(tmp_path), "name": "flood", "command": "exec yes"}])
    rig.popen = {}
    run, flood = rig.fire(), rig.fire("flood")
    rig.running(run)
    rig.running(flood)
    with reading(rig, "/jobs/j/logs") as reply:
        event(reply)
    before, fds = holdings(rig.pid), descriptors(rig)
    paths = ("/jobs/j/logs", f"/runs/{run}/log?follow=1", "/jobs/flood/logs", f"/runs/{flood}/log?follow=1")
    for number in range(60):
        path = paths[number % 4]
        connection = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=25)
        connection.request("GET", path)
        connection.getresponse().readline()
        connection.close()
    until(lambda: descriptors(rig) <= fds + 2, 10, "the descriptors are back")
    assert holdings(rig.pid).threads <= before.threads + 2
    rig.http("POST", f"/runs/{flood}/cancel?wait=10")
    assert rig.run(run)["phase"] == "running"
    (tmp_path / "go9").touch()
    assert rig.recorded(run)["outcome"] == "success" and rig.recorded(flood)["outcome"] == "cancelled"
    assert "internal error" not in rig.log() and "Traceback" not in rig.log()


def test_a_reader_that_stalls(rig: Rig, tmp_path: Path) -> None:
    """A client that asks for the log of a flood and reads nothing loses lines; neither the run nor another client waits
    for it, and the daemon does not grow."""
    from probes import rss

    rig.popen = {"stdout": open(os.devnull, "wb")}  # noqa: SIM115
    rig.start([{"name": "flood", "schedule": NEVER, "captureStdout": True,
                "command": "yes 0123456789 | head -c 60000000"}])
    before = rss(rig.pid)
    run = rig.fire("flood")
    rig.running(run)
    with reading(rig, "/jobs/flood/logs"):
        began = time.monotonic()
        record = rig.recorded(run, 60)
        assert record["output"]["stdout"]["bytes"] == 60_000_000 and time.monotonic() - began < 45
        assert rss(rig.pid) - before < 64 * 1024 * 1024


@pytest.mark.parametrize("captured", [True, False])
def test_the_lines_of_a_check(rig: Rig, tmp_path: Path, captured: bool) -> None:
    """What a check says follows the run's own lines, under names of its own, live and afterwards; also where the run's
    own output is not captured."""
    verify = "echo looking; while [ ! -e go ]; do sleep 0.02; done; echo odd >&2; exit 7"
    rig.start([{"name": "j", "schedule": NEVER, "command": "echo own", "captureStdout": captured,
                "captureStderr": False, "workingDirectory": str(tmp_path), "verify": {"command": verify}}])
    run = rig.fire()
    own = [("line", {"stream": "stdout", "line": "own"})] if captured else []
    looking, odd = ({"stream": "verify.stdout", "line": "looking"}, {"stream": "verify.stderr", "line": "odd"})
    with reading(rig, "/jobs/j/logs") as early:
        assert [event(early) for _ in (*own, 1)] == [*own, ("line", looking)]
        with reading(rig, "/jobs/j/logs") as late:
            assert [event(late) for _ in (*own, 1)] == [*own, ("line", looking)]
            (tmp_path / "go").touch()
            for reply in (early, late):
                assert event(reply) == ("line", odd)
                assert event(reply)[0] == "end" and reply.read() == b""
    assert rig.recorded(run)["outcome"] == "failure"
    with reading(rig, "/jobs/j/logs") as after:
        found = [event(after) for _ in (*own, 1, 2, 3)]
    assert found[:len(own)] == own and found[-1][0] == "end"
    assert sorted(found[len(own):-1], key=str) == sorted([("line", looking), ("line", odd)], key=str)


def test_a_run_that_is_not_checked(rig: Rig) -> None:
    """A run that fails, or is cancelled, before its check: the stream ends with the run."""
    rig.start([{"name": "j", "schedule": NEVER, "command": "sleep 60", "killTimeout": 0.2,
                "verify": {"command": "true"}}])
    run = rig.fire()
    rig.running(run)
    with reading(rig, "/jobs/j/logs") as reply:
        rig.http("POST", f"/runs/{run}/cancel", {"force": True})
        assert event(reply)[0] == "end" and reply.read() == b""

"""Connections to the API take descriptors that runs need: they are bounded, and the bound is visible."""

from __future__ import annotations

import http.client
import json
import os
import resource
import socket
from collections.abc import Callable

import pytest
from probes import holdings
from rig import NEVER, Rig, until

from sexton.api.connections import FEWEST, MOST, bound_for

JOBS = [
    {"name": "j", "schedule": NEVER, "concurrencyPolicy": "Allow", "command": "echo out", "captureStdout": True},
    {"name": "long", "schedule": NEVER, "command": "echo begun; exec sleep 60", "captureStdout": True,
     "killTimeout": 1},
]
LIMIT = 256


@pytest.mark.parametrize(("descriptors", "bound"), [(20, FEWEST), (256, 64), (1024, 256), (4000, MOST), (10**6, MOST)])
def test_a_quarter_of_the_descriptors(descriptors: int, bound: int) -> None:
    """Within a least and a most."""
    assert bound_for(descriptors) == bound


def limited(descriptors: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))


def connect(rig: Rig) -> socket.socket:
    return socket.create_connection(("127.0.0.1", rig.port), timeout=10)


def follower(rig: Rig, run: str) -> http.client.HTTPResponse:
    """Somebody who follows a run: a connection that is at work."""
    connection = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=20)
    connection.request("GET", f"/runs/{run}/log?follow=1")
    reply = connection.getresponse()
    assert reply.read(5) == b"begun"
    return reply


def test_a_thousand_idle_connections_starve_nobody(rig: Rig) -> None:
    """With 256 descriptors for the daemon, 1,000 connections that ask nothing: the API answers, runs have their
    descriptors, whoever follows a run is not cut off, and health and log say what was closed."""
    rig.popen = {"preexec_fn": limited(LIMIT)}
    rig.start(JOBS)
    run = rig.fire("long")
    reply = follower(rig, run)
    idle = [connect(rig) for _ in range(1000)]
    try:
        runs = [rig.fire() for _ in range(30)]
        assert {rig.recorded(one)["outcome"] for one in runs} == {"success"}
        connections = rig.http("GET", "/health")[1]["connections"]
        assert connections["open"] <= connections["bound"] == LIMIT // 4
        assert connections["closed_idle"] >= 1000 - connections["bound"] and connections["not_accepted"] == 0
        assert holdings(rig.pid).fds < LIMIT - 64
        assert "connections: " in rig.logged("idlest closed")
        assert rig.log().count("idlest closed") <= 2, "at most once a minute"
        metrics = rig.http("GET", "/metrics")[1]
        assert "sexton_api_connections_closed_idle_total" in metrics
        assert rig.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
        assert reply.read() == b"\n", "the follower heard the end"
    finally:
        for connection in idle:
            connection.close()
    until(lambda: rig.http("GET", "/health")[1]["connections"]["open"] <= 3, 10, "ended ones are not counted")


def test_at_work_none_is_closed(rig: Rig) -> None:
    """When all connections are at work a new one is told so, with 503, and counted; later ones are served."""
    rig.popen = {"preexec_fn": limited(64)}
    rig.start(JOBS)
    run = rig.fire("long")
    rig.running(run)
    followers = [follower(rig, run) for _ in range(16)]
    with connect(rig) as late:
        late.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while chunk := late.recv(4096):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 503") and answer.endswith(b'{"error":"too many connections"}')
    followers.pop().close()
    until(lambda: rig.http("GET", "/health")[0] == 200, 10, "room again")
    assert rig.http("GET", "/health")[1]["connections"]["turned_away"] >= 1
    assert rig.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
    for one in followers:
        assert one.read() == b"\n"


def test_no_descriptor_to_accept_with(rig: Rig) -> None:
    """Connections that cannot be accepted are one line in the log and a number, and do not keep the daemon busy."""
    rig.start(JOBS)
    rig.recorded(rig.fire())
    _, hard = resource.prlimit(rig.pid, resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir(f"/proc/{rig.pid}/fd")) + 1
    kept = http.client.HTTPConnection("127.0.0.1", rig.port, timeout=20)
    kept.connect()
    kept.request("GET", "/version")
    kept.getresponse().read()
    resource.prlimit(rig.pid, resource.RLIMIT_NOFILE, (used, hard))
    waiting = [connect(rig) for _ in range(5)]
    try:
        rig.logged("cannot be accepted")
        before = cpu(rig.pid)
        kept.request("GET", "/jobs/j")
        reply = kept.getresponse()
        assert reply.status == 200 and reply.read()
        until(lambda: accepts_failed(kept) > 0, 5, "they are counted")
        assert cpu(rig.pid) - before < 1.0
    finally:
        resource.prlimit(rig.pid, resource.RLIMIT_NOFILE, (hard, hard))
        for connection in waiting:
            connection.close()
    assert rig.recorded(rig.fire())["outcome"] == "success"
    assert rig.log().count("cannot be accepted") == 1 and "Traceback" not in rig.log()


def accepts_failed(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/health")
    count: int = json.loads(connection.getresponse().read())["connections"]["not_accepted"]
    return count


def cpu(pid: int) -> float:
    with open(f"/proc/{pid}/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

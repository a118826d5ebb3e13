"""Nodes in networks of their own, and a cable that is pulled: packets vanish, and nobody is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from lan import Host, Lan, NoNetwork, connections
from nodes_kit import TTL, Node, Nodes, nodes_on, start_until
from probes import holdings
from rig import until

from postgres_server import PostgresServer, binaries

MOST_CONNECTIONS = 4 + 2 + 1 + 3
"""Of a node to its database: both pools, the one that hears notifications, and requests to break off."""
NOTICED_SECONDS = 11
"""Until a connection into the void is given up: what was sent waits for its receipt for five seconds, and an idle one
is asked after five."""


@pytest.fixture
def lan() -> Iterator[Lan]:
    try:
        made = Lan()
    except NoNetwork as reason:
        pytest.skip(str(reason))
    yield made
    made.close()


@pytest.fixture
def server(lan: Lan) -> Iterator[PostgresServer]:
    """A database that listens in that network."""
    programs = binaries()
    if programs is None:
        pytest.skip("there is no PostgreSQL here")
    made = PostgresServer(programs, address=lan.switch.address)
    try:
        with lan.switch.entered():
            made.start()
        yield made
    finally:
        made.end()


@pytest.fixture
def nodes(tmp_path: Path, server: PostgresServer) -> Iterator[Nodes]:
    with nodes_on(tmp_path, "postgres", server.url()) as made:
        yield made


def start(nodes: Nodes, lan: Lan, jobs: Any, **state: Any) -> tuple[Node, Node, Host]:
    """Nodes a and b, each a host of its own; and the host of a."""
    a, b = nodes.node("a"), nodes.node("b")
    host, other = lan.host("a"), lan.host("b")
    a.inside, b.inside = host.entered, other.entered
    for one in (a, b):
        one.write_jobs(jobs, **state)
        one.spawn()
    for one in (a, b):
        until(one._answers, 60, f"node {one.name}")
    return a, b, host


def test_a_holder_that_is_cut_off(nodes: Nodes, lan: Lan, server: PostgresServer) -> None:
    """The holder of a slot loses its database without a word. It does not believe in its lease before the other node
    gets it, which is when the time to live has passed; its run goes on (`slotLost: continue`). It says that the store
    cannot be reached, other jobs stay on time, dead connections are given up within seconds, and neither they nor
    threads pile up. When the network is back both are settled: the run has its true record, once, and nothing waits."""
    beat = {"name": "beat", "schedule": {"second": "*"}, "command": nodes.mark("beat")}
    a, b, host = start(nodes, lan, [nodes.job(seconds=30), beat])
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    (run,), before = a.live(), holdings(a.pid)
    host.cut()
    cut, cut_at = time.monotonic(), time.time()
    until(lambda: a.slot()["in_doubt"], TTL, "a's doubt")
    doubted = time.time()
    start_until(b, 200, 2 * TTL)
    begun = until(lambda: nodes.marked("start", "b"), what="b's run")[0][2]
    assert doubted < begun and TTL * 2 / 3 - 0.2 < begun - cut_at < TTL + 2.5
    until(lambda: "ESTABLISHED" not in connections(a.pid, server.port), NOTICED_SECONDS, "an end of the dead ones")
    assert time.monotonic() - cut < NOTICED_SECONDS
    until(lambda: unreachable(a), 15 - (time.monotonic() - cut), "words on the store")
    assert a.live() == [run] and a.start_job()[0] == 409, "the policy of this node alone"
    assert len(connections(a.pid, server.port)) <= MOST_CONNECTIONS
    held = holdings(a.pid)
    assert held.threads <= before.threads + 2 and held.fds <= before.fds + MOST_CONNECTIONS, (before, held)
    host.heal()
    a.logged("slot was taken over by b while it is still running here", seconds=10)
    assert b.recorded(run)["outcome"] == "unknown"
    assert a.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
    until(lambda: b.run(run)["outcome"] == "cancelled", 10, "the true record")
    until(lambda: settled(a), 10, "the end of the trouble")
    beats = [at for _, _, at in nodes.marked("beat", "a")]
    assert max(later - one for one, later in pairwise(beats)) < 3
    shown = [one["id"] for one in b.runs()]
    assert len(shown) == len(set(shown)) and shown.count(run) == 1


def test_a_primary_that_vanishes(tmp_path: Path, lan: Lan) -> None:
    """The host of the primary is gone without a word, and the standby on another one takes over: both nodes find it
    past the silent host, which is the first in their URL, before the slot of the holder could lapse; it keeps it."""
    programs = binaries()
    if programs is None:
        pytest.skip("there is no PostgreSQL here")
    first, second = lan.host("db1"), lan.host("db2")
    servers: list[PostgresServer] = []
    try:
        with first.entered():
            servers.append(primary := PostgresServer(programs, address=first.address))
            primary.start()
        with second.entered():
            servers.append(standby := PostgresServer(programs, address=second.address, copy_of=primary))
            standby.start()
        url = f"postgresql://sexton@{first.address}:{primary.port},{second.address}:{standby.port}/postgres"
        with nodes_on(tmp_path, "postgres", url) as nodes:
            a, b, _ = start(nodes, lan, nodes.job(seconds=60), slotTtlSeconds=30, onStoreUnavailable="fail-closed")
            assert a.start_job()[0] == 200
            until(lambda: nodes.marked("start"), what="a's run")
            first.cut()
            cut = time.monotonic()
            standby.promote()
            until(lambda: a.lines("has failed over") and b.lines("has failed over"), 25, "the new primary")
            until(lambda: settled(a) and settled(b), 25, "the end of the trouble")
            until(lambda: not a.slot()["in_doubt"], 30 - (time.monotonic() - cut), "the slot")
            start_until(b, 409, 10)
            assert "held by a" in str(b.start_job()[1]) and len(nodes.marked("start")) == 1
    finally:
        for server in reversed(servers):
            server.end()


def unreachable(node: Node) -> bool:
    """It says that it has no store: no word of the others, and no record written."""
    health = node.http("GET", "/health")[1]
    return all(health[what] is not None and "database" in health[what] for what in ("nodes_problem", "store_problem"))


def settled(node: Node) -> bool:
    health = node.http("GET", "/health")[1]
    return (health["nodes_problem"], health["store_problem"], health["unwritten_records"]) == (None, None, 0)


def test_a_holder_that_is_cut_off_and_must_end(nodes: Nodes, lan: Lan) -> None:
    """`slotLost: cancel`: its run has ended, by force, before the other node may start, whatever `killTimeout` says;
    the record arrives when the network is back, with its cause."""
    job = nodes.job(slotLost="cancel", killTimeout=60)
    job["command"] = (f"trap '' TERM\n{nodes.mark('start')}\n"
                      f'while :; do echo "$NODE alive $(date +%s.%N)" > {nodes.folder}/alive-$NODE; sleep 0.05; done')
    a, b, host = start(nodes, lan, job)
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    (run,) = a.live()
    host.cut()
    start_until(b, 200, 3 * TTL)
    begun = until(lambda: nodes.marked("start", "b"), what="b's run")[0][2]
    assert float((nodes.folder / "alive-a").read_text().split()[2]) < begun
    host.heal()
    until(lambda: b.run(run)["outcome"] == "cancelled", 15, "the true record")
    assert b.run(run)["stop"]["cause"] == "lost-lease"
    until(lambda: settled(a), 10, "the end of the trouble")

"""Cluster-scoped jobs on a store that hangs, lies, refuses or dies, with real daemons."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from gate import Gate
from memory_fuse import MemoryMount
from nodes_kit import DIRECTORY, TTL, Node, Nodes, nodes_on, start_until
from rig import living, new_tag, until

from postgres_server import PostgresServer

DEGRADED = ("Job j: cannot claim its cluster concurrency slot (",
            "); enforcing concurrencyPolicy on this node only for this run (onStoreUnavailable: degrade)")
CLOSED = ("Job j skipped: cannot claim its cluster concurrency slot (", ") and onStoreUnavailable is fail-closed")
UNTRUSTED = ("state: the store's file locks cannot be trusted for cluster-wide concurrency (",
             "); concurrencyScope: cluster claims degrade per onStoreUnavailable")


def mounted(tmp_path: Path, *, grants_every_lock: bool = False) -> MemoryMount:
    try:
        return MemoryMount(tmp_path / "mount", grants_every_lock=grants_every_lock)
    except OSError:
        pytest.skip("no file system may be mounted here")


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[MemoryMount]:
    made = mounted(tmp_path)
    yield made
    made.close()


@pytest.fixture
def lying_mount(tmp_path: Path) -> Iterator[MemoryMount]:
    made = mounted(tmp_path, grants_every_lock=True)
    yield made
    made.close()


@pytest.fixture
def server(postgres_programs: Path) -> Iterator[PostgresServer]:
    """A database server of this test, which it may freeze and kill."""
    made = PostgresServer(postgres_programs)
    try:
        made.start()
        yield made
    finally:
        if made.pid is not None:
            thaw(made)
        made.end()


def local(nodes: Nodes) -> str:
    """What is a node's own must not lie on the mount that fails."""
    return str(nodes.folder / "local")


def test_53_locks_that_are_no_locks(tmp_path: Path, lying_mount: MemoryMount) -> None:
    """53: A store whose locks are no-ops is found out once per opening, with one error. Claims are then treated by
    `onStoreUnavailable`: fail-closed lets nothing in (503 by hand), degrade one run on each node."""
    with nodes_on(tmp_path, DIRECTORY, str(lying_mount.folder)) as nodes:
        job = nodes.job(seconds=30)
        a, b = nodes.start(job, localPath=local(nodes), onStoreUnavailable="fail-closed")
        for one in (a, b):
            assert "ERROR" in one.logged(*UNTRUSTED)
            for _ in range(2):
                status, body = one.start_job()
                assert status == 503 and "onStoreUnavailable is fail-closed" in str(body)
            one.logged(*CLOSED)
            assert len(one.lines(UNTRUSTED[0])) == 1
        assert nodes.marked() == []
        for one in (a, b):
            one.stop()
            one.write_jobs(job, localPath=local(nodes), onStoreUnavailable="degrade")
            one.start()
        for one in (a, b):
            assert one.start_job()[0] == 200
            one.logged(*DEGRADED)
            assert one.start_job()[0] == 409, "the policy of this node alone holds"
        until(lambda: len(nodes.marked("start")) == 2, what="one run on each node")


def test_a_mount_that_hangs(tmp_path: Path, mount: MemoryMount) -> None:
    """Each operation is bounded by ten seconds, and no pass of the schedule waits for one: other jobs are on time while
    the mount does not answer. The launch degrades: it starts, with a warning. The renewal that fails is no end of the
    run that has the slot; when the mount answers again the slot is renewed."""
    with nodes_on(tmp_path, DIRECTORY, str(mount.folder)) as nodes:
        beat = {"name": "beat", "schedule": {"second": "*"}, "command": nodes.mark("beat")}
        (a,) = nodes.start([nodes.job(seconds=60), nodes.job(name="k", seconds=60), beat], "a", localPath=local(nodes))
        assert a.start_job("j")[0] == 200
        until(lambda: nodes.marked("start"), what="a's run")
        mount.answering.clear()
        hung = time.time()
        try:
            status, _ = a.start_job("k")
            took = time.time() - hung
            assert status == 200 and 8 < took < 25, took
            a.logged("Job k: cannot claim its cluster concurrency slot (", "not answer within 10 seconds", DEGRADED[1])
            a.logged("Job j: its cluster concurrency slot could not be renewed")
            until(lambda: len(nodes.marked("start")) == 2, 15, "the run of k")
        finally:
            mount.answering.set()
        a.logged("Job j: its cluster concurrency slot is renewed again", seconds=15)
        assert len(a.live("j")) == 1 and a.slot("j")["held"]
        assert a.http("GET", "/health")[1]["slots_unanswered"] >= 1


def test_a_release_that_fails(tmp_path: Path, mount: MemoryMount) -> None:
    """A slot that cannot be released is told of, and frees by time to live."""
    with nodes_on(tmp_path, DIRECTORY, str(mount.folder)) as nodes:
        a, b = nodes.start(nodes.job(seconds=3), localPath=local(nodes))
        assert a.start_job()[0] == 200
        until(lambda: nodes.marked("start"), what="a's run")
        mount.faults.update({13: 5, 35: 5, 1: 5})  # no link, no new file, no look: EIO
        try:
            a.logged("state: failed to release the concurrency slot for j (", "); it frees by TTL", seconds=15)
        finally:
            mount.faults.clear()
        ended = nodes.marked("end", "a")[0][2]
        start_until(b, 200, 2 * TTL)
        assert until(lambda: nodes.marked("start", "b"), what="b's run")[0][2] - ended > 1.0


def test_slot_lost_cancel_ends_the_run_before_a_peer_may_start(tmp_path: Path, server: PostgresServer) -> None:
    """`slotLost: cancel`, and a database that stops answering: the holder ends its run within the time to live of the
    last renewal, by force if need be, so before any other node could start. Its cause is `lost-lease`."""
    with nodes_on(tmp_path, "postgres", server.url()) as nodes:
        tag = new_tag()
        job = nodes.job(slotLost="cancel", killTimeout=60)
        job["command"] = f"trap '' TERM\n{nodes.mark('start')}\nwhile :; do sleep {tag}; done"
        (a,) = nodes.start(job, "a")
        assert a.start_job()[0] == 200
        until(lambda: nodes.marked("start"), what="a's run")
        run = a.live()[0]
        freeze(server)
        frozen = time.monotonic()
        try:
            until(lambda: not living(tag), TTL + 0.5, "the end of the run")
            assert time.monotonic() - frozen < TTL
            a.logged("Job j: its cluster concurrency slot cannot be renewed, and may be another node's soon", run,
                     "(slotLost: cancel)")
        finally:
            thaw(server)
        record = a.recorded(run, 40)
        assert record["outcome"] == "cancelled" and record["stop"]["cause"] == "lost-lease"


def test_slot_lost_continue_lets_it_run(tmp_path: Path, server: PostgresServer) -> None:
    """By default a store blip ends no run: it goes on through an outage longer than its time to live, keeps the slot
    when nobody took it meanwhile, and no start is lost that was asked for afterwards."""
    with nodes_on(tmp_path, "postgres", server.url()) as nodes:
        (a,) = nodes.start(nodes.job(seconds=60), "a")
        assert a.start_job()[0] == 200
        until(lambda: nodes.marked("start"), what="a's run")
        run = a.live()[0]
        server.kill()
        a.logged("Job j: its cluster concurrency slot could not be renewed", seconds=10)
        time.sleep(TTL)
        assert len(a.live()) == 1
        server.start()
        a.logged("Job j: its cluster concurrency slot is renewed again", seconds=30)
        assert a.slot()["held"]
        assert a.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
        assert a.recorded(run, 20)["outcome"] == "cancelled"


def test_57_one_clock_decides(tmp_path: Path, server: PostgresServer) -> None:
    """57: The database of one node is cut off while it runs the job with `slotLost: cancel`; the other node, which has
    the database, starts no earlier than the time to live after the last renewal, and the runs do not overlap."""
    with nodes_on(tmp_path, "postgres", server.url()) as nodes:
        job = nodes.job(slotLost="cancel", killTimeout=1)
        job["command"] = f"trap '{nodes.mark('stop')}; exit 0' TERM\n{nodes.mark('start')}\nwhile :; do sleep 0.1; done"
        gate = Gate(server.port)
        try:
            a = nodes.node("a", url=server.url().replace(str(server.port), str(gate.port)))
            b = nodes.node("b")
            for one in (a, b):
                one.start_on(job)
            assert a.start_job()[0] == 200
            until(lambda: nodes.marked("start", "a"), what="a's run")
            time.sleep(2)  # it has been renewed
            gate.shut()
            cut = time.time()
            start_until(b, 200, 3 * TTL)
            begun = until(lambda: nodes.marked("start", "b"), what="b's run")[0][2]
            stopped = nodes.marked("stop", "a")[0][2]
            assert stopped < begun and begun - cut > TTL / 2
        finally:
            gate.close()


def test_a_database_that_is_killed_comes_back(tmp_path: Path, server: PostgresServer) -> None:
    """SIGKILL of the server: fail-closed starts nothing and answers 503, health says why, nothing crashes; when the
    server is back all is well by itself, and what was acknowledged is there."""
    with nodes_on(tmp_path, "postgres", server.url()) as nodes:
        (a,) = nodes.start(nodes.job(seconds=0.2), "a", onStoreUnavailable="fail-closed")
        assert a.start_job()[0] == 200
        until(a.runs, what="a record")
        (first,) = a.runs()
        server.kill()
        status, body = a.start_job()
        assert status == 503 and "onStoreUnavailable is fail-closed" in str(body)
        until(lambda: a.http("GET", "/health")[1]["nodes_problem"], 15, "the problem in /health")
        server.start()
        start_until(a, 200, 40)
        until(lambda: len(a.runs()) == 2, 15, "the second record")
        assert a.runs()[0]["id"] == first["id"]
        until(lambda: a.http("GET", "/health")[1]["nodes_problem"] is None, 15, "health")


def test_an_outage_makes_nobody_silent(tmp_path: Path, server: PostgresServer) -> None:
    """While the database is away for longer than the time to live nobody could be heard. The first node to come back
    takes no other for dead: no live run is recorded as unknown, and each keeps its slot. Who does not come back is
    found silent later."""
    with nodes_on(tmp_path, "postgres", server.url()) as nodes:
        a, b = nodes.start([nodes.job(seconds=60), nodes.job(seconds=60, name="k")])
        assert a.start_job("j")[0] == 200 and b.start_job("k")[0] == 200
        until(lambda: len(nodes.marked("start")) == 2, what="both runs")
        (run,) = b.live("k")
        server.kill()
        time.sleep(TTL + 0.5)
        server.start()
        for one, job in ((a, "j"), (b, "k")):
            until(lambda one=one, job=job: seen(one) and not one.slot(job)["in_doubt"], 15, f"{one.name} and its slot")
        assert a.lines("fallen silent") == b.lines("fallen silent") == []
        assert a.run(run)["phase"] != "recorded"
        b.signal(signal.SIGSTOP)
        a.logged("node b has fallen silent", seconds=3 * TTL)
        assert a.recorded(run)["outcome"] == "unknown"


def seen(node: Node) -> bool:
    """It sees the others."""
    return bool(node.http("GET", "/health")[1]["nodes_problem"] is None)


def test_a_user_without_the_right_to_create(tmp_path: Path, server: PostgresServer) -> None:
    """A database user that may not create the schema: the daemon does not start, and says what to do in a line. A
    password in the URL is in no log, not in the answer of `check`, and in no answer of the API."""
    secret = "hunter2-and-more"
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE poor LOGIN PASSWORD 'hunter2-and-more'")
        connection.execute("CREATE DATABASE theirs")
    url = f"postgresql://poor:{secret}@127.0.0.1:{server.port}/theirs"
    with nodes_on(tmp_path, "postgres", url) as nodes:
        a = nodes.node("a")
        a.write_jobs(nodes.job())
        assert a.spawn().wait(30) != 0
        assert "may not create schema sexton" in a.log() and "Traceback" not in a.log()
        assert "CREATE SCHEMA sexton AUTHORIZATION" in a.log()
        with psycopg.connect(server.url("theirs"), autocommit=True) as connection:
            connection.execute("CREATE SCHEMA sexton AUTHORIZATION poor")
        a.start()
        a.write_jobs(nodes.job(), url=url + "?application_name=other")
        assert a.http("POST", "/reload")[0] == 200
        a.logged("the store has moved")
        server.kill()
        until(lambda: a.http("GET", "/health")[1]["nodes_problem"], 15, "the problem in /health")
        answers = [str(a.http("GET", path)) for path in ("/health", "/nodes", "/jobs", "/metrics", "/version")]
        server.start()
        wrong = nodes.node("b", url=url.replace("theirs", "nowhere"))
        wrong.write_jobs(nodes.job())
        assert wrong.spawn().wait(30) != 0
        wrong.command = ("-m", "sexton", "check")
        wrong.spawn().wait(30)
        broken = nodes.node("c", url=url.replace("postgresql", "postgrasql"))
        broken.write_jobs(nodes.job())
        assert broken.spawn().wait(30) != 0
        for told in (a.log(), wrong.log(), broken.log(), *answers):
            assert secret not in told


def freeze(server: PostgresServer) -> None:
    _signal_all(server, signal.SIGSTOP)


def thaw(server: PostgresServer) -> None:
    _signal_all(server, signal.SIGCONT)


def _signal_all(server: PostgresServer, number: signal.Signals) -> None:
    """The server and its backends, each of which leads a session of its own."""
    for pid in server.processes():
        os.kill(pid, number)

"""What one node shows of the others and asks of them, with real daemons."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import UTC, datetime, timedelta

from keep_kit import kept, nothing_left
from nodes_kit import TTL, Nodes, start_until
from refused_kit import WITHOUT_KILL, needs_root, refused
from rig import NEVER, Rig, alive, always, new_tag, until

from sexton.model.node import NodeFacts, NodeIdentity
from sexton.store.directory.store import DirectoryStore


def test_cancel_from_another_node(nodes: Nodes) -> None:
    """`POST /runs/{id}/cancel` reaches the node that runs it: with `wait` it answers 200 when the sequence has
    finished, in far less than a time to live; who asked and why are in the record."""
    plain = {"name": "p", "schedule": NEVER, "command": f"{nodes.mark('start')}\nexec sleep 60"}
    a, b = nodes.start(plain, slotTtlSeconds=60)
    assert a.start_job("p")[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    run = a.live("p")[0]
    assert [one["id"] for one in b.http("GET", "/runs")[1]["runs"]] == [run]
    until(lambda: b.run(run)["phase"] == "running", 5, "b hears that it has started")
    assert b.run(run)["node"] == "a"
    began = time.monotonic()
    status, body = b.http("POST", f"/runs/{run}/cancel?wait=20", {"reason": "enough", "requested_by": "i"})
    assert status == 200 and time.monotonic() - began < 4, body
    assert body["outcome"] == "cancelled" and body["stop"]["reason"] == "enough" and body["stop"]["requested_by"] == "i"
    a.logged(f"Job p: cancel of run {run} requested on node b by i: enough")
    assert b.http("POST", f"/runs/{run}/cancel")[0] == 409
    assert [one["outcome"] for one in b.runs("p")] == ["cancelled"], "history shows the runs of all nodes"
    status, _ = b.http("POST", "/runs/nonsense/cancel")
    assert status == 404


def test_cancel_on_a_node_that_is_gone(folder_nodes: Nodes) -> None:
    """Nobody is promised a cancel by a node that is dead: 409, and the node is named."""
    a, b = folder_nodes.start(folder_nodes.job())
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start"), what="a's run")
    run = a.live()[0]
    a.kill9()
    status, body = b.http("POST", f"/runs/{run}/cancel")
    assert status == 409 and ("node a" in str(body) or "has ended" in str(body))


def test_nodes_are_listed(nodes: Nodes) -> None:
    """`GET /nodes` lists nodes with versions, heartbeats, clocks, slots and runs; one that ends in an orderly way is
    gone at once. `job-set-id` differs from one that has loaded other jobs."""
    job = nodes.job()
    a, b = nodes.start(job)
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    (run,) = a.live()

    def seen_by(one: Rig) -> dict[str, dict[str, object]]:
        status, body = one.http("GET", "/nodes")
        assert status == 200 and body["shared"] and body["problem"] is None
        return {node["name"]: node for node in body["nodes"]}

    shown = until(lambda: (found := seen_by(b)) and found["a"]["slots"] == ["j"] and found, TTL, "a's slot")
    assert set(shown) == {"a", "b"} and shown["b"]["self"] and not shown["a"]["self"]
    assert shown["a"]["runs"] == [run] and shown["a"]["state"] == "alive" and shown["a"]["same_jobs"]
    assert shown["a"]["version"] == b.http("GET", "/health")[1]["version"]
    assert abs(float(str(shown["a"]["clock_offset"]))) < 2 and float(str(shown["a"]["heartbeat_age"])) < TTL
    assert a.http("GET", "/job-set-id")[1] == b.http("GET", "/job-set-id")[1]
    assert b.http("GET", "/health")[1]["nodes"] == 2
    b.write_jobs({**job, "killTimeout": 3})
    assert b.http("POST", "/reload")[0] == 200
    assert a.http("GET", "/job-set-id")[1] != b.http("GET", "/job-set-id")[1]
    until(lambda: not seen_by(a)["b"]["same_jobs"], TTL, "a sees that b has other jobs")
    b.stop()
    assert set(seen_by(a)) == {"a"}


def test_a_name_is_given_once(folder_nodes: Nodes) -> None:
    """Two daemons of one name on one machine become NAME and NAME-2; the second one's runs are its own."""
    a = folder_nodes.node("a")
    twin = folder_nodes.node("b")
    job = folder_nodes.job()
    a.start_on(job, nodeName="same")
    twin.start_on(job, nodeName="same")
    assert [one.http("GET", "/health")[1]["node"] for one in (a, twin)] == ["same", "same-2"]


def test_what_a_dead_node_claimed_is_fired(folder_nodes: Nodes) -> None:
    """`runOn: one-node`: an occurrence that a node has claimed and, being dead, not started is fired by another one,
    once."""
    b, c = folder_nodes.start(
        {"name": "j", "schedule": NEVER, "runOn": "one-node", "command": folder_nodes.mark("start")}, "bc")
    due = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1)

    async def die_between() -> None:
        store = DirectoryStore(folder_nodes.place)
        await store.open()
        dead = NodeIdentity(id="ghost#1", name="ghost", pid=2**22 - 2, pid_started_ticks=1, boot_id="elsewhere",
                            pid_namespace=1)
        await store.announce(NodeFacts(identity=dead, version="1", started_at=due, clock=datetime.now(UTC),
                                       job_set_id="", jobs=1, slots=(), runs=()))
        assert await store.claim_fire("j", due, dead)
        await store.close()

    asyncio.run(die_between())
    until(lambda: folder_nodes.marked("start"), 3 * TTL, "the lost occurrence")
    until(lambda: len(b.http("GET", "/nodes")[1]["nodes"]) == 2, 2 * TTL, "the ghost is settled")
    assert len(folder_nodes.marked("start")) == 1
    (run,) = until(b.runs, what="its record")
    assert datetime.fromisoformat(run["scheduled_for"]) == due
    assert b.lines("a node died between claiming the run due at") or c.lines("a node died between claiming")


def test_a_kept_run_keeps_its_slot(nodes: Nodes) -> None:
    """`onDaemonLoss: keep` on a shared store: the daemon that is started anew takes the run over and has its slot at
    once, with a higher fence; no peer gets in between, nobody records it as unknown, and its end is recorded."""
    tag = new_tag()
    job = kept(f"sleep {tag}", concurrencyScope="cluster")
    ttl = 20  # the new daemon must be there within it, however busy the machine is
    a, b = nodes.start(job, slotTtlSeconds=ttl)
    assert a.start_job()[0] == 200
    run = a.live()[0]
    pid = a.running(run)
    fence = a.slot()["fence"]
    a.kill9()
    assert b.start_job()[0] == 409
    a.start()
    until(lambda: a.slot()["held"], TTL, "the slot")
    assert a.slot()["fence"] > fence
    always(lambda: b.start_job()[0] == 409, 2.0, "a has the slot")
    assert alive(pid) and a.run(run)["phase"] == "running" and b.run(run)["phase"] == "running"
    assert not b.lines("interrupted") and not a.lines("interrupted")
    status, body = b.http("POST", f"/runs/{run}/cancel?wait=15")
    assert status == 200 and body["outcome"] == "cancelled", body
    nothing_left(tag)
    assert [one["outcome"] for one in a.runs()] == ["cancelled"]


@needs_root
def test_abandon_from_another_node(folder_nodes: Nodes) -> None:
    """A run that could not be terminated keeps its slot in the cluster, renewed beyond its time to live, after its
    record. `POST /runs/{id}/abandon` on another node reaches the one that it lives on, and the slot is free."""
    job = refused("j", 40.0, executionTimeout=0.4, killTimeout=0.2, concurrencyPolicy="Forbid",
                  concurrencyScope="cluster")
    a, b = folder_nodes.node("a"), folder_nodes.node("b")
    a.prefix = WITHOUT_KILL
    for one in (a, b):
        one.start_on(job)
    assert a.start_job()[0] == 200
    run = a.live()[0]
    pid = a.running(run)
    try:
        assert a.recorded(run)["gone"]["state"] == "survivors"
        always(lambda: b.start_job()[0] == 409, TTL + 1.5, "its slot is kept")
        status, _ = b.http("POST", f"/runs/{run}/abandon", {"reason": "the array is dead", "requested_by": "me"})
        assert status == 202
        said = until(lambda: b.run(run)["abandoned"], 5, "it is in the record")
        assert said["reason"] == "the array is dead" and said["requested_by"] == "me" and alive(pid)
        start_until(b, 200, 5)
        assert b.http("POST", f"/runs/{run}/abandon")[0] == 409
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_pause_holds_on_every_node(folder_nodes: Nodes) -> None:
    """Told to one node, the others hear of it with their next look, of the pause and of its end."""
    a, b = folder_nodes.start({"name": "j", "command": "true", "schedule": NEVER})
    assert a.http("POST", "/jobs/j/pause", {"note": "moving house", "by": "ops"})[0] == 200
    until(lambda: (b.job()["paused"] or {}).get("note") == "moving house", 3 * TTL, "the pause on the other node")
    assert b.http("POST", "/jobs/j/resume")[0] == 200
    until(lambda: a.job()["paused"] is None, 3 * TTL, "the end of the pause")

"""A reload that names another store, while runs live (binding page, "Concurrency across a cluster")."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nodes_kit import POSTGRES, TTL, Node, Nodes, start_until
from rig import NEVER, Rig, always, until


def elsewhere(nodes: Nodes) -> dict[str, Any]:
    """Another store: a folder, whatever the nodes are on."""
    place = {"path": str(nodes.folder / "elsewhere"), "topology": "shared"}
    return place if nodes.kind != POSTGRES else {**place, "localPath": nodes.section()["localPath"]}


def move(node: Node, job: dict[str, Any] | list[dict[str, Any]], state: dict[str, Any]) -> tuple[int, Any]:
    """Write the configuration with another store, and have it taken up."""
    node.state = state
    node.write_jobs(job)
    return node.http("POST", "/reload")


def test_the_next_launch_claims_in_the_new_store(nodes: Nodes) -> None:
    """The run that lives goes on and keeps its slot in the store that is left, where a peer is refused for longer than
    the slot's time to live, and has it in the new one, too; its end is recorded in both, and the next launch is in
    the new one only."""
    job = nodes.job(seconds=TTL + 6)
    a, b = nodes.start(job)
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    run = a.live()[0]
    status, body = move(a, job, elsewhere(nodes))
    assert status == 200, body
    assert "WARNING" in a.logged("its cluster concurrency slot stays in the previous state store")
    assert a.run(run)["phase"] == "running"
    until(lambda: a.slot()["held"], what="the slot in the new store")
    c = nodes.node("c")
    c.state = elsewhere(nodes)
    c.start_on(job)
    assert c.start_job()[0] == 409, "the run has its slot in the new store, too"
    always(lambda: b.start_job()[0] == 409, TTL + 1.5, "the run has its slot in the store that was left")
    assert a.recorded(run)["outcome"] == "success"
    a.logged("the store that was left is owed nothing more")
    assert b.run(run)["outcome"] == "success", "the old store has its record"
    assert c.run(run)["outcome"] == "success"
    start_until(a, 200, 5)
    second = until(a.live, what="the next run")[0]
    until(lambda: c.run(second)["phase"] == "running", what="the next run")
    assert c.start_job()[0] == 409
    assert b.http("GET", f"/runs/{second}")[0] == 404
    assert b.start_job()[0] == 200, "a has nothing to do with the old store any more"


def test_a_store_that_cannot_be_used_is_not_moved_to(folder_nodes: Nodes) -> None:
    """The whole reload is refused, with the reason; the store, the slot and the jobs are those from before."""
    job = folder_nodes.job(seconds=60)
    (a,) = folder_nodes.start(job, "a")
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start"), what="a's run")
    (folder_nodes.folder / "file").write_text("no folder")
    unusable = {"path": str(folder_nodes.folder / "file" / "store"), "topology": "shared"}
    status, body = move(a, [job, {**job, "name": "k"}], unusable)
    assert status == 422 and "section state names another store, which cannot be moved to" in json.dumps(body)
    assert a.slot()["held"] and a.http("GET", "/jobs/k")[0] == 404
    assert not a.lines("the store has moved")
    assert move(a, [job, {**job, "name": "k"}], folder_nodes.section())[0] == 200
    assert a.http("GET", "/jobs/k")[0] == 200


def test_what_takes_a_restart_says_why(folder_nodes: Nodes) -> None:
    """From a store for several nodes to one for this node alone, or with another name of the node: that waits for a
    restart, and the reason is told; everything else is taken up."""
    job = folder_nodes.job(seconds=60)
    (a,) = folder_nodes.start(job, "a")
    assert move(a, [job, {**job, "name": "k"}], {**elsewhere(folder_nodes), "localPath": str(a.folder)})[0] == 200
    assert "the node's name or folder has changed" in a.logged(
        "section state has changed; that takes effect when the daemon is restarted")
    assert a.http("GET", "/jobs/k")[0] == 200
    free = {**job, "concurrencyScope": "node"}
    assert move(a, free, {**elsewhere(folder_nodes), "topology": "single-node"})[0] == 200
    a.logged("one store is for several nodes and the other for one")


def test_a_pause_moves_along(folder_nodes: Nodes) -> None:
    """Job states come along: what is paused here is paused for every node of the new store."""
    job = {**folder_nodes.job(seconds=1), "schedule": NEVER}
    (a,) = folder_nodes.start(job, "a")
    assert a.http("POST", "/jobs/j/pause", {"durationSeconds": 3600, "note": "why"})[0] == 200
    assert move(a, job, elsewhere(folder_nodes))[0] == 200
    c = folder_nodes.node("c")
    c.state = elsewhere(folder_nodes)
    c.start_on(job)
    assert c.job("j")["paused"]["note"] == "why"


def test_a_crash_after_the_move_is_settled_in_the_new_store(folder_nodes: Nodes) -> None:
    """kill -9 after the move: the next daemon on the new store records the run that began in the old one as unknown and
    proven gone, on the word of the zygote that had left its file in the old store's folder."""
    job = folder_nodes.job(seconds=60)
    (a,) = folder_nodes.start(job, "a")
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start"), what="a's run")
    run = a.live()[0]
    assert move(a, job, elsewhere(folder_nodes))[0] == 200
    a.kill9()
    a.start_on(job)
    record = a.run(run)
    assert record["outcome"] == "unknown" and record["gone"]["state"] == "proven", record


@pytest.mark.parametrize("kind", ["waits", "runs"])
def test_one_node_alone_moves_its_ledger(rig: Rig, tmp_path: Path, kind: str) -> None:
    """A ledger of one machine moves, too: new runs, their output and the queue are in the new place; a run that waits
    for its pool waits on there, and only there."""
    jobs = [{"name": "j", "command": "sleep 3", "schedule": NEVER, "pool": "p" if kind == "waits" else None,
             "captureStdout": True}, {"name": "k", "command": "echo told", "schedule": NEVER, "captureStdout": True}]
    jobs[0] = {key: value for key, value in jobs[0].items() if value is not None}
    pools = {"p": {"slots": 1}}
    old, new = {"path": str(tmp_path / "old")}, {"path": str(tmp_path / "new")}
    rig.write(jobs, state=old, pools=pools)
    rig.start()
    first = rig.http("POST", "/jobs/j/start")[1]["run"]
    second = rig.http("POST", "/jobs/j/start")[1]["run"] if kind == "waits" else None
    until(lambda: rig.run(first)["phase"] == "running", what="the first run")
    rig.write(jobs, state=new, pools=pools)
    assert rig.http("POST", "/reload")[0] == 200
    told = rig.http("POST", "/jobs/k/start")[1]["run"]
    assert rig.recorded(told)["outcome"] == "success"
    assert "told" in rig.http("GET", f"/runs/{told}/log")[1]
    assert rig.recorded(first)["outcome"] == "success"
    if second is not None:
        assert rig.recorded(second)["outcome"] == "success"
    rig.stop()
    rig.write(jobs, state=old, pools=pools)
    rig.start()
    shown = {run["id"]: run["outcome"] for run in rig.http("GET", "/runs")[1]["runs"]}
    assert shown == {first: "success"} | ({second: "skipped"} if second is not None else {})

"""`runOn: one-node`: one fire for the whole fleet, with real daemons."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from nodes_kit import TTL, Nodes
from rig import until

EACH_SECOND = {"second": "*"}


def one_node(nodes: Nodes, **more: Any) -> dict[str, Any]:
    """Each second one mark, with the occurrence that it is for."""
    return {"name": "j", "schedule": EACH_SECOND, "runOn": "one-node",
            "command": f'echo "$NODE $SEXTON_SCHEDULED_AT" >> {nodes.folder}/fires', **more}


def fires(nodes: Nodes) -> list[tuple[str, datetime]]:
    file = nodes.folder / "fires"
    if not file.exists():
        return []
    return [(node, datetime.fromisoformat(at)) for node, at in (line.split() for line in file.read_text().splitlines())]


def whole(found: list[tuple[str, datetime]], since: datetime, until_: datetime) -> None:
    """Each second in between has exactly one fire."""
    count = Counter(at for _, at in found)
    assert [at for at, times in count.items() if times > 1] == [], "fired twice"
    wanted = [since + timedelta(seconds=number) for number in range(int((until_ - since).total_seconds()) + 1)]
    assert [at for at in wanted if at not in count] == [], "not fired"


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def test_each_occurrence_once(nodes: Nodes) -> None:
    """Three nodes with the same job: each second it is fired by exactly one of them, and every node's history has
    them all."""
    found = nodes.start(one_node(nodes), "abc")
    since = now() + timedelta(seconds=1)
    time.sleep(9)
    last = now() - timedelta(seconds=2)
    whole(fires(nodes), since, last)
    ids = {one.name: {run["id"] for run in one.http("GET", "/jobs/j/runs?limit=1000")[1]["runs"]
                      if since <= datetime.fromisoformat(run["scheduled_for"]) <= last} for one in found}
    assert ids["a"] == ids["b"] == ids["c"] and len(ids["a"]) == int((last - since).total_seconds()) + 1


def test_each_occurrence_once_through_a_death(nodes: Nodes) -> None:
    """SIGKILL of one of two nodes in the middle: no occurrence is fired twice, and none is lost."""
    a, b = nodes.start(one_node(nodes))
    since = now() + timedelta(seconds=1)
    time.sleep(4)
    a.kill9()
    time.sleep(TTL + 1)
    last = now() - timedelta(seconds=2)
    until(lambda: last in {at for _, at in fires(nodes)}, 5, "the last occurrence")
    whole(fires(nodes), since, last)
    assert {node for node, _ in fires(nodes)} >= {"b"} and b.job()["enabled"]


def test_a_rolling_restart(folder_nodes: Nodes) -> None:
    """One node after the other is restarted in an orderly way, as an upgrade does it: each occurrence once. What an
    ending node had claimed and does not start any more is fired by another one."""
    job = one_node(folder_nodes)
    job["command"] = f"trap '' TERM\n{job['command']}"  # a stop must not take the mark away
    found = folder_nodes.start(job)
    since = now() + timedelta(seconds=1)
    time.sleep(1.5)
    for one in found:
        one.stop()
        one.start()
        time.sleep(1.5)
    last = now() - timedelta(seconds=2)

    def missing() -> set[datetime]:
        wanted = {since + timedelta(seconds=number) for number in range(int((last - since).total_seconds()) + 1)}
        return wanted - {at for _, at in fires(folder_nodes)}

    until(lambda: not missing(), 3 * TTL, "what was left to others")
    whole(fires(folder_nodes), since, last)


def test_what_is_skipped_is_not_lost(folder_nodes: Nodes) -> None:
    """An occurrence that a node has claimed and skipped (its run before still lives) is decided: when the node dies,
    nobody fires it late."""
    job = one_node(folder_nodes, concurrencyPolicy="Forbid")
    job["command"] += "\nsleep 100"
    a, b = folder_nodes.node("a"), folder_nodes.node("b")
    a.start_on(job)
    until(lambda: len(fires(folder_nodes)) == 1, what="the run")
    a.logged("still running and concurrencyPolicy is Forbid")
    b.start_on({**job, "enabled": True, "schedule": "0 0 1 1 *"})
    time.sleep(3)
    a.kill9()
    b.logged("node a has fallen silent", seconds=2 * TTL)
    until(lambda: not [one for one in b.http("GET", "/nodes")[1]["nodes"] if one["name"] == "a"], 3 * TTL, "a is gone")
    assert not b.lines("died between claiming") and len(fires(folder_nodes)) == 1


def test_many_pruned_runs_are_not_lost_ones(folder_nodes: Nodes) -> None:
    """Runs that the ledger has forgotten (`maxRunsPerJob`) are none that a dead node has not started."""
    job = one_node(folder_nodes)
    a, b = folder_nodes.start(job, maxRunsPerJob=3)
    b.stop()
    b.write_jobs({**job, "schedule": "0 0 1 1 *"}, maxRunsPerJob=3)
    b.start()
    time.sleep(6)
    a.kill9()
    until(lambda: not [one for one in b.http("GET", "/nodes")[1]["nodes"] if one["name"] == "a"], 3 * TTL, "a is gone")
    count = Counter(at for _, at in fires(folder_nodes))
    assert max(count.values()) == 1 and not b.lines("died between claiming")

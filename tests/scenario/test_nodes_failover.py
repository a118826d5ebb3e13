"""A database with a standby: the primary is killed, the standby takes its place, and the nodes go with it."""

from __future__ import annotations

import time
from pathlib import Path

from nodes_kit import TTL, Node, nodes_on, start_until
from rig import until

from postgres_pair import Pair


def settled(node: Node) -> bool:
    health = node.http("GET", "/health")[1]
    return (health["nodes_problem"], health["store_problem"], health["unwritten_records"]) == (None, None, 0)


def test_nothing_is_lost_with_a_synchronous_standby(tmp_path: Path, pair: Pair) -> None:
    """SIGKILL of the primary: the nodes find the new one by themselves. The holder has its slot, with its fence; nobody
    else got in meanwhile; every record that was acknowledged is there, once; no occurrence was fired twice; the next
    owner of the slot has a higher fence."""
    pair.be_synchronous()
    with nodes_on(tmp_path, "postgres", pair.url) as nodes:
        each = {"name": "each", "schedule": {"second": "*"}, "runOn": "one-node", "command": nodes.mark("each")}
        a, b = nodes.start([nodes.job(seconds=60), each], onStoreUnavailable="fail-closed")
        assert a.start_job()[0] == 200
        until(lambda: nodes.marked("start"), what="a's run")
        (run,), fence = a.live(), a.slot()["fence"]
        until(lambda: len(a.runs("each")) > 2, 10, "records")
        acknowledged = {one["id"] for one in a.runs("each")}
        pair.fail_over()
        failed = time.time()
        start_until(b, 409, 15)
        assert "held by a" in str(b.start_job()[1])
        until(lambda: settled(a) and settled(b), 15, "the end of the trouble")
        until(lambda: nodes.marked("each") and nodes.marked("each")[-1][2] > failed + 1, 10, "scheduling")
        assert (a.slot()["held"], a.slot()["in_doubt"], a.slot()["fence"], a.live()) == (True, False, fence, [run])
        assert len(nodes.marked("start")) == 1 and not a.lines("taken over") and not b.lines("fallen silent")
        shown = b.runs("each")
        assert acknowledged <= {one["id"] for one in shown}
        for what in ("id", "scheduled_for"):
            assert len({one[what] for one in shown}) == len(shown), "nothing twice"
        assert a.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
        start_until(b, 200, 2 * TTL + 5)
        assert b.slot()["fence"] > fence and b.recorded(run)["outcome"] == "cancelled"
        a.logged("the database has failed over, or was restored (timeline 2)")


def test_a_lease_that_the_standby_never_heard_of(tmp_path: Path, pair: Pair) -> None:
    """The standby lags when the primary dies: it does not know that a has the slot. With `onStoreUnavailable:
    fail-closed` nobody else gets it: a has it back with its next renewal, with a higher fence than the one that was
    lost. Its run, the intent of which was lost, too, is recorded when it ends."""
    with nodes_on(tmp_path, "postgres", pair.url) as nodes:
        a, b = nodes.start(nodes.job(seconds=60), onStoreUnavailable="fail-closed")
        pair.stop_replication()
        assert a.start_job()[0] == 200
        until(lambda: nodes.marked("start"), what="a's run")
        (run,), fence = a.live(), a.slot()["fence"]
        pair.fail_over()
        start_until(b, 409, 15)
        assert "held by a" in str(b.start_job()[1])
        until(lambda: a.slot()["fence"] > fence, 10, "a new fence")
        assert len(nodes.marked("start")) == 1 and a.live() == [run]
        assert a.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
        until(b.runs, 15, "its record")
        assert [(one["id"], one["outcome"]) for one in b.runs()] == [(run, "cancelled")]

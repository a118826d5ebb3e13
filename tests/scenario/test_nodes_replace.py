"""Replace across the cluster, with real daemons: ask, hand over, give up."""

from __future__ import annotations

import signal
import time
from itertools import pairwise

from nodes_kit import TTL, Nodes, start_until
from rig import until
from sinks import HookSink

ASKED = "Job j: node {} requested this instance be replaced (concurrencyPolicy: Replace, concurrencyScope: cluster); " \
        "cancelling"
ASKING = "Job j: cluster Replace: asking the current slot holder ({}) to yield; the launch is re-attempted when the " \
         "slot frees"
LAUNCHED = "Job j: launched after the previous cluster slot holder yielded (concurrencyPolicy: Replace)"
GIVEN_UP = "Job j: the foreign holder ({}) did not yield its cluster concurrency slot within {:g}s; skipping this " \
           "launch (no-run over double-run)"


def test_the_holder_yields_at_once(nodes: Nodes, hooks: HookSink) -> None:
    """At the default time to live, a holder whose run ends at once hands over in under two seconds. The start answers
    202 with the run's id. The outgoing run is replaced: not a failure, not reported, not retried."""
    report = {"report": {"webhook": {"url": {"value": hooks.url("ok")}}},
              "retry": {"maximumRetries": 3, "initialDelay": 1, "maximumDelay": 1, "backoffMultiplier": 1}}
    a, b = nodes.start(nodes.job("Replace", onFailure=report, onSuccess={"report": report["report"]}),
                       slotTtlSeconds=30)
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start", "a"), what="a's run")
    first = a.live()[0]
    began = time.time()
    status, body = b.start_job()
    assert status == 202 and body["holder"] == "a" and body["run"] == body["queueId"] and body["queued"] == "j"
    begun = until(lambda: nodes.marked("start", "b"), what="b's run")[0][2]
    assert begun - began < 2.0, "the hand-over"
    b.logged(ASKING.format("a"))
    b.logged(LAUNCHED)
    a.logged(ASKED.format("b"))
    record = a.recorded(first)
    assert record["outcome"] == "replaced" and record["stop"]["cause"] == "replaced" and record["exit_code"] != 0
    assert b.run(body["run"])["phase"] == "running" and b.slot()["held"] and not a.slot()["held"]
    time.sleep(1.5)  # a retry would have come
    assert len(nodes.marked("start")) == 2 and not hooks.requests and not a.lines("retry #")


def test_the_new_one_starts_when_the_old_tree_is_gone(nodes: Nodes) -> None:
    """59: The holder keeps renewing while the old run drains, longer than its time to live, and the slot frees on
    release: starts and stops alternate, whatever node they are on."""
    job = nodes.job("Replace", 60, killTimeout=20)
    job["command"] = f"trap 'sleep {TTL + 2}; {nodes.mark('stop')}; exit 0' TERM\n{nodes.mark('start')}\n" \
                     "while :; do sleep 0.1; done"
    a, b = nodes.start(job)
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start", "a"), what="a's run")
    status, body = b.start_job()
    assert status == 202
    shown = b.run(body["run"])
    assert shown["phase"] != "recorded" and b.slot()["pursued_by"] == body["run"]
    until(lambda: nodes.marked("start", "b"), 2 * TTL, "b's run")
    assert [(node, what) for node, what, _ in nodes.marked()] == [("a", "start"), ("a", "stop"), ("b", "start")]
    assert not a.lines("taken over") and not b.lines("has fallen silent")


def test_59_starts_and_stops_alternate(folder_nodes: Nodes) -> None:
    """59: A, then B, then A again: start, stop, start, stop, start; replaced runs are no failures."""
    job = folder_nodes.job("Replace", 60, killTimeout=5)
    job["command"] = f"trap 'sleep 0.7; {folder_nodes.mark('stop')}; exit 0' TERM\n{folder_nodes.mark('start')}\n" \
                     "while :; do sleep 0.1; done"
    a, b = folder_nodes.start(job)
    for number, one in enumerate((a, b, a), 1):
        assert one.start_job()[0] in (200, 202)
        until(lambda number=number: len(folder_nodes.marked("start")) == number, 6, f"start {number}")
    assert [what for _, what, _ in folder_nodes.marked()] == ["start", "stop", "start", "stop", "start"]
    assert [run["outcome"] for run in a.runs()] == ["replaced", "replaced"]


def test_63_a_holder_that_does_not_yield(nodes: Nodes) -> None:
    """63: A drain longer than twice the time to live outlasts the pursuit: the launch is skipped, with a line that
    names the holder, and the run's page says so. Meanwhile the other jobs of the node are on time; afterwards the next
    start runs exactly one copy."""
    job = nodes.job("Replace", killTimeout=2 * TTL + 4)
    job["command"] = f"trap '' TERM\n{nodes.mark('start')}\nsleep 100; sleep 100"
    beat = {"name": "beat", "schedule": {"second": "*"}, "command": nodes.mark("beat")}
    a, b = nodes.start([job, beat])
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start", "a"), what="a's run")
    began = time.time()
    status, body = b.start_job()
    assert status == 202
    b.logged(GIVEN_UP.format("a", 2 * TTL), seconds=2 * TTL + 3)
    assert 2 * TTL - 0.5 <= time.time() - began <= 2 * TTL + 2
    record = b.recorded(body["run"])
    assert record["outcome"] == "skipped" and "a did not yield" in record["fail_reason"]
    beats = [when for _, _, when in nodes.marked("beat", "b") if began < when < began + 2 * TTL]
    assert len(beats) >= 2 * TTL - 1 and max(after - one for one, after in pairwise(beats)) < 2
    a.recorded(next(run for run in a.live()), 10)
    start_until(b, 200, 5)
    until(lambda: nodes.marked("start", "b"), what="b's run")
    assert len(nodes.marked("start")) == 2


def test_a_silent_holder_is_outwaited(folder_nodes: Nodes) -> None:
    """A holder that does not hear is waited for: its slot frees by time to live, and the launch is made then."""
    a, b = folder_nodes.start(folder_nodes.job("Replace"))
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start", "a"), what="a's run")
    a.signal(signal.SIGSTOP)
    try:
        assert b.start_job()[0] == 202
        until(lambda: folder_nodes.marked("start", "b"), 2 * TTL, "b's run")
        b.logged(LAUNCHED)
        b.logged("Job j: its cluster concurrency slot was taken from a, which has fallen silent")
    finally:
        a.signal(signal.SIGCONT)
    a.logged("was taken over by b while it is still running here")
    assert len(a.live()) == 1 and not a.lines("requested this instance be replaced")


def test_a_pursuit_can_be_cancelled(folder_nodes: Nodes) -> None:
    """Who waits for a holder can be cancelled like any run, and then does not start."""
    job = folder_nodes.job("Replace", killTimeout=6)
    job["command"] = f"trap '' TERM\n{folder_nodes.mark('start')}\nsleep 100; sleep 100"
    a, b = folder_nodes.start(job)
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start", "a"), what="a's run")
    run = b.start_job()[1]["run"]
    assert b.http("POST", f"/runs/{run}/cancel?wait=5")[0] == 200
    assert b.recorded(run)["outcome"] == "cancelled"
    first = a.live()[0]
    assert a.recorded(first, 10)["outcome"] == "replaced"
    assert len(folder_nodes.marked("start")) == 1 and not b.slot()["held"]


def test_a_manual_replace_is_answered_at_once(folder_nodes: Nodes) -> None:
    """A local Replace of a cluster-scoped job does not keep who asked waiting for the end of the old instance."""
    job = folder_nodes.job("Replace", killTimeout=6)
    job["command"] = f"trap '' TERM\n{folder_nodes.mark('start')}\nsleep 100; sleep 100"
    (a,) = folder_nodes.start(job, "a")
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start", "a"), what="a's run")
    first, began = a.live(), time.monotonic()
    status, body = a.start_job()
    assert status == 200 and body["waits_for"] == first and time.monotonic() - began < 3


def test_scheduled_launches_replace_over_nodes(folder_nodes: Nodes) -> None:
    """A scheduled launch asks the holder, too, and no pass of the schedule waits for it."""
    job = folder_nodes.job("Replace")
    a, b = folder_nodes.node("a"), folder_nodes.node("b")
    a.start_on(job)
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start", "a"), what="a's run")
    at = int(time.strftime("%S", time.gmtime(time.time() + 6)))
    b.start_on({**job, "schedule": {"second": str(at)}})
    until(lambda: folder_nodes.marked("start", "b"), 12, "b's run")
    assert a.runs()[0]["outcome"] == "replaced"

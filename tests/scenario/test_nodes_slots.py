"""`concurrencyScope: cluster` with real daemons: who has the slot, for how long, and who is let in."""

from __future__ import annotations

import signal
import time
from typing import Any

from nodes_kit import TTL, Nodes, start_until
from rig import always, until

FORBIDDEN = "skipped: its cluster concurrency slot is held by {} (concurrencyPolicy: Forbid, concurrencyScope: cluster)"


def test_forbid_names_the_holder(nodes: Nodes) -> None:
    """A live instance on another node holds the slot: the launch is skipped, with a warning that names the holder, and
    nothing further happens. The starter by hand is told 409, and the job's page who has it."""
    a, b = nodes.start(nodes.job())
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    status, body = b.start_job()
    assert status == 409 and "held by a" in str(body)
    line = b.logged("Job j " + FORBIDDEN.format("a"))
    assert "WARNING" in line
    assert a.slot()["held"] and a.slot()["refs"] == 1 and b.slot()["holder"] == "a" and not b.slot()["held"]
    assert b.runs() == [] and b.job()["running"] is False and len(b.http("GET", "/runs")[1]["runs"]) == 1


def test_the_slot_is_free_when_the_run_has_ended(nodes: Nodes) -> None:
    """The slot is released when the job's last local instance finishes: the other node may start at once, long before
    the time to live has passed."""
    a, b = nodes.start(nodes.job(seconds=0.5), slotTtlSeconds=60)
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start", "a"), what="a's run")
    start_until(b, 200, 10)
    ended, begun = (until(lambda key=key: nodes.marked(*key), what=str(key))[0][2]
                    for key in (("end", "a"), ("start", "b")))
    assert 0 <= begun - ended < 3
    second = b.recorded(b.live()[0])
    assert {run["node"]: run["outcome"] for run in a.runs()} == {"a": "success", "b": "success"}
    assert second["node"] == "b"


def test_every_scheduled_launch_claims(folder_nodes: Nodes) -> None:
    """A scheduled launch goes through the gate: of three nodes that fire each second one has the run, and each of the
    others names it."""
    job = folder_nodes.job(schedule={"second": "*"}, seconds=30)
    found = folder_nodes.start(job, "abc")
    until(lambda: folder_nodes.marked("start"), 10, "a run")
    holder = folder_nodes.marked("start")[0][0]
    others = [one for one in found if one.name != holder]
    for one in others:
        one.logged("Job j " + FORBIDDEN.format(holder))
    assert len(folder_nodes.marked("start")) == 1


def test_a_retry_claims(folder_nodes: Nodes) -> None:
    """A retry goes through the gate like any launch: it is lost where another node has the slot meanwhile."""
    retry = {"retry": {"maximumRetries": 1, "initialDelay": 2, "maximumDelay": 2, "backoffMultiplier": 1}}
    job = folder_nodes.job(schedule={"second": "*/30"}, seconds=30, onFailure=retry)
    job["command"] = f'if [ "$NODE" = a ]; then exit 3; fi\n{job["command"]}'
    manual = {**job, "schedule": "0 0 1 1 *"}
    a, b = folder_nodes.node("a"), folder_nodes.node("b")
    b.start_on(manual)
    a.start_on({**job, "schedule": "@reboot"})
    a.logged("retry #1 of 1 in 2 seconds")
    assert b.start_job()[0] == 200
    a.logged("retry #1 is lost", "held by b", seconds=8)
    assert folder_nodes.marked("start", "a") == []


def test_a_boot_job_claims(folder_nodes: Nodes) -> None:
    """A deferred `@reboot` launch goes through the gate."""
    job = folder_nodes.job(seconds=30)
    a = folder_nodes.node("a").start_on(job)
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start"), what="a's run")
    b = folder_nodes.node("b").start_on({**job, "schedule": "@reboot"})
    b.logged("Job j " + FORBIDDEN.format("a"))
    assert len(folder_nodes.marked("start")) == 1


def test_renewed_for_as_long_as_it_runs(nodes: Nodes) -> None:
    """The holder renews every third of the time to live: a run longer than two of them keeps the other node out to its
    end. (Without renewal, b gets in after five seconds.)"""
    a, b = nodes.start(nodes.job(seconds=2 * TTL + 1))
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    start_until(b, 200, 3 * TTL)
    until(lambda: nodes.marked("start", "b"), what="b's run")
    assert nodes.marked("start", "b")[0][2] >= nodes.marked("end", "a")[0][2]
    fence = b.slot()["fence"]
    assert fence is not None and fence >= 2


def test_a_killed_holder_frees_the_slot_by_ttl(nodes: Nodes) -> None:
    """SIGKILL of the holder: its slot is free when the time to live has passed, not before and soon after. The run is
    recorded once, as unknown, by the other node."""
    a, b = nodes.start(nodes.job())
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    run = a.live()[0]
    a.kill9()
    killed = time.time()
    start_until(b, 200, 2 * TTL + 4)
    begun = until(lambda: nodes.marked("start", "b"), what="b's run")[0][2]
    assert TTL * 2 / 3 - 0.5 <= begun - killed <= TTL + 2.5
    record = b.recorded(run)
    assert record["outcome"] == "unknown" and record["node"] == "a" and "fell silent" in record["fail_reason"]
    until(lambda: not [one for one in b.http("GET", "/nodes")[1]["nodes"] if one["name"] == "a"], 2 * TTL, "a is gone")
    assert [one["id"] for one in b.runs()] == [run]
    assert len(b.lines(f"run {run}: interrupted")) == 1


def test_a_restarted_daemon_does_not_adopt(nodes: Nodes) -> None:
    """The lease is held under an identity that no other process has: a daemon that was killed and started again waits
    for its predecessor's slot to lapse like everybody else."""
    ttl = 12
    (a,) = nodes.start(nodes.job(seconds=30), "a", slotTtlSeconds=ttl)
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    a.kill9()
    killed = time.time()
    a.start()
    start_until(a, 200, 3 * ttl)
    a.logged(FORBIDDEN.format("a"))
    begun = until(lambda: len(nodes.marked("start")) == 2 and nodes.marked("start"), what="the second run")[1][2]
    assert begun - killed >= ttl * 2 / 3 - 0.5
    (old,) = [run for run in a.runs() if run["outcome"] == "unknown"]
    assert old["outcome"] == "unknown" and len(a.runs()) == 1


def test_a_frozen_holder_loses_its_slot(nodes: Nodes) -> None:
    """SIGSTOP of the holder for longer than the time to live: the other node takes over and records the run as unknown.
    On SIGCONT the holder does not believe in its lease, logs the takeover, its run goes on, and its true record takes
    the place of the unknown one."""
    a, b = nodes.start(nodes.job(seconds=2 * TTL + 3))
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start"), what="a's run")
    run = a.live()[0]
    a.signal(signal.SIGSTOP)
    try:
        start_until(b, 200, 2 * TTL + 2)
        assert b.recorded(run)["outcome"] == "unknown"
    finally:
        a.signal(signal.SIGCONT)
    line = a.logged("Job j: its cluster concurrency slot was taken over by b while it is still running here (a store "
                    "outage outlasted the slot TTL?)")
    assert "WARNING" in line
    status, body = a.start_job()
    assert status == 409, body
    assert a.run(run)["phase"] == "running" and not a.slot()["held"]
    until(lambda: nodes.marked("end", "a"), 2 * TTL + 3, "the end of a's run")
    assert a.recorded(run)["outcome"] == "success"
    assert b.run(run)["outcome"] == "success"
    assert [one["outcome"] for one in b.runs() if one["id"] == run] == ["success"]
    assert b.slot()["held"], "a's end must not give b's slot away"


def test_overlapping_instances_share_one_lease(folder_nodes: Nodes) -> None:
    """Claims are counted: a local Replace hands the slot to the new instance, so that no peer, however often it asks,
    gets in between; the lease stays the same one."""
    job = folder_nodes.job("Replace", 30)
    job["command"] = f"trap 'sleep 1; {folder_nodes.mark('end')}; exit 0' TERM\n{job['command']}"
    a, b = folder_nodes.node("a"), folder_nodes.node("b")
    a.start_on(job)
    b.start_on({**job, "concurrencyPolicy": "Forbid"})
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start"), what="the first run")
    fence = a.slot()["fence"]
    first = a.live()[0]
    assert a.start_job()[0] == 200
    assert a.slot()["refs"] == 2
    while not folder_nodes.marked("end", "a"):
        assert b.start_job()[0] == 409
    until(lambda: len(folder_nodes.marked("start", "a")) == 2, what="the second run")
    assert a.slot()["fence"] == fence and a.slot()["refs"] == 1 and a.recorded(first)["outcome"] == "replaced"
    assert b.start_job()[0] == 409 and folder_nodes.marked("start", "b") == []


def test_the_ttl_may_change_by_reload(folder_nodes: Nodes) -> None:
    """A reload that names the same store, however its path is spelled, keeps the lease; a changed `slotTtlSeconds`
    applies from the next renewal: a holder that dies then is outwaited by the new time."""
    job = folder_nodes.job(seconds=60)
    a, b = folder_nodes.start(job, slotTtlSeconds=9)
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start"), what="a's run")
    fence = a.slot()["fence"]
    a.write_jobs(job, slotTtlSeconds=TTL, path=f"{folder_nodes.folder}/./store", deploymentId="default")
    assert a.http("POST", "/reload")[0] == 200
    assert not a.lines("section state has changed") and a.slot()["fence"] == fence
    time.sleep(3.2)  # a third of the old time: the renewal that is under way
    a.kill9()
    killed = time.time()
    start_until(b, 200, 12)
    begun = until(lambda: folder_nodes.marked("start", "b"), what="b's run")[0][2]
    assert begun - killed <= TTL + 1.5


def test_scope_needs_a_store_and_a_policy(folder_nodes: Nodes) -> None:
    """Two combinations are refused at load: the cluster scope without a `state` section, naming every such job, and
    with `concurrencyPolicy: Allow`."""
    one = folder_nodes.node("a")
    job = folder_nodes.job()
    one.write([job, {**job, "name": "k"}])
    assert one.spawn().wait(20) != 0
    assert ("concurrencyScope: cluster requires a `state` section (the shared store is what coordinates the nodes), "
            "but none is configured; offending job(s): j, k") in one.log()
    one.write_jobs({**job, "concurrencyPolicy": "Allow"})
    assert one.spawn().wait(20) != 0
    assert "Job j: concurrencyScope: cluster has no effect with concurrencyPolicy: Allow" in one.log()
    assert "set Forbid or Replace, or drop concurrencyScope" in one.log()


def test_without_the_scope_nodes_do_not_mind_each_other(folder_nodes: Nodes) -> None:
    """`concurrencyScope: node`, the default, looks at this process's runs only, whatever store is shared."""
    job: dict[str, Any] = {**folder_nodes.job(seconds=30), "concurrencyScope": "node"}
    for one in folder_nodes.start(job):
        assert one.start_job()[0] == 200
    until(lambda: len(folder_nodes.marked("start")) == 2, what="two runs")


def test_61_a_fresh_process_asks_the_slot(folder_nodes: Nodes) -> None:
    """61: A node that is killed and started again knows nothing, and asks: while the other one runs the job it is
    refused each time, and told by whom. A holder that is frozen for less than its time to live keeps the slot."""
    a, b = folder_nodes.start(folder_nodes.job(seconds=200), slotTtlSeconds=10)
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start"), what="a's run")
    for times in range(1, 3):
        assert b.start_job()[0] == 409
        until(lambda times=times: len(b.lines(FORBIDDEN.format("a"))) == times, what="the line in the log")
        b.kill9()
        b.start()
    a.signal(signal.SIGSTOP)
    try:
        always(lambda: b.start_job()[0] == 409, 4, "a has the slot")
    finally:
        a.signal(signal.SIGCONT)
    always(lambda: b.start_job()[0] == 409, 3, "a has the slot")
    assert len(folder_nodes.marked("start")) == 1 and not a.lines("taken over")


def test_a_missed_run_claims(folder_nodes: Nodes) -> None:
    """A catch-up goes through the gate: while another node has the slot it is not started, and as the reason passes by
    itself it is made up for when the slot is free."""
    job = folder_nodes.job(schedule={"second": "*/2"}, seconds=0.1, onMissed="run-once")
    a, b = folder_nodes.node("a"), folder_nodes.node("b")
    b.start_on(job)
    until(b.runs, 10, "a run of b")
    b.stop()
    missed = time.time()
    a.start_on({**folder_nodes.job(seconds=60)})
    time.sleep(2.1)
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start", "a"), what="a's run")
    b.start_on(job)
    b.logged("missed occurrence(s) are made up for")
    b.logged("Job j " + FORBIDDEN.format("a"))
    assert not [when for _, _, when in folder_nodes.marked("start", "b") if when > missed]
    assert a.http("POST", f"/runs/{a.live()[0]}/cancel?wait=10")[0] == 200
    until(lambda: [run for run in b.runs() if run["trigger"] == "catchup"], 15, "the missed run")

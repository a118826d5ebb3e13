"""Queues of pools that outlive the daemon: nothing is lost, nothing starts twice."""

from __future__ import annotations

import time
from typing import Any

import pytest
from page_kit import at
from pool_kit import ask, begun, marks, member, most_at_once, open_gate, pool, starts, waiting
from rig import Rig, alive, until

TOP: dict[str, Any] = {"pools": {"p": {"slots": 1}}, "state": {"path": "state"}}


def test_a_killed_daemon_leaves_the_queue_to_the_next(rig: Rig) -> None:
    """kill -9: the run that had its slot is unknown and is not started again; those that waited run once each, under
    their ids, in their order, with the time they have waited counted from the beginning."""
    jobs = [member("hold", rig.folder), *(member(name, rig.folder, gate=False) for name in "abc")]
    rig.start(jobs, **TOP)
    first = ask(rig, "hold")
    runs = [ask(rig, name) for name in "abc"]
    begun(rig, "hold")
    asked_at = rig.run(runs[0])["created_at"]
    rig.kill9()
    rig.start()
    records = [rig.recorded(run) for run in runs]
    assert starts(rig.folder) == ["hold", "a", "b", "c"] and [one["outcome"] for one in records] == ["success"] * 3
    assert rig.run(first)["outcome"] == "unknown"
    assert records[0]["created_at"] == asked_at and records[0]["pool"]["waitedSeconds"] > 0.05
    assert most_at_once(rig.folder) <= 2, "hold was killed with its daemon and could not say so"
    assert pool(rig)["queued"] == 0
    rig.kill9()
    rig.start()
    time.sleep(0.5)
    assert starts(rig.folder) == ["hold", "a", "b", "c"], "what has run is not started again"


@pytest.mark.parametrize("change", ["changed", "disabled", "removed", "pool"])
def test_a_job_that_was_changed_meanwhile(rig: Rig, change: str) -> None:
    """Its waiting run is not started by the next daemon: cancelled, with the reason, in the record and in the log."""
    jobs = {name: member(name, rig.folder) for name in ("hold", "j")}
    rig.start(list(jobs.values()), **TOP)
    ask(rig, "hold")
    run = ask(rig, "j")
    begun(rig, "hold")
    rig.kill9()
    match change:
        case "changed":
            jobs["j"]["command"] = "true"
        case "disabled":
            jobs["j"]["enabled"] = False
        case "removed":
            del jobs["j"]
        case _:
            del jobs["j"]["pool"]
    rig.write(list(jobs.values()), **TOP)
    rig.start()
    record = rig.recorded(run)
    assert record["outcome"] == "cancelled" and record["gone"]["state"] == "proven" and record["fail_reason"]
    assert f"run {run}, which waited for a pool before the restart, is not started" in rig.log()
    assert starts(rig.folder) == ["hold"]


def test_its_time_goes_on_while_no_daemon_is_there(rig: Rig) -> None:
    """A run whose queueTimeout was over before the daemon was back is skipped, and counted."""
    rig.start([member("hold", rig.folder), member("j", rig.folder, queueTimeout=0.6)], **TOP)
    ask(rig, "hold")
    run = ask(rig, "j")
    rig.kill9()
    time.sleep(0.7)
    rig.start()
    record = rig.recorded(run)
    assert record["outcome"] == "skipped" and "before the daemon was back" in record["fail_reason"]
    assert rig.job("j")["skipped"] == 1 and rig.job("j")["last_run"]["id"] == run


def test_a_cancel_is_not_forgotten(rig: Rig) -> None:
    """A waiting run that was cancelled, with the daemon killed at once, does not come back."""
    rig.start([member("hold", rig.folder), member("j", rig.folder, gate=False)], **TOP)
    ask(rig, "hold")
    run = ask(rig, "j")
    begun(rig, "hold")
    assert rig.http("POST", f"/pools/p/queue/{run}/cancel")[0] == 200
    rig.recorded(run)
    rig.kill9()
    rig.start()
    time.sleep(0.3)
    assert starts(rig.folder) == ["hold"] and rig.run(run)["outcome"] == "cancelled"


def test_a_run_that_outlives_the_daemon_keeps_its_slot(rig: Rig, no_keepers_left: None) -> None:
    """onDaemonLoss: keep. The next daemon counts its slot before it gives any to those that wait."""
    kept = member("kept", rig.folder, onDaemonLoss="keep")
    rig.start([kept, member("b", rig.folder, gate=False)], **TOP)
    first = ask(rig, "kept")
    second = ask(rig, "b")
    pid = rig.running(first)
    rig.kill9()
    rig.start()
    assert alive(pid) and waiting(rig) == [second]
    assert [one["id"] for one in pool(rig)["holders"]] == [first] and pool(rig)["inUse"] == 1
    open_gate(rig.folder, "kept")
    assert rig.recorded(second)["outcome"] == "success"
    assert marks(rig.folder) == ["+kept", "-kept", "+b", "-b"]
    assert at(rig.run(second)["started_at"]) >= at(rig.run(first)["finished_at"])
    assert rig.run(first)["pool"]["waitedSeconds"] is not None


def test_the_order_survives(rig: Rig) -> None:
    """Priorities hold across a restart: the queue is not taken up in the order of arrival."""
    jobs = [member("hold", rig.folder), member("low", rig.folder, gate=False),
            member("high", rig.folder, gate=False, queuePriority=9)]
    rig.start(jobs, **TOP)
    ask(rig, "hold")
    low, high = ask(rig, "low"), ask(rig, "high")
    begun(rig, "hold")
    rig.kill9()
    rig.start()
    rig.recorded(low)
    assert starts(rig.folder) == ["hold", "high", "low"] and rig.run(high)["outcome"] == "success"


def test_killed_again_and_again(rig: Rig) -> None:
    """Twenty runs through one slot, and the daemon killed six times in between: each starts at most once, and each has
    a record in the end."""
    names = [f"j{number}" for number in range(20)]
    rig.start([member(name, rig.folder, gate=False, seconds=0.05) for name in names], **TOP)
    runs = [ask(rig, name) for name in names]
    for kill in range(6):
        until(lambda kill=kill: len(starts(rig.folder)) > kill * 2, 15, "some of them")
        rig.kill9()
        rig.start()
    records = [rig.recorded(run, 30) for run in runs]
    assert len(starts(rig.folder)) == len(set(starts(rig.folder))), "none twice"
    for record in records:
        assert record["outcome"] in ("success", "unknown")
        if record["outcome"] == "success":
            assert record["job"] in starts(rig.folder)


def test_what_waits_is_not_made_up_for_as_well(rig: Rig) -> None:
    """onMissed: the occurrence of a run that waits on was fired, so it is not owed; each occurrence has one run."""
    rig.start([member("hold", rig.folder),
               member("s", rig.folder, gate=False, schedule="* * * * * * *", onMissed="run-all")],
              **{**TOP, "pools": {"p": {"slots": 1, "maxQueued": 50}}})
    until(lambda: "-s" in marks(rig.folder), 5, "a run of it")
    ask(rig, "hold")
    until(lambda: len(rig.job("s")["queued"]) >= 2, 10, "two that wait")
    rig.kill9()
    time.sleep(1.1)
    open_gate(rig.folder, "hold")
    rig.start()
    until(lambda: [run for run in rig.runs("s") if run["trigger"] == "catchup"], 15, "what was missed")
    until(lambda: not rig.job("s")["queued"] or pool(rig)["queued"] <= 1, 10, "the end of the congestion")
    due = [run["scheduled_for"] for run in rig.runs("s")]
    assert len(due) == len(set(due)), "no occurrence twice"

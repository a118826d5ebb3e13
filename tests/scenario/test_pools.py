"""Pools in a real daemon: who waits, who is next, what is seen of it and what ends it."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from page_kit import at
from pool_kit import ask, begun, marks, member, most_at_once, open_gate, pool, starts, waiting
from rig import NEVER, Rig, always, new_tag, until

ONE = {"p": {"slots": 1}}


def test_a_run_waits_for_its_slot_and_is_seen(rig: Rig) -> None:
    """The second run exists at once, in phase `queued`: in GET /runs, /jobs and /pools; it starts when the first is
    gone. Both records say how long they have waited."""
    rig.start([member("a", rig.folder), member("b", rig.folder)], pools=ONE)
    first, second = ask(rig, "a"), ask(rig, "b")
    begun(rig, "a")
    assert rig.run(second)["phase"] == "queued" and rig.run(second)["pid"] is None
    assert second in [run["id"] for run in rig.http("GET", "/runs")[1]["runs"]]
    job = rig.job("b")
    assert job["queued"] == [second] and not job["running"] and job["runs"] == [] and job["pool"]["name"] == "p"
    found = pool(rig)
    assert (found["slots"], found["inUse"], found["free"], found["queued"]) == (1, 1, 0, 1)
    assert [one["id"] for one in found["holders"]] == [first]
    assert "1 slot(s)" in found["entries"][0]["reason"]
    assert rig.http("GET", "/health")[1]["queued"] == 1
    always(lambda: marks(rig.folder) == ["+a"], 0.3, "it waits")
    open_gate(rig.folder, "a", "b")
    record = rig.recorded(second)
    assert marks(rig.folder) == ["+a", "-a", "+b", "-b"] and record["outcome"] == "success"
    assert record["pool"]["waitedSeconds"] >= 0.3 and rig.run(first)["pool"]["waitedSeconds"] < 0.3
    assert at(record["started_at"]) >= at(rig.run(first)["finished_at"])
    text = rig.http("GET", "/metrics")[1]
    assert 'sexton_pool_slots{pool_name="p"} 1.0' in text and 'sexton_pool_admitted_total{pool_name="p"} 2.0' in text
    assert 'sexton_pool_queued{pool_name="p"} 0.0' in text


def test_never_more_than_there_are_slots(rig: Rig) -> None:
    """Sixty jobs due at one second, which are made ready ahead elsewhere, and starts by hand: three at a time."""
    jobs = [member(f"j{number}", rig.folder, gate=False, seconds=0.05, schedule="*/2 * * * * * *")
            for number in range(60)]
    rig.start(jobs, pools={"p": {"slots": 3}})
    until(lambda: len(starts(rig.folder)) >= 60, 20, "a round of all of them")
    assert most_at_once(rig.folder) == 3
    assert rig.http("GET", "/pools")[1][0]["inUse"] <= 3


def test_priority_then_age(rig: Rig) -> None:
    """The highest priority goes first, among equals the oldest."""
    rig.start([member(name, rig.folder, queuePriority=priority)
               for name, priority in (("hold", 0), ("low", -1), ("old", 0), ("new", 0), ("high", 5))], pools=ONE)
    for name in ("hold", "low", "old", "new", "high"):
        ask(rig, name)
    open_gate(rig.folder, "hold", "low", "old", "new", "high")
    until(lambda: len(marks(rig.folder)) == 10, 10, "all of them")
    assert starts(rig.folder) == ["hold", "high", "old", "new", "low"]


def test_a_large_request_is_passed_but_not_for_ever(rig: Rig) -> None:
    """One that needs both slots lets two small ones pass, which would else idle beside it, and no third."""
    rig.start([member("hold", rig.folder), member("large", rig.folder, poolSlots=2),
               *(member(f"s{number}", rig.folder, gate=False) for number in range(5))], pools={"p": {"slots": 2}})
    ask(rig, "hold")
    begun(rig, "hold")
    large = ask(rig, "large")
    for number in range(5):
        ask(rig, f"s{number}")
    until(lambda: marks(rig.folder).count("-s1"), 10, "two have passed")
    always(lambda: starts(rig.folder) == ["hold", "s0", "s1"], 0.4, "the free slot is kept for the large one")
    entries = pool(rig)["entries"]
    assert entries[0]["id"] == large and entries[0]["overtakenSlots"] == 2 and "overtaken" in entries[1]["reason"]
    open_gate(rig.folder, "hold", "large")
    until(lambda: len(starts(rig.folder)) == 7, 10, "all of them")
    assert starts(rig.folder)[3] == "large"


def test_forbid_waits_instead_of_being_dropped(rig: Rig) -> None:
    """While an instance runs the next one keeps its place in the queue; others pass it, though it came first."""
    rig.start([member("f", rig.folder, concurrencyPolicy="Forbid"), member("other", rig.folder, gate=False)],
              pools={"p": {"slots": 2}})
    ask(rig, "f")
    begun(rig, "f")
    second = ask(rig, "f")
    ask(rig, "other")
    begun(rig, "f", "other")
    assert waiting(rig) == [second]
    assert "Forbid" in pool(rig)["entries"][0]["reason"] and pool(rig)["entries"][0]["overtakenSlots"] == 0
    open_gate(rig.folder, "f")
    rig.recorded(second)
    assert starts(rig.folder) == ["f", "other", "f"] and rig.job("f")["skipped"] == 0


def test_replace_takes_over_the_slot_of_its_victim(rig: Rig) -> None:
    """In a full pool a Replace job still replaces: the successor has the slot when the victim is gone, though others
    wait for it."""
    replacing = member("r", rig.folder, concurrencyPolicy="Replace", killTimeout=5)
    rig.start([replacing, member("other", rig.folder)], pools=ONE)
    victim = ask(rig, "r")
    begun(rig, "r")
    other = ask(rig, "other")
    successor = ask(rig, "r")
    assert rig.recorded(victim)["outcome"] == "replaced"
    rig.running(successor)
    assert waiting(rig) == [other] and pool(rig)["inUse"] == 1
    assert at(rig.run(successor)["started_at"]) >= at(rig.run(victim)["finished_at"])


def test_of_a_replace_job_only_the_newest_waits(rig: Rig) -> None:
    """In the turn of the one before it, which is recorded as replaced and never started."""
    rig.start([member("hold", rig.folder), member("r", rig.folder, gate=False, concurrencyPolicy="Replace"),
               member("later", rig.folder, gate=False)], pools=ONE)
    ask(rig, "hold")
    old = ask(rig, "r")
    later = ask(rig, "later")
    new = ask(rig, "r")
    record = rig.recorded(old)
    assert record["outcome"] == "replaced" and record["gone"]["witnesses"] == ["never-started"]
    assert waiting(rig) == [new, later]


def test_who_waits_too_long_is_skipped(rig: Rig) -> None:
    """Recorded with the reason, counted, and never started. With a timeout of 0 a run starts at once or not at all."""
    rig.start([member("hold", rig.folder), member("late", rig.folder, queueTimeout=0.3),
               member("now", rig.folder, queueTimeout=0)], pools=ONE)
    ask(rig, "hold")
    late, now = ask(rig, "late"), ask(rig, "now")
    record = rig.recorded(late)
    assert record["outcome"] == "skipped" and "queueTimeout" in record["fail_reason"]
    assert record["started_at"] is None and record["exit_code"] is None
    assert rig.recorded(now)["outcome"] == "skipped"
    job = rig.job("late")
    assert job["skipped"] == 1 and "queueTimeout" in job["last_skip"]["reason"]
    assert pool(rig)["expired"] == 2 and waiting(rig) == []
    assert 'sexton_pool_expired_total{pool_name="p"} 2.0' in rig.http("GET", "/metrics")[1]
    assert "queueTimeout" in rig.log()
    open_gate(rig.folder, "hold")
    until(lambda: pool(rig)["inUse"] == 0, 5, "a free slot")
    open_gate(rig.folder, "now")
    assert rig.recorded(ask(rig, "now"))["outcome"] == "success"


def test_a_full_queue_refuses(rig: Rig) -> None:
    """503 with the reason; counted, and a scheduled launch is told as skipped."""
    rig.start([member("a", rig.folder), member("s", rig.folder, schedule="* * * * * * *")],
              pools={"p": {"slots": 1, "maxQueued": 1}})
    until(lambda: pool(rig)["queued"] == 1, 10, "a run that waits")
    status, body = rig.http("POST", "/jobs/a/start")
    assert status == 503 and "maxQueued 1" in body["error"]
    until(lambda: rig.job("s")["skipped"] >= 1, 5, "a scheduled one that was refused")
    assert "maxQueued 1" in rig.job("s")["last_skip"]["reason"]
    assert pool(rig)["refused"] >= 2 and rig.http("GET", "/health")[1]["launches_refused"] >= 2
    assert "maxQueued 1" in rig.log()


def test_a_waiting_run_can_be_cancelled(rig: Rig) -> None:
    """By its id, and by its place in the queue; it never starts and who waits behind it moves up."""
    rig.start([member(name, rig.folder) for name in "abcd"], pools=ONE)
    first, second, third, fourth = (ask(rig, name) for name in "abcd")
    begun(rig, "a")
    status, body = rig.http("POST", f"/runs/{second}/cancel?wait=5", {"reason": "not today", "requested_by": "me"})
    assert status == 200 and body["outcome"] in (None, "cancelled")
    record = rig.recorded(second)
    assert record["outcome"] == "cancelled" and record["gone"] == {
        "state": "proven", "witnesses": ["never-started"], "survivors": []}
    assert record["stop"]["reason"] == "not today" and record["stop"]["requested_by"] == "me"
    status, body = rig.http("POST", f"/pools/p/queue/{third}/cancel")
    assert (status, body) == (200, {"id": third, "state": "cancelled"})
    assert rig.http("POST", f"/pools/p/queue/{third}/cancel")[0] == 409
    assert rig.http("POST", f"/pools/p/queue/{first}/cancel")[0] == 409
    assert rig.http("POST", "/pools/p/queue/nobody/cancel")[0] == 404
    assert rig.http("POST", f"/pools/q/queue/{fourth}/cancel")[0] == 404
    open_gate(rig.folder, *"abcd")
    rig.recorded(fourth)
    assert starts(rig.folder) == ["a", "d"]


def test_cancelling_a_job_leaves_who_waits_unless_asked(rig: Rig) -> None:
    """POST /jobs/{name}/cancel stops what runs; with `queued` also what waits."""
    rig.start([member("a", rig.folder), member("hold", rig.folder)], pools=ONE)
    ask(rig, "hold")
    waits = ask(rig, "a")
    status, body = rig.http("POST", "/jobs/a/cancel")
    assert status == 409 and "1 run(s) of it wait" in body["error"]
    assert rig.run(waits)["phase"] == "queued"
    assert rig.http("POST", "/jobs/a/cancel", {"queued": True}) == (200, {"cancelled": "a", "instances": 1})
    assert rig.recorded(waits)["outcome"] == "cancelled"


def test_slots_are_free_when_the_run_is_gone(rig: Rig) -> None:
    """Not when it was asked to stop: a run that ignores SIGTERM keeps its slot for its whole grace period."""
    tag = new_tag()
    stubborn = {"name": "s", "command": f"trap '' TERM; while :; do sleep {tag}; done", "schedule": NEVER, "pool": "p",
                "killTimeout": 1}
    rig.start([stubborn, member("b", rig.folder, gate=False)], pools=ONE)
    first = ask(rig, "s")
    rig.running(first)
    second = ask(rig, "b")
    rig.http("POST", f"/runs/{first}/cancel")
    always(lambda: pool(rig)["inUse"] == 1 and starts(rig.folder) == [], 0.7, "the slot is held")
    record = rig.recorded(second)
    assert at(record["started_at"]) >= at(rig.run(first)["stop"]["confirmed_at"])


def test_a_reload_takes_along_who_waits_for_a_changed_job(rig: Rig) -> None:
    """Changed, disabled, removed: cancelled with that reason. An unchanged job's run waits on, in its place."""
    jobs = {name: member(name, rig.folder) for name in ("hold", "changed", "disabled", "removed", "same")}
    rig.start(list(jobs.values()), pools=ONE)
    runs = {name: ask(rig, name) for name in jobs}
    jobs["changed"]["killTimeout"] = 7
    jobs["disabled"]["enabled"] = False
    del jobs["removed"]
    rig.write(list(jobs.values()), pools=ONE)
    assert rig.http("POST", "/reload")[0] == 200
    for name, reason in (("changed", "changed"), ("disabled", "disabled"), ("removed", "removed")):
        record = rig.recorded(runs[name])
        assert record["outcome"] == "cancelled" and reason in record["fail_reason"]
    assert waiting(rig) == [runs["same"]]
    open_gate(rig.folder, "hold", "same")
    rig.recorded(runs["same"])
    assert starts(rig.folder) == ["hold", "same"]


def test_a_reload_may_change_a_pool(rig: Rig) -> None:
    """More slots are given out at once; fewer than are held take nothing away, and the pool drains first; a removed
    pool is shown until it is empty."""
    jobs = [member(name, rig.folder) for name in "abc"]
    rig.start(jobs, pools=ONE)
    _, b, c = (ask(rig, name) for name in "abc")
    rig.write(jobs, pools={"p": {"slots": 2}})
    rig.http("POST", "/reload")
    begun(rig, "a", "b")
    rig.write(jobs, pools=ONE)
    rig.http("POST", "/reload")
    assert pool(rig)["draining"] and pool(rig)["inUse"] == 2 and rig.run(b)["phase"] == "running"
    open_gate(rig.folder, "a")
    until(lambda: pool(rig)["inUse"] == 1, 5, "a's end")
    always(lambda: waiting(rig) == [c], 0.3, "it waits for the drain")
    rig.write([], pools={})
    rig.http("POST", "/reload")
    assert rig.recorded(c)["outcome"] == "cancelled" and pool(rig)["removed"]
    open_gate(rig.folder, "b")
    until(lambda: rig.http("GET", "/pools/p")[0] == 404, 5, "the end of the pool")


def test_a_retry_waits_too_and_its_ladder_goes_on(rig: Rig) -> None:
    """The attempt takes its turn like any launch, and is the second attempt of the same ladder."""
    retry = {"onFailure": {"retry": {"maximumRetries": 1, "initialDelay": 0.1, "manual": True}}}
    fails = {"name": "f", "command": f"echo +f >> {rig.folder}/marks; exit 3", "schedule": NEVER, "pool": "p", **retry}
    rig.start([member("hold", rig.folder), fails], pools=ONE)
    first = ask(rig, "f")
    rig.recorded(first)
    ask(rig, "hold")
    until(lambda: pool(rig)["queued"] == 1 or len(starts(rig.folder)) == 3, 5, "the retry")
    open_gate(rig.folder, "hold")
    until(lambda: len(rig.runs("f")) == 2, 10, "two attempts")
    assert [run["attempt"] for run in sorted(rig.runs("f"), key=lambda run: run["id"])] == [1, 2]
    time.sleep(0.3)
    assert len(rig.runs("f")) == 2


def test_a_newer_occurrence_ends_a_retry_that_waits(rig: Rig) -> None:
    """When a scheduled run gets its slot, an attempt for an older occurrence that still waits is not made any more: it
    is recorded as replaced, and never started."""
    retry = {"onFailure": {"retry": {"maximumRetries": 3, "initialDelay": 1.2}}}
    fails = {"name": "f", "command": "exit 3", "schedule": "* * * * * * *", "pool": "p", **retry}
    rig.start([member("hold", rig.folder), fails], pools=ONE)
    until(lambda: rig.runs("f"), 5, "a failure")
    ask(rig, "hold")
    until(lambda: "retry" in [one["trigger"] for one in pool(rig)["entries"]], 10, "a retry behind a newer occurrence")
    open_gate(rig.folder, "hold")
    replaced = until(lambda: [run for run in rig.runs("f") if run["outcome"] == "replaced"], 10, "its end")
    assert all(run["trigger"] == "retry" and "later occurrence" in run["stop"]["reason"] for run in replaced)
    assert all(run["started_at"] is None for run in replaced)


@pytest.mark.parametrize("durable", [True, False])
def test_what_waits_at_a_shutdown(rig: Rig, durable: bool) -> None:
    """With `state` it is left to the next daemon; without, it is cancelled, and both are said."""
    top = {"state": {"path": "state"}} if durable else {}
    rig.start([member("a", rig.folder), member("b", rig.folder)], pools=ONE, **top)
    ask(rig, "a")
    waits = ask(rig, "b")
    begun(rig, "a")
    assert rig.stop() == 0
    assert "wait on for the next daemon" in rig.log() if durable else "without `state` the queue ends" in rig.log()
    assert starts(rig.folder) == ["a"]
    if durable:
        open_gate(rig.folder, "b")
        rig.start()
        assert rig.recorded(waits)["outcome"] == "success"


def test_max_instances(rig: Rig) -> None:
    """An Allow job with two instances refuses the third with the reason, and counts it; a stop makes room."""
    job = {"name": "j", "command": "sleep 60", "schedule": NEVER, "maxInstances": 2, "killTimeout": 1}
    rig.start([job])
    first = rig.fire()
    rig.fire()
    status, body = rig.http("POST", "/jobs/j/start")
    assert status == 409 and "maxInstances 2" in body["error"]
    assert rig.job()["skipped"] == 1 and rig.job()["maxInstances"] == 2
    assert "still running and concurrencyPolicy is Allow" in rig.log()
    rig.http("POST", f"/runs/{first}/cancel?wait=10")
    rig.fire()


def test_max_instances_with_a_pool_waits(rig: Rig) -> None:
    """As for Forbid: the pool has room, the job has not, so the run waits."""
    rig.start([member("a", rig.folder, maxInstances=1)], pools={"p": {"slots": 4}})
    ask(rig, "a")
    second = ask(rig, "a")
    begun(rig, "a")
    assert waiting(rig) == [second] and "maxInstances 1" in pool(rig)["entries"][0]["reason"]
    open_gate(rig.folder, "a")
    assert rig.recorded(second)["outcome"] == "success"


def test_the_command_line_shows_who_waits(rig: Rig) -> None:
    """`sexton pools`, `sexton pools POOL`, `sexton show`, `sexton cancel --queued`."""
    def sexton(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "sexton", "--url", f"http://127.0.0.1:{rig.port}", *words], capture_output=True,
            text=True, timeout=30, check=False)

    rig.start([member("a", rig.folder), member("b", rig.folder)], pools=ONE)
    begun_by = sexton("start", "a")
    assert begun_by.returncode == 0
    begun(rig, "a")
    second = sexton("start", "b").stdout.strip()
    table = sexton("pools").stdout.splitlines()
    assert table[0].split()[:2] == ["NAME", "SLOTS"] and table[1].split()[:4] == ["p", "1", "1", "1"]
    told = sexton("pools", "p").stdout
    assert "1 of 1 slots in use, 1 run(s) wait" in told and second in told and "it needs 1 slot(s)" in told
    assert json.loads(sexton("pools", "p", "--json").stdout)["entries"][0]["id"] == second
    assert "queued" in sexton("jobs").stdout and "1 slot(s) of p" in sexton("show", second).stdout
    assert sexton("pools", "nobody").returncode == 4
    refused = sexton("cancel", "b")
    assert refused.returncode == 1 and "--queued" in refused.stderr
    ended = sexton("cancel", "b", "--queued")
    assert ended.returncode == 0 and "no process was ever made" in ended.stdout


def test_a_paused_job_waits_unless_started_by_hand(rig: Rig) -> None:
    """A scheduled run that waits keeps waiting while its job is paused, others pass it, and a start by hand does not
    wait for the pause. It goes on when the pause is ended, or has ended."""
    rig.start([member("hold", rig.folder), member("s", rig.folder, gate=False, schedule="* * * * * * *"),
               member("other", rig.folder, gate=False)], pools=ONE)
    ask(rig, "hold")
    until(lambda: rig.job("s")["queued"], 5, "a scheduled run that waits")
    assert rig.http("POST", "/jobs/s/pause", {"durationSeconds": 3000})[0] == 200
    scheduled = rig.job("s")["queued"]
    by_hand = ask(rig, "s")
    open_gate(rig.folder, "hold")
    assert rig.recorded(by_hand)["outcome"] == "success"
    rig.recorded(ask(rig, "other"))
    assert rig.job("s")["queued"] == scheduled and "paused" in pool(rig)["entries"][0]["reason"]
    assert rig.http("POST", "/jobs/s/pause", {"durationSeconds": 1})[0] == 200
    assert rig.http("POST", "/jobs/other/pause", {"durationSeconds": 3000})[0] == 200
    until(lambda: not set(rig.job("s")["queued"]) & set(scheduled), 10, "the end of the pause")
    assert rig.recorded(scheduled[0])["outcome"] == "success"


def test_a_pause_that_is_ended_lets_runs_go_on(rig: Rig) -> None:
    """At once: nobody waits for a timer."""
    rig.start([member("hold", rig.folder), member("s", rig.folder, gate=False, schedule="* * * * * * *")], pools=ONE)
    ask(rig, "hold")
    until(lambda: rig.job("s")["queued"], 5, "a scheduled run that waits")
    rig.http("POST", "/jobs/s/pause", {"durationSeconds": 3000})
    run = rig.job("s")["queued"][0]
    open_gate(rig.folder, "hold")
    until(lambda: pool(rig)["inUse"] == 0, 5, "a free slot")
    always(lambda: rig.run(run)["phase"] == "queued", 0.3, "it is held")
    rig.http("POST", "/jobs/s/resume")
    assert rig.recorded(run)["outcome"] == "success"


def test_a_wait_that_was_too_long_is_no_failure(rig: Rig) -> None:
    """onlyIfLastSucceeded looks at runs that were launched: a skipped one does not stop the job for good."""
    rig.start([member("hold", rig.folder), member("s", rig.folder, gate=False, schedule="* * * * * * *",
                                                  queueTimeout=0.2, onlyIfLastSucceeded=True)], pools=ONE)
    ask(rig, "hold")
    until(lambda: rig.job("s")["last_run"] and rig.job("s")["last_run"]["outcome"] == "skipped", 5, "a skipped run")
    open_gate(rig.folder, "hold")
    until(lambda: "success" in [run["outcome"] for run in rig.runs("s")[-1:]], 5, "a run of it")

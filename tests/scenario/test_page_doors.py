"""The page's doors: manual starts, the schedule and Replace share one; what a cluster-scoped job is told."""

from __future__ import annotations

from pathlib import Path

from page_kit import Marks, cancel, job
from rig import Rig, living, new_tag, until


def test_a_manual_start_goes_through_the_policy_of_a_scheduled_run(rig: Rig, tmp_path: Path) -> None:
    """A scheduled run is in the way of a manual start under Forbid, and is replaced by one under Replace."""
    marks, tag = Marks(tmp_path), new_tag()
    year = "* * * * * * *"
    rig.start([job("f", f"{marks.say('f')}; exec sleep {tag}", schedule=year, concurrencyPolicy="Forbid")])
    marks.wait("f")
    assert rig.http("POST", "/jobs/f/start")[0] == 409 and marks.words() == ["f"]
    scheduled = rig.job("f")["runs"]
    rig.write([job("f", f"{marks.say('f')}; exec sleep {tag}", concurrencyPolicy="Replace")])
    assert rig.http("POST", "/reload")[0] == 200
    run = rig.fire("f")
    rig.running(run)
    record = rig.recorded(scheduled[0])
    assert record["trigger"] == "schedule" and record["outcome"] == "replaced"
    assert rig.run(run)["trigger"] == "manual" and len(living(tag)) == 1
    cancel(rig, run)


def test_a_scheduled_run_meets_a_manual_one(rig: Rig) -> None:
    """The other way round: fires of the schedule are dropped while a manual run is there."""
    rig.start([job("j", "sleep 2.5", concurrencyPolicy="Forbid")])
    run = rig.fire()
    rig.running(run)
    rig.write([job("j", "sleep 2.5", concurrencyPolicy="Forbid", schedule="* * * * * * *")])
    assert rig.http("POST", "/reload")[0] == 200
    until(lambda: rig.job()["skipped"] >= 1, 5, "a dropped fire")
    assert rig.job()["runs"] == [run] and rig.recorded(run)["outcome"] == "success"


def test_a_disabled_job_is_not_started(rig: Rig) -> None:
    """By nobody: 409, and no fire."""
    second = {"schedule": "* * * * * * *"}
    rig.start([job("j", "true", enabled=False, **second), job("other", "true", **second)])
    assert rig.http("POST", "/jobs/j/start") == (409, {"error": "job 'j' is disabled"})
    until(lambda: rig.runs("other"), 5, "a fire of another job")
    assert rig.runs() == [] and rig.http("POST", "/jobs/none/start")[0] == 404


def test_a_cluster_scoped_job_on_a_store_of_its_own_says_so(rig: Rig, tmp_path: Path) -> None:
    """The local rule holds, the slot is taken and given back, and it is said loudly that no other node can share it."""
    state = {"path": str(tmp_path / "state"), "topology": "single-node"}
    rig.start([job("j", "sleep 60", concurrencyPolicy="Forbid", concurrencyScope="cluster")], state=state)
    assert "warning" in rig.logged("concurrencyScope cluster", "no other node can share it").lower()
    warnings = rig.http("GET", "/health")[1]["configuration_warnings"]
    assert any("no other node can share it" in warning for warning in warnings)
    run = rig.fire()
    rig.running(run)
    assert rig.job()["concurrencyScope"] == "cluster" and rig.http("POST", "/jobs/j/start")[0] == 409
    assert rig.job()["slot"]["held"] and rig.job()["slot"]["refs"] == 1
    cancel(rig, run)
    until(lambda: not rig.job()["slot"]["held"], 5, "the slot given back")


def test_a_start_that_fails_gives_its_slot_back(rig: Rig, tmp_path: Path) -> None:
    """There is no such program: the run has failed, and nothing holds the job's slot."""
    options = {"concurrencyPolicy": "Forbid", "concurrencyScope": "cluster"}
    rig.start([job("j", ["/no/such/program"], **options)], state={"path": str(tmp_path / "state")})
    for _ in range(2):
        run = rig.fire()
        assert rig.recorded(run)["exit_code"] == 127
        until(lambda: not rig.job()["slot"]["held"], 5, "the slot given back")


def test_a_run_that_is_started_and_cancelled_is_told_in_the_log(rig: Rig) -> None:
    """Start, request, end: each with the run's id, in this order."""
    rig.start([job("j", "sleep 60")])
    run = rig.fire()
    rig.running(run)
    rig.http("POST", f"/runs/{run}/cancel?wait=20", {"reason": "enough", "requested_by": "ops"})
    rig.logged("Job j exit code -15", "outcome: cancelled", run)
    events = ("Starting job j", "cancel of run", "exit code -15")
    lines = [line for line in rig.log().splitlines() if run in line and any(event in line for event in events)]
    assert [next(event for event in events if event in line) for line in lines] == list(events)
    assert "by ops: enough" in lines[1]

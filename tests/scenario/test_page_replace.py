"""Replace with real runs: marks first, starts after the end, whatever the victims do; which cause of a stop wins."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from page_kit import PATIENT, Marks, at, cancel, job, line_count, phase, span
from rig import Rig, always, living, new_tag, until


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path)


def start(rig: Rig, name: str = "j") -> tuple[str, list[str]]:
    """The new run and those it waits for."""
    status, body = rig.http("POST", f"/jobs/{name}/start")
    assert status == 200, body
    return body["run"], body["waits_for"]


def test_the_new_one_starts_after_the_old_one_ended(rig: Rig, marks: Marks) -> None:
    """Marked at once, brought down by the ladder, then replaced: no overlap, even while the old one takes its time."""
    rig.start([job("j", f"trap 'sleep 0.5; {marks.say('end')}; exit 0' TERM; {marks.say('start')}; {PATIENT}",
                   concurrencyPolicy="Replace")])
    old = rig.fire()
    marks.wait("start")
    new, waits = start(rig)
    view = rig.run(old)
    assert waits == [old] and view["stop"]["cause"] == "replaced" and new in view["stop"]["reason"]
    assert rig.run(new)["phase"] == "claimed" and rig.run(new)["pid"] is None, "it waits"
    marks.wait("start", 2)
    assert marks.words() == ["start", "end", "start"]
    a, b = rig.recorded(old), phase(rig, new, "running")
    assert a["outcome"] == "replaced" and a["exit_code"] == 0 and a["fail_reason"].startswith("replaced by a newer")
    assert a["finished_at"] <= b["started_at"] and a["gone"]["state"] == "proven"
    assert "WARNING" in rig.logged("Job j: still running and concurrencyPolicy is Replace")
    rig.logged(f"Job j was replaced by a newer instance (run {old})")
    cancel(rig, new)


def test_a_replaced_run_is_no_failure(rig: Rig) -> None:
    """It is recorded as replaced and counts neither as success nor as failure."""
    rig.start([job("j", "sleep 60", concurrencyPolicy="Replace")])
    runs = [rig.fire() for _ in range(4)]
    rig.running(runs[-1])
    assert all(rig.recorded(run)["outcome"] == "replaced" for run in runs[:-1])
    stats = rig.http("GET", "/jobs/j/runs")[1]["stats"]
    assert (stats["failure"], stats["success"], stats["replaced"]) == (0, 0, 3)
    cancel(rig, runs[-1])


def test_an_unwilling_victim_is_killed_after_kill_timeout(rig: Rig, marks: Marks) -> None:
    """killTimeout governs the victim's end; meanwhile the replacement waits and other jobs start as ever."""
    tag = new_tag()
    rig.start([
        job("j", f"trap '' TERM; {marks.say('start')}; sleep {tag}", concurrencyPolicy="Replace", killTimeout=1.2),
        job("other", "true"),
    ])
    old = rig.fire()
    rig.running(old)
    marks.wait("start")
    asked = time.monotonic()
    new, _ = start(rig)
    assert time.monotonic() - asked < 1.0, "the answer does not wait"
    other = rig.recorded(rig.fire("other"), 1.0)
    assert other["outcome"] == "success" and rig.run(old)["phase"] == "stopping"
    rig.running(new)
    record = rig.recorded(old)
    assert record["exit_code"] == -9 and span(record, "signalled_at", "forced_at") >= 1.15
    assert at(record["finished_at"]) <= at(rig.run(new)["started_at"]) and len(living(tag)) <= 2
    rig.logged("Job j did not gracefully terminate after 1.2 seconds, killing it...")
    cancel(rig, new, force=True)
    assert living(tag) == []


def test_every_running_instance_is_replaced(rig: Rig) -> None:
    """Several at once (they began under Allow): all are marked at once and all end before the new one starts."""
    tag = new_tag()
    rig.start([job("j", f"exec sleep {tag}")])
    old = [rig.fire() for _ in range(3)]
    for run in old:
        rig.running(run)
    rig.write([job("j", f"exec sleep {tag}", concurrencyPolicy="Replace")])
    assert rig.http("POST", "/reload")[0] == 200
    new, waits = start(rig)
    assert sorted(waits) == sorted(old)
    pid = rig.running(new)
    records = [rig.recorded(run) for run in old]
    assert all(r["outcome"] == "replaced" and r["finished_at"] <= rig.run(new)["started_at"] for r in records)
    assert living(tag) == [pid] and len({r["stop"]["requested_at"][:19] for r in records}) <= 2
    cancel(rig, new)


def test_a_replacement_that_is_replaced_while_it_waits(rig: Rig, marks: Marks) -> None:
    """A chain: the middle ones never start, the last one starts when the first has ended, nobody overlaps."""
    rig.start([job("j", f"trap 'sleep 0.6; {marks.say('end')}; exit 0' TERM; {marks.say('start')}; {PATIENT}",
                   concurrencyPolicy="Replace")])
    first = rig.fire()
    marks.wait("start")
    middle = [rig.fire() for _ in range(3)]
    last, waits = start(rig)
    assert first in waits
    marks.wait("start", 2)
    assert marks.words() == ["start", "end", "start"]
    for run in middle:
        record = rig.recorded(run)
        assert record["outcome"] == "replaced" and record["started_at"] is None and record["pid"] is None
        assert record["gone"] == {"state": "proven", "witnesses": ["never-started"], "survivors": []}
    assert rig.recorded(first)["outcome"] == "replaced" and phase(rig, last, "running")
    cancel(rig, last)


def test_a_cancel_while_it_waits_never_starts_it(rig: Rig, marks: Marks) -> None:
    """No process exists yet: cancelled, never started; the victim's end is not disturbed."""
    rig.start([job("j", f"trap 'sleep 0.6; {marks.say('end')}; exit 0' TERM; {marks.say('start')}; {PATIENT}",
                   concurrencyPolicy="Replace")])
    first = rig.fire()
    marks.wait("start")
    second, _ = start(rig)
    view = cancel(rig, second)
    assert view["stop"]["cause"] == "cancel" and view["started_at"] is None
    assert rig.recorded(second)["outcome"] == "cancelled" and rig.recorded(first)["outcome"] == "replaced"
    assert marks.words() == ["start", "end"] and line_count(rig, first, "Starting job j") == 1


def test_a_victim_beyond_its_own_deadline(rig: Rig) -> None:
    """Its deadline passes while it is being replaced: -100, and still replaced, not failed."""
    rig.start([job("j", "trap '' TERM; sleep 60", concurrencyPolicy="Replace", executionTimeout=1.0, killTimeout=1.5)])
    old = rig.fire()
    rig.running(old)
    new, _ = start(rig)
    record = rig.recorded(old)
    assert record["exit_code"] == -100 and record["outcome"] == "replaced" and record["stop"]["cause"] == "replaced"
    rig.logged("Job j exceeded its executionTimeout of 1 seconds, cancelling it...")
    cancel(rig, new, force=True)


CAUSES: list[tuple[str, dict[str, Any], str, str, int]] = [
    ("cancelled", {}, "cancel", "cancelled", -9),
    ("timed out", {"executionTimeout": 0.3}, "timeout", "failure", -100),
]


@pytest.mark.parametrize(("what", "options", "cause", "outcome", "code"), CAUSES, ids=[c[0] for c in CAUSES])
def test_the_first_cause_stays(rig: Rig, what: str, options: dict[str, Any], cause: str, outcome: str,
                               code: int) -> None:
    """A run that is being stopped already is waited for, not marked anew; a cancel on top changes nothing either."""
    tag = new_tag()
    rig.start([job("j", f"trap '' TERM; sleep {tag}", concurrencyPolicy="Replace", killTimeout=1.5, **options)])
    old = rig.fire()
    until(lambda: len(living(tag)) == 2, 10, "shell and sleep")
    if not options:
        assert rig.http("POST", f"/runs/{old}/cancel", {"reason": "first"})[0] == 202
    phase(rig, old, "stopping")
    new, waits = start(rig)
    assert waits == [old]
    assert rig.http("POST", f"/runs/{old}/cancel", {"reason": "too late"})[0] == 202
    record = rig.recorded(old)
    assert record["stop"]["cause"] == cause and record["outcome"] == outcome and record["exit_code"] == code
    assert record["stop"]["reason"] != "too late" and span(record, "signalled_at", "forced_at") >= 1.4
    rig.running(new)
    cancel(rig, new, force=True)


def test_the_deadline_of_a_replacement_counts_from_its_start(rig: Rig, marks: Marks) -> None:
    """Waiting for the victim takes nothing off the replacement's time."""
    rig.start([job("j", f"trap 'sleep 0.8; exit 0' TERM; {marks.say('start')}; {PATIENT}",
                   concurrencyPolicy="Replace", executionTimeout=1.2)])
    rig.fire()
    marks.wait("start")
    new, _ = start(rig)
    assert rig.run(new)["deadline_at"] is None
    marks.wait("start", 2)
    view = phase(rig, new, "running")
    assert at(view["deadline_at"]) - at(view["started_at"]) == pytest.approx(1.2, abs=1e-3)
    assert at(view["started_at"]) - at(view["created_at"]) >= 0.7
    always(lambda: rig.run(new)["phase"] == "running", 0.5, "the replacement runs")
    assert rig.recorded(new)["exit_code"] == -100

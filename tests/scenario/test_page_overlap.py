"""The page's rules on overlap, with real runs: what counts as running, Allow, Forbid, Replace."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from page_kit import PATIENT, Marks, Outside, at, cancel, job, line_count, phase
from rig import Rig, alive, always, living, new_tag, until


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path)


@pytest.fixture
def outside() -> Iterator[Outside]:
    holder = Outside()
    yield holder
    holder.close()


def test_allow_starts_beside_without_bound(rig: Rig) -> None:
    """Each new instance starts at once beside the others, and each ends and is recorded by itself."""
    tag = new_tag()
    rig.start([job("j", f"exec sleep {tag}")])
    runs = [rig.fire() for _ in range(5)]
    pids = {rig.running(run) for run in runs}
    assert len(pids) == 5 and set(rig.job()["pids"]) == pids and set(living(tag)) == pids
    cancel(rig, runs[2])
    assert rig.recorded(runs[2])["outcome"] == "cancelled"
    assert len(living(tag)) == 4 and all(rig.run(run)["stop"] is None for run in runs if run != runs[2])
    line = rig.logged("Job j: still running and concurrencyPolicy is Allow")
    assert "INFO" in line and "WARNING" not in line, "an overlap that is wanted is no warning"
    rig.http("POST", "/jobs/j/cancel")
    assert living(tag) == []


def test_allow_gives_each_instance_its_own_deadline(rig: Rig) -> None:
    """Deadlines count from each start, so instances time out one after the other."""
    rig.start([job("j", "sleep 60", executionTimeout=1.0)])
    first = rig.fire()
    rig.running(first)
    always(lambda: rig.run(first)["phase"] == "running", 0.5, "the first run is alone")
    second = rig.fire()
    a, b = rig.recorded(first), rig.recorded(second)
    assert (a["exit_code"], b["exit_code"]) == (-100, -100)
    assert at(b["deadline_at"]) - at(a["deadline_at"]) >= 0.45
    for record in (a, b):
        assert at(record["deadline_at"]) - at(record["started_at"]) == pytest.approx(1.0, abs=1e-3)
        assert 1.0 <= record["duration"] < 3.0


def test_forbid_starts_nothing_and_disturbs_nothing(rig: Rig, marks: Marks) -> None:
    """The launch is dropped, the caller and the log are told, the running instance goes on untouched."""
    rig.start([job("j", f"{marks.say('start')}; {PATIENT}", concurrencyPolicy="Forbid")])
    run = rig.fire()
    pid = rig.running(run)
    marks.wait("start")
    status, body = rig.http("POST", "/jobs/j/start")
    assert status == 409 and body == {"error": "job 'j' is still running and concurrencyPolicy is Forbid"}
    assert "WARNING" in rig.logged("Job j: still running and concurrencyPolicy is Forbid")
    view = rig.job()
    assert view["runs"] == [run] and view["pids"] == [pid] and alive(pid) and view["skipped"] == 1
    assert rig.run(run)["stop"] is None and marks.words() == ["start"] and rig.runs() == []


def test_forbid_drops_scheduled_fires(rig: Rig, marks: Marks) -> None:
    """A run that outlasts its schedule: every fire meanwhile is dropped and counted, the next one after it starts."""
    rig.start([job("j", f"{marks.say('start')}; sleep 2.3; {marks.say('end')}", schedule="* * * * * * *",
                   concurrencyPolicy="Forbid")])
    marks.wait("start", 2)
    assert marks.words()[:3] == ["start", "end", "start"], "never two at once"
    view = rig.job()
    assert view["skipped"] >= 2 and view["last_skip"]["scheduled_for"] is not None
    assert view["last_run"]["outcome"] == "success" and view["last_run"]["stop"] is None


def test_starts_that_race_under_forbid(rig: Rig, marks: Marks) -> None:
    """Eight at the same moment, again and again: exactly one starts, and no two ever overlap."""
    rig.start([job("j", f"{marks.say('in')}; sleep 0.05; {marks.say('out')}", concurrencyPolicy="Forbid")])
    with ThreadPoolExecutor(8) as threads:
        for _ in range(6):
            answers = list(threads.map(lambda _: rig.http("POST", "/jobs/j/start"), range(8)))
            started = [body["run"] for status, body in answers if status == 200]
            assert started and all(status in (200, 409) for status, _ in answers)
            for run in started:
                rig.recorded(run)
    words = marks.words()
    assert words == ["in", "out"] * (len(words) // 2) and len(rig.runs()) == len(words) // 2


def test_held_output_keeps_an_instance_running(rig: Rig) -> None:
    """The command has exited, a process that it started holds the captured stream: still running for Forbid, until a
    cancel ends it."""
    tag = new_tag()
    rig.start([job("j", f"sleep {tag} & exit 0", concurrencyPolicy="Forbid", captureStdout=True)])
    run = rig.fire()
    view = phase(rig, run, "draining")
    assert view["exit"]["code"] == 0
    assert rig.http("POST", "/jobs/j/start")[0] == 409 and view["finished_at"] is None
    assert living(tag)
    view = cancel(rig, run)
    assert living(tag) == [] and rig.recorded(run)["exit_code"] == 0
    again = rig.fire()
    phase(rig, again, "draining")
    cancel(rig, again)


def test_an_instance_runs_until_its_output_closes(rig: Rig) -> None:
    """A holder that closes the stream by itself ends the run then, with the command's own code and no stop."""
    rig.start([job("j", "sleep 0.6 & exit 3", captureStdout=True)])
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == 3 and record["stop"] is None and record["duration"] >= 0.55


def test_ended_and_not_recorded(rig: Rig, outside: Outside) -> None:
    """Cancelled, its output held from outside: shown as running with its pid, counts for nothing: there is
    nothing to cancel, and Forbid starts the next one, which stays the last run."""
    rig.start([
        job("j", outside.giving(1), concurrencyPolicy="Forbid", captureStdout=True, killTimeout=1),
        job("k", "true"),
    ])
    old = rig.fire()
    pid = rig.running(old)
    outside.take()
    ended = cancel(rig, old)
    assert ended["phase"] == "ended" and ended["finished_at"] is not None and ended["outcome"] is None
    view = rig.job()
    assert view["running"] is True and view["pids"] == [pid] and not alive(pid)
    listed = next(row for row in rig.http("GET", "/jobs")[1] if row["name"] == "j")
    assert listed["running"] is True and listed["pids"] == [pid]
    assert rig.http("POST", "/jobs/j/cancel")[0] == 409 and rig.http("POST", f"/runs/{old}/cancel")[0] == 409
    new = rig.fire()
    rig.running(new)
    outside.take()
    cancel(rig, new)
    assert rig.run(old)["phase"] == "ended" and set(rig.job()["runs"]) == {old, new}
    outside.let_go()
    first, second = rig.recorded(old), rig.recorded(new)
    assert first["outcome"] == second["outcome"] == "cancelled" and first["finished_at"] < second["started_at"]
    assert first["finished_at"] == ended["finished_at"], "the instant of the end, not of the record"
    assert rig.job()["last_run"]["id"] == new and rig.job()["running"] is False


def test_replace_passes_over_what_has_ended(rig: Rig, outside: Outside) -> None:
    """An ended instance is no victim: the new one waits for nobody, and the old one keeps the outcome it ended with.
    It may be recorded after the new one, which stays the last run."""
    rig.start([job("j", outside.giving(1, then="time.sleep(0.2)"), concurrencyPolicy="Replace", captureStdout=True)])
    old = rig.fire()
    outside.take()
    phase(rig, old, "draining")
    ended = cancel(rig, old)
    assert ended["phase"] == "ended"
    status, body = rig.http("POST", "/jobs/j/start")
    assert status == 200 and body["waits_for"] == []
    held, outside._fds = outside._fds, []
    outside.take()
    outside.let_go()
    new = rig.recorded(body["run"])
    assert new["outcome"] == "success" and rig.run(old)["phase"] == "ended"
    outside._fds = held
    outside.let_go()
    record = rig.recorded(old)
    assert record["outcome"] == "cancelled" and record["stop"]["cause"] == "cancel"
    assert record["exit_code"] == ended["exit_code"] and rig.job()["last_run"]["id"] == body["run"]
    assert [r["id"] for r in rig.runs()][-1] in (old, body["run"])


def test_a_failed_start_has_ended(rig: Rig) -> None:
    """A command that cannot start: 127, a failure, nothing in its way afterwards under Forbid."""
    rig.start([job("j", ["/no/such/program"], concurrencyPolicy="Forbid")])
    for _ in range(3):
        record = rig.recorded(rig.fire())
        assert record["exit_code"] == 127 and record["outcome"] == "failure" and record["pid"] is None
        assert record["gone"]["state"] == "proven" and rig.job()["pids"] == []


def test_jobs_do_not_coordinate(rig: Rig) -> None:
    """Forbid and Replace look at runs of the same name only."""
    tag = new_tag()
    rig.start([job("a", f"exec sleep {tag}", concurrencyPolicy="Forbid"),
               job("b", f"exec sleep {tag}", concurrencyPolicy="Replace")])
    runs = [rig.fire("a"), rig.fire("b")]
    assert len({rig.running(run) for run in runs}) == 2 and all(rig.run(run)["stop"] is None for run in runs)


def test_forbid_starts_when_the_last_one_has_ended(rig: Rig) -> None:
    """A start right after the answer of a cancel is never refused: ended is ended, recorded or not."""
    tag = new_tag()
    rig.start([job("j", f"exec sleep {tag}", concurrencyPolicy="Forbid")])
    for _ in range(10):
        run = rig.fire()
        rig.running(run)
        assert rig.http("POST", "/jobs/j/cancel") == (200, {"cancelled": "j", "instances": 1})
    until(lambda: len(rig.runs()) == 10, 10, "ten records")
    assert line_count(rig, run, "still running") == 0 and living(tag) == []

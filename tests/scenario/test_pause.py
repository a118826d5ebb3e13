"""Pause, onlyIfLastSucceeded and jitter: what holds up scheduled launches, and nothing else."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from page_kit import at
from rig import Rig, until

EVERY_SECOND = "* * * * * * *"


def ticking(rig: Rig, **options: Any) -> dict[str, Any]:
    return {"name": "j", "command": f"echo x >> {rig.folder}/ticks", "schedule": EVERY_SECOND, **options}


def ticks(rig: Rig) -> int:
    path = rig.folder / "ticks"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_paused_job_does_not_fire_and_says_why(rig: Rig) -> None:
    """Occurrences are skipped and counted; a start by hand works; resume lets it fire again."""
    rig.start([ticking(rig)])
    until(lambda: ticks(rig) >= 1, 5, "the first tick")
    status, answer = rig.http("POST", "/jobs/j/pause", {"durationSeconds": 600, "note": "disk swap", "by": "ada"})
    assert status == 200 and (answer["paused"]["note"], answer["paused"]["by"]) == ("disk swap", "ada")
    until(lambda: not rig.job()["running"], 5, "the end of what ran")
    before, skipped = ticks(rig), rig.job()["skipped"]
    until(lambda: rig.job()["skipped"] >= skipped + 2, 5, "two skipped occurrences")
    assert ticks(rig) == before and "paused until" in rig.job()["last_skip"]["reason"]
    assert rig.job()["paused"]["by"] == "ada"
    rig.recorded(rig.fire())
    assert ticks(rig) == before + 1
    assert rig.http("POST", "/jobs/j/resume", {"by": "ada"}) == (200, {"paused": None})
    until(lambda: ticks(rig) > before + 1, 5, "the next tick")
    assert rig.job()["paused"] is None


def test_a_pause_ends_by_itself_and_survives_the_daemon(rig: Rig) -> None:
    """It is in the store, with its end."""
    rig.start([ticking(rig)], state={"path": str(rig.folder / "state")})
    end = datetime.now(UTC) + timedelta(seconds=4)
    assert rig.http("POST", "/jobs/j/pause", {"until": end.isoformat()})[0] == 200
    until(lambda: not rig.job()["running"], 5, "the end of what ran")
    before = ticks(rig)
    rig.kill9()
    rig.start()
    assert rig.job()["paused"] is not None
    until(lambda: ticks(rig) > before, 10, "the next tick")
    assert time.time() >= end.timestamp() - 0.01 and rig.job()["paused"] is None


@pytest.mark.parametrize("body", [
    {"durationSeconds": 0}, {"durationSeconds": 2592001}, {"until": "2020-01-01T00:00:00Z"},
    {"until": "2030-01-01T00:00:00"}, {"durationSeconds": 5, "until": "2099-01-01T00:00:00Z"}, {"note": "x" * 501},
    {"for": 5},
])
def test_what_is_no_pause_is_refused(rig: Rig, body: dict[str, Any]) -> None:
    """Bounded, ahead, and in one way only."""
    rig.start([ticking(rig, schedule="0 0 1 1 *")])
    status, answer = rig.http("POST", "/jobs/j/pause", body)
    assert status == 400 and answer["error"] and rig.job()["paused"] is None


def test_a_retry_waits_for_the_end_of_a_pause(rig: Rig) -> None:
    """It is put off, not lost."""
    retry = {"maximumRetries": 1, "initialDelay": 0.2, "maximumDelay": 1, "manual": True}
    rig.start([ticking(rig, schedule="0 0 1 1 *", command=f"echo x >> {rig.folder}/ticks; sleep 0.5; exit 3",
                       onFailure={"retry": retry})])
    rig.fire()
    assert rig.http("POST", "/jobs/j/pause", {"durationSeconds": 3})[0] == 200
    end = at(rig.job()["paused"]["until"])
    until(lambda: len(rig.runs()) == 2, 15, "the retry")
    assert at(sorted(rig.runs(), key=lambda run: run["id"])[-1]["started_at"]) >= end


@pytest.mark.parametrize("change", ["resume", "pause"])
def test_a_retry_follows_a_pause_that_ends_earlier(rig: Rig, change: str) -> None:
    """A retry whose time came in a pause is launched when the pause is ended by hand or made shorter, and not when it
    would have ended."""
    retry = {"maximumRetries": 1, "initialDelay": 0.5, "maximumDelay": 1, "manual": True}
    rig.start([ticking(rig, schedule="0 0 1 1 *", command="exit 3", onFailure={"retry": retry})])
    assert rig.http("POST", "/jobs/j/pause", {"durationSeconds": 600})[0] == 200
    rig.recorded(rig.fire())
    due = at(rig.job()["retry"]["nextRetryAt"])
    until(lambda: time.time() > due + 0.1, 3, "the time of the retry")
    assert rig.http("POST", f"/jobs/j/{change}", {"durationSeconds": 1} if change == "pause" else {})[0] == 200
    until(lambda: len(rig.runs()) == 2, 5, "the retry")


def test_only_if_the_last_run_succeeded(rig: Rig) -> None:
    """After a failure scheduled launches are skipped until a run by hand succeeds."""
    rig.start([ticking(rig, command=f"echo x >> {rig.folder}/ticks; test -e {rig.folder}/mended",
                       onlyIfLastSucceeded=True)])
    until(lambda: rig.job()["skipped"] >= 2, 8, "skipped occurrences")
    assert ticks(rig) == 1 and "onlyIfLastSucceeded" in rig.job()["last_skip"]["reason"]
    (rig.folder / "mended").touch()
    rig.recorded(rig.fire())
    until(lambda: ticks(rig) >= 4, 8, "ticks after the success")


def test_jitter_only_delays(rig: Rig) -> None:
    """A launch comes up to so much later; the occurrence stays the same."""
    rig.start([ticking(rig, jitter=0.8)])
    until(lambda: len(rig.runs()) >= 4, 10, "four runs")
    late = [at(run["started_at"]) - at(run["scheduled_for"]) for run in rig.runs()]
    assert all(0 <= seconds < 2.5 for seconds in late) and max(late) - min(late) > 0.02

"""onMissed in a real daemon: what was missed while none was there."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from page_kit import at
from rig import Rig, until

EVERY_SECOND = "* * * * * * *"


def start(rig: Rig, policy: str, **options: Any) -> None:
    job = {"name": "j", "command": f"echo x >> {rig.folder}/marks", "schedule": EVERY_SECOND, "onMissed": policy,
           "concurrencyPolicy": "Forbid", **options}
    rig.start([job], state={"path": str(rig.folder / "state")})


def away(rig: Rig, seconds: float) -> tuple[float, float]:
    """Stop the daemon for a while; the first and the last second of that."""
    until(lambda: len(rig.runs()) >= 2, 10, "two runs")
    rig.stop()
    gone = datetime.now(UTC)
    until(lambda: datetime.now(UTC) > gone + timedelta(seconds=seconds), seconds + 2, "time passes")
    rig.start()
    return gone.timestamp(), datetime.now(UTC).timestamp()


def made_up(rig: Rig) -> list[float]:
    return sorted(at(run["scheduled_for"]) for run in rig.runs() if run["trigger"] == "catchup")


def test_run_all_makes_up_for_each(rig: Rig) -> None:
    """Every second without a daemon gets its run, once, one after the other, with its own instant."""
    start(rig, "run-all")
    gone, back = away(rig, 4)
    until(lambda: len(made_up(rig)) >= 3, 10, "catching up")
    until(lambda: rig.http("GET", "/health")[1]["missed_made_up"] == len(made_up(rig)) and not rig.job()["running"], 10)
    seconds = made_up(rig)
    assert seconds == [float(second) for second in range(int(seconds[0]), int(seconds[-1]) + 1)]
    assert gone - 1 <= seconds[0] <= gone + 2 and seconds[-1] <= back
    every = [run["scheduled_for"] for run in rig.runs() if run["scheduled_for"]]
    assert len(every) == len(set(every)), "no occurrence twice"


def test_run_once_makes_up_for_the_newest(rig: Rig) -> None:
    """However many were missed."""
    start(rig, "run-once")
    away(rig, 4)
    until(lambda: made_up(rig), 10, "catching up")
    until(lambda: sum(run["trigger"] == "schedule" for run in rig.runs()) >= 4, 10, "the schedule goes on")
    assert len(made_up(rig)) == 1


def test_skip_is_the_default_and_makes_up_for_nothing(rig: Rig) -> None:
    """As cron does."""
    start(rig, "skip")
    before = len(rig.runs())
    away(rig, 3)
    until(lambda: len(rig.runs()) > before + 2, 10, "the schedule goes on")
    assert made_up(rig) == []


def test_what_is_too_old_is_given_up_visibly(rig: Rig) -> None:
    """startingDeadlineSeconds: counted in health and with the job, and logged."""
    start(rig, "run-all", startingDeadlineSeconds=1)
    away(rig, 5)
    assert rig.logged("given up", "too old or too many")
    health = rig.http("GET", "/health")[1]
    assert health["missed_given_up"] >= 2 and rig.job()["skipped"] >= 2


def test_a_crash_in_the_middle_goes_on_where_it_was(rig: Rig) -> None:
    """kill -9 while it catches up: the rest is made up for, the interrupted one again, the finished ones not."""
    start(rig, "run-all")
    until(lambda: len(rig.runs()) >= 2, 10, "two runs")
    rig.stop()
    gone = datetime.now(UTC)
    until(lambda: datetime.now(UTC) > gone + timedelta(seconds=5), 7, "time passes")
    start(rig, "run-all", command=f"echo x >> {rig.folder}/marks; sleep 0.7")
    until(lambda: len(made_up(rig)) >= 1, 10, "the first of them")
    until(lambda: 0.3 < time.time() % 1 < 0.6, 5, "no occurrence is being decided")
    rig.kill9()
    start(rig, "run-all", command=f"echo x >> {rig.folder}/marks")
    until(lambda: rig.state_of("j", "catchup") == "[]", 15, "the end of catching up")
    until(lambda: not rig.job()["running"], 5)
    good = [run["scheduled_for"] for run in rig.runs() if run["outcome"] == "success"]
    assert len(good) == len(set(good)), "no occurrence succeeded twice"
    seconds = sorted(int(at(text)) for text in good if text)
    missing = set(range(seconds[0], seconds[-1])) - set(seconds)
    assert missing <= refused_by_forbid(rig) | stopped(rig), "all others were made up for"


def refused_by_forbid(rig: Rig) -> set[int]:
    """Seconds that met a run that made up for another one, in whichever daemon."""
    return {int(at(text)) for text in re.findall(r"the run due at (\S+) is skipped", rig.log())}


def stopped(rig: Rig) -> set[int]:
    """Seconds whose run the daemon's orderly end has cancelled."""
    return {int(at(run["scheduled_for"])) for run in rig.runs() if run["outcome"] == "cancelled"}


def test_a_job_that_never_ran_owes_nothing(rig: Rig) -> None:
    """A new job does not begin with the past."""
    start(rig, "run-all", schedule="0 0 1 1 *")
    rig.stop()
    rig.start()
    assert made_up(rig) == []


@pytest.mark.parametrize("policy", ["run-once", "run-all"])
def test_it_needs_a_store(rig: Rig, policy: str) -> None:
    """Without one nobody knows what was missed: an error, with a place."""
    rig.write([{"name": "j", "command": "true", "schedule": "@daily", "onMissed": policy}])
    process = rig.spawn()
    assert process.wait(20) == 1 and f"onMissed {policy} requires a `state` section" in rig.log()

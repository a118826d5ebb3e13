"""Public reports 45 and 47: a month away, and a job set that changes."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from page_kit import at
from rig import Rig, until

EVERY_SECOND = "* * * * * * *"
MONTH = timedelta(days=30)
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)")


def job(rig: Rig, policy: str, **options: Any) -> dict[str, Any]:
    return {"name": "min", "command": f"echo x >> {rig.folder}/marks", "schedule": EVERY_SECOND, "onMissed": policy,
            "concurrencyPolicy": "Allow", "captureStderr": False, **options}


def earlier(text: str) -> str:
    """The same text with every instant in it a month before."""
    return INSTANT.sub(lambda found: (datetime.fromisoformat(found[0]) - MONTH).isoformat(), text)


def make_old(rig: Rig, *, also_decided: bool) -> None:
    """As if the last run had been a month ago; `also_decided`: and no daemon had lived since."""
    ledger = rig.folder / "state" / "default" / "ledger.sqlite3"
    with closing(sqlite3.connect(ledger)) as connection, connection:
        connection.create_function("earlier", 1, earlier)
        micros = int(MONTH.total_seconds() * 1_000_000)
        connection.execute("UPDATE run SET body = earlier(body), ended_at = ended_at - ?", (micros,))
        if also_decided:
            changed = connection.execute("UPDATE job_state SET value = earlier(value) WHERE key = 'decided-until'")
            assert changed.rowcount == 1


def two_fires(rig: Rig, policy: str) -> None:
    """And then a daemon in whose configuration the job is disabled."""
    state = {"path": str(rig.folder / "state")}
    rig.start([job(rig, policy)], state=state)
    until(lambda: len(rig.runs("min")) >= 2, 10, "two fires")
    rig.stop()
    rig.write([job(rig, policy, enabled=False)], state=state)


def fires_soon(rig: Rig) -> dict[str, Any]:
    """The first run by schedule since now."""
    now = datetime.now(UTC).timestamp()

    def look() -> dict[str, Any] | None:
        fresh = [run for run in rig.runs("min") if run["trigger"] == "schedule" and at(run["scheduled_for"]) > now]
        return fresh[0] if fresh else None

    return until(look, 10, "the next fire") or {}


def made_up(rig: Rig) -> list[float]:
    return sorted(at(run["scheduled_for"]) for run in rig.runs("min") if run["trigger"] == "catchup")


@pytest.mark.parametrize(("policy", "count"), [("skip", 0), ("run-once", 1), ("run-all", 100)])
def test_45_a_month_without_a_daemon(rig: Rig, policy: str, count: int) -> None:
    """45: Enabled again after a month in which no daemon lived, a job fires at its next instant; made up for is what
    onMissed says, the newest of it, and no error is logged."""
    two_fires(rig, policy)
    make_old(rig, also_decided=policy != "skip")
    back = datetime.now(UTC).timestamp()
    rig.start([job(rig, policy)], state={"path": str(rig.folder / "state")})
    assert rig.job("min")["scheduled_in"] <= 1.0
    assert fires_soon(rig)["outcome"] in (None, "success")
    until(lambda: rig.http("GET", "/health")[1]["missed_made_up"] == count, 30, "catching up")
    until(lambda: len(made_up(rig)) == count, 10, "their records")
    assert all(back - 110 < second < back + 10 for second in made_up(rig)), "the newest"
    health = rig.http("GET", "/health")[1]
    assert (health["missed_given_up"] > 0) is (policy == "run-all")
    assert "ERROR" not in rig.log() and "Traceback" not in rig.log()


@pytest.mark.parametrize("policy", ["skip", "run-once", "run-all"])
def test_45_a_month_disabled(rig: Rig, policy: str) -> None:
    """45: A job that was disabled for a month while daemons lived owes nothing for it: enabled by a reload it fires
    at its next instant, and after a restart nothing of that month is made up for."""
    two_fires(rig, policy)
    make_old(rig, also_decided=False)
    rig.start()
    enabled = datetime.now(UTC).timestamp()
    rig.write([job(rig, policy)], state={"path": str(rig.folder / "state")})
    assert rig.http("POST", "/reload")[1]["ok"] is True
    assert fires_soon(rig)
    rig.stop()
    rig.start()
    assert fires_soon(rig)
    assert all(second >= enabled - 1 for second in made_up(rig))
    assert "ERROR" not in rig.log() and "Traceback" not in rig.log()


def test_47_a_changed_job_set_fires_nothing_again(rig: Rig) -> None:
    """47: Another job comes and goes, then a comment: no occurrence fires twice, although what is missed would be made
    up for; and a copy that runs while its command is changed ends as it began."""
    state = {"path": str(rig.folder / "state")}
    one = job(rig, "run-all", command=f"echo $SEXTON_SCHEDULED_AT >> {rig.folder}/marks", startingDeadlineSeconds=600)
    slow = {"name": "slow", "command": "sleep 1; exit 3", "schedule": "0 0 1 1 *"}
    other = {"name": "b", "command": f"echo b >> {rig.folder}/b", "schedule": "0 0 1 1 *", "onMissed": "run-all"}
    rig.start([one, slow], state=state)
    marks = rig.folder / "marks"

    def fire_then_reload(jobs: list[dict[str, Any]], comment: str = "") -> None:
        count = len(marks.read_text().split()) if marks.exists() else 0
        until(lambda: marks.exists() and len(marks.read_text().split()) > count, 5, "a fire")
        rig.write(jobs, state=state)
        rig.write_text(rig.config.read_text() + comment)
        assert rig.http("POST", "/reload")[1]["ok"] is True

    running = rig.fire("slow")
    rig.running(running)
    fire_then_reload([one, slow, other])
    fire_then_reload([one, slow])
    fire_then_reload([one, {**slow, "command": "exit 4"}], "\n# only a comment\n")
    fire_then_reload([one, {**slow, "command": "exit 4"}])
    seen = marks.read_text().split()
    assert len(seen) == len(set(seen)) and made_up(rig) == [] and not (rig.folder / "b").exists()
    assert rig.recorded(running)["exit_code"] == 3

"""Retries, in a real daemon: who climbs the ladder, and what ends it."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from page_kit import at
from rig import Rig, until

NEVER = "0 0 1 1 *"


def failing(rig: Rig, command: str = "exit 3", **options: Any) -> dict[str, Any]:
    retry = {"maximumRetries": 2, "initialDelay": 0.3, "maximumDelay": 1, "backoffMultiplier": 2, "manual": True,
             **options.pop("retry", {})}
    job = {"name": "j", "command": f"echo $SEXTON_ATTEMPT $CRONSTABLE_ATTEMPT >> {rig.folder}/attempts; {command}",
           "schedule": NEVER, "onFailure": {"retry": retry}}
    return {**job, **options}


def attempts(rig: Rig) -> list[str]:
    path = rig.folder / "attempts"
    return path.read_text().splitlines() if path.exists() else []


def runs(rig: Rig) -> list[dict[str, Any]]:
    return sorted(rig.runs(), key=lambda run: run["id"])


def test_a_failure_is_retried_so_often_and_no_more(rig: Rig) -> None:
    """Each attempt is a run of its own with its number, for the same occurrence; the last failure is final."""
    rig.start([failing(rig)])
    rig.fire()
    until(lambda: len(runs(rig)) == 3, 10, "three attempts")
    assert attempts(rig) == ["1 1", "2 2", "3 3"]
    assert [run["attempt"] for run in runs(rig)] == [1, 2, 3]
    assert [run["trigger"] for run in runs(rig)] == ["manual", "retry", "retry"]
    until(lambda: rig.job()["retry"] is None, 5, "the end of the ladder")
    text = rig.http("GET", "/metrics")[1]
    assert 'sexton_job_retries_total{job_name="j"} 2.0' in text
    assert 'sexton_job_permanent_failures_total{job_name="j"} 1.0' in text
    gaps = [at(b["started_at"]) - at(a["finished_at"]) for a, b in zip(runs(rig), runs(rig)[1:],
                                                                                        strict=False)]
    assert gaps[0] >= 0.29 and gaps[1] >= 0.59, "0.3 seconds, then twice that"


def test_instances_that_fail_together_share_one_retry(rig: Rig) -> None:
    """Of three instances that fail at the same time one retry follows, and not none because all of them have used up
    the attempts."""
    rig.start([failing(rig, f"while [ ! -e {rig.folder}/go ]; do sleep 0.02; done; exit 3",
                       retry={"maximumRetries": 2, "initialDelay": 2, "maximumDelay": 2})])
    fired = [rig.fire() for _ in range(3)]
    (rig.folder / "go").touch()
    for run in fired:
        rig.recorded(run)
    assert rig.job()["retry"]["attempt"] == 1
    until(lambda: len(runs(rig)) == 5 and rig.job()["retry"] is None, 15, "both retries")
    assert [run["attempt"] for run in runs(rig)] == [1, 1, 1, 2, 3]


def test_what_waits_is_shown(rig: Rig) -> None:
    """GET /jobs names the retry that waits: which, of how many, when."""
    rig.start([failing(rig, retry={"initialDelay": 30, "maximumDelay": 30})])
    run = rig.fire()
    rig.recorded(run)
    until(lambda: rig.job()["retry"] is not None, 5, "the pending retry")
    found = rig.job()["retry"]
    assert (found["attempt"], found["maxAttempts"], found["delaySeconds"], found["after"]) == (1, 2, 30.0, run)
    assert at(found["nextRetryAt"]) > at(rig.run(run)["finished_at"])


def test_a_success_ends_it(rig: Rig) -> None:
    """The second attempt succeeds: there is no third."""
    rig.start([failing(rig, "test $SEXTON_ATTEMPT = 2")])
    rig.fire()
    until(lambda: [run["outcome"] for run in runs(rig)] == ["failure", "success"], 10, "two attempts")
    assert rig.job()["retry"] is None


def test_a_run_by_hand_is_not_retried_by_default(rig: Rig) -> None:
    """As with the reference daemon: whoever starts by hand looks at what comes of it."""
    rig.start([failing(rig, retry={"manual": False})])
    rig.recorded(rig.fire())
    assert rig.job()["retry"] is None and len(attempts(rig)) == 1


def test_a_scheduled_run_is_retried_and_the_next_one_begins_anew(rig: Rig) -> None:
    """A later occurrence ends the ladder of the one before it."""
    rig.start([failing(rig, schedule="*/2 * * * * * *", retry={"maximumRetries": 50, "initialDelay": 0.5,
                                                               "backoffMultiplier": 1})])
    until(lambda: len({run["scheduled_for"] for run in runs(rig)}) >= 3, 15, "three occurrences")
    by_occurrence: dict[str, list[int]] = {}
    for run in runs(rig):
        by_occurrence.setdefault(run["scheduled_for"], []).append(run["attempt"])
    whole = list(by_occurrence.values())[:-1]
    assert all(numbers == list(range(1, len(numbers) + 1)) and len(numbers) > 1 for numbers in whole)


@pytest.mark.parametrize("stopped", ["running", "pending"])
def test_a_cancel_ends_it(rig: Rig, stopped: str) -> None:
    """A cancelled run is not retried; a cancelled attempt ends the ladder that it is on."""
    command = "sleep 30" if stopped == "running" else "test $SEXTON_ATTEMPT = 2 && sleep 30; exit 3"
    rig.start([failing(rig, command)])
    rig.fire()
    until(lambda: len(attempts(rig)) == (1 if stopped == "running" else 2), 10, "the attempt to cancel")
    assert rig.http("POST", "/jobs/j/cancel")[0] == 200
    until(lambda: not rig.job()["running"], 5, "its end")
    assert rig.job()["retry"] is None and runs(rig)[-1]["outcome"] == "cancelled"


def test_a_timeout_is_a_cause_of_its_own(rig: Rig) -> None:
    """`on: [timeout]` retries timeouts and nothing else."""
    rig.start([failing(rig, "test $SEXTON_ATTEMPT = 1 && sleep 30; exit 4", executionTimeout=0.3,
                       retry={"on": ["timeout"]})])
    rig.fire()
    until(lambda: len(runs(rig)) == 2, 10, "both attempts")
    assert [run["exit_code"] for run in runs(rig)] == [-100, 4] and rig.job()["retry"] is None


def test_a_pending_retry_survives_the_daemon(rig: Rig) -> None:
    """kill -9 while a retry waits: the next daemon arms it with what is left of its time, once."""
    rig.start([failing(rig, retry={"initialDelay": 3, "maximumDelay": 3, "maximumRetries": 1})],
              state={"path": str(rig.folder / "state")})
    rig.recorded(rig.fire())
    due = at(until(lambda: rig.job()["retry"], 5, "the pending retry")["nextRetryAt"])
    until(lambda: "pending" in (rig.state_of("j", "retry") or ""), 5, "the note in the store")
    rig.kill9()
    rig.start()
    until(lambda: len(attempts(rig)) == 2, 10, "the retry")
    until(lambda: len(runs(rig)) == 2, 5, "its record")
    last = runs(rig)[-1]
    assert last["attempt"] == 2 and at(last["started_at"]) >= due
    rig.kill9()
    rig.start()
    assert rig.job()["retry"] is None and len(attempts(rig)) == 2


def test_a_failure_during_the_end_is_retried_by_the_next_daemon(rig: Rig) -> None:
    """A run that fails by itself while the daemon waits for it (shutdownTimeout) is tried again, by the next one."""
    rig.start([failing(rig, f"while [ ! -e {rig.folder}/go ]; do sleep 0.02; done; test $SEXTON_ATTEMPT = 2",
                       retry={"initialDelay": 0.1})], state={"path": str(rig.folder / "state")}, shutdownTimeout=10)
    run = rig.fire()
    rig.running(run)
    rig.signal(signal.SIGTERM)
    rig.logged("have 10 seconds to end by themselves")
    (rig.folder / "go").touch()
    assert rig.wait(10) == 0 and len(attempts(rig)) == 1, "nothing begins during the end"
    rig.start()
    until(lambda: [one["outcome"] for one in runs(rig)] == ["failure", "success"], 10, "the retry")
    assert rig.run(run)["stop"] is None


def test_a_changed_job_begins_anew_after_a_restart(rig: Rig) -> None:
    """What was pending for another definition is given up, visibly."""
    rig.start([failing(rig, retry={"initialDelay": 5, "maximumDelay": 5})], state={"path": str(rig.folder / "state")})
    rig.recorded(rig.fire())
    until(lambda: "pending" in (rig.state_of("j", "retry") or ""), 5, "the note in the store")
    rig.kill9()
    rig.start([failing(rig, "exit 4", retry={"initialDelay": 5, "maximumDelay": 5})],
              state={"path": str(rig.folder / "state")})
    assert rig.job()["retry"] is None and rig.logged("given up: the job was changed")


def test_a_pending_retry_does_not_outlive_its_job(rig: Rig) -> None:
    """A daemon that starts without the job gives the retry up: it does not come back with the job."""
    job, where = failing(rig, retry={"initialDelay": 1, "maximumDelay": 1}), {"path": str(rig.folder / "state")}
    rig.start([job], state=where)
    rig.recorded(rig.fire())
    until(lambda: '"pending":{' in (rig.state_of("j", "retry") or ""), 5, "the note in the store")
    rig.kill9()
    rig.start([{**job, "name": "other"}], state=where)
    rig.logged("given up: the job was removed")
    until(lambda: '"pending":null' in (rig.state_of("j", "retry") or ""), 5, "the note in the store")
    rig.stop()
    rig.start([job], state=where)
    assert rig.job()["retry"] is None and len(attempts(rig)) == 1


def test_a_retry_that_could_not_be_settled_is_settled_later(rig: Rig) -> None:
    """`degrade`: it is launched although the store takes no note of that. When the store works again it gets the note,
    so that the next daemon does not launch it once more."""
    rig.start([failing(rig, "test $SEXTON_ATTEMPT = 2", retry={"initialDelay": 2, "maximumDelay": 2})],
              state={"path": str(rig.folder / "state")})
    rig.recorded(rig.fire())
    until(lambda: '"pending":{' in (rig.state_of("j", "retry") or ""), 5, "the note in the store")
    ledger = rig.folder / "state" / "default" / "ledger.sqlite3"
    with closing(sqlite3.connect(ledger)) as other:
        for change in ("INSERT", "UPDATE"):
            other.execute(f"CREATE TRIGGER no_{change} BEFORE {change} ON job_state WHEN NEW.key = 'retry' "
                          "BEGIN SELECT RAISE(ABORT, 'no notes'); END")
        other.commit()
        until(lambda: len(runs(rig)) == 2 and runs(rig)[-1]["outcome"] == "success", 10, "the retry")
        assert '"pending":{' in (rig.state_of("j", "retry") or "")
        for change in ("INSERT", "UPDATE"):
            other.execute(f"DROP TRIGGER no_{change}")
        other.commit()
    until(lambda: '"pending":null' in (rig.state_of("j", "retry") or ""), 15, "the note in the store")
    rig.kill9()
    rig.start()
    assert rig.job()["retry"] is None and len(attempts(rig)) == 2

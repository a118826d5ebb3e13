"""Public reports 41 and 43: a pending retry and a fresh fire, and an interruption by the end of the daemon."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from page_kit import at
from rig import NEVER, Rig, always, until

PERIOD = 3
"""Seconds. The report's minute, with its run of 25 and its delay of 20 seconds made smaller alike."""


def flaky(rig: Rig, policy: str) -> dict[str, Any]:
    return {
        "name": "flaky", "command": f"echo + >> {rig.folder}/marks; sleep 1.25; echo - >> {rig.folder}/marks; exit 1",
        "schedule": f"*/{PERIOD} * * * * * *", "concurrencyPolicy": policy, "captureStderr": False, "killTimeout": 1,
        "onFailure": {"retry": retry(1)},
    }


def retry(delay: float) -> dict[str, Any]:
    return {"maximumRetries": 3, "initialDelay": delay, "maximumDelay": delay, "backoffMultiplier": 1}


def waiting(policy: str) -> dict[str, Any]:
    """Its retry still waits whenever the next fire comes."""
    return {"name": "waiting", "command": "exit 1", "schedule": f"*/{PERIOD} * * * * * *", "concurrencyPolicy": policy,
            "onFailure": {"retry": retry(PERIOD + 0.5)}}


Runs = list[dict[str, Any]]


def meetings(rig: Rig, policy: str, met: Callable[[Runs], object]) -> Runs:
    """The runs of at least three occurrences, in the order of their starts, once a fire has `met` a running attempt."""
    rig.start([flaky(rig, policy), waiting(policy)])

    def look() -> Runs | None:
        runs = sorted((run for run in rig.runs("flaky") if run["started_at"]), key=lambda run: at(run["started_at"]))
        return runs if len(sequences(runs)) >= 3 and met(runs) else None

    return until(look, 60, "the meetings") or []


def crossed(runs: Runs) -> list[Runs]:
    """Sequences that went on after the next fire had been due."""
    return [attempts for attempts in sequences(runs).values()
            if at(attempts[-1]["started_at"]) - at(attempts[0]["scheduled_for"]) > PERIOD]


def replaced(runs: Runs) -> list[Runs]:
    """Sequences of which an attempt was replaced."""
    return [attempts for attempts in sequences(runs).values()
            if any(run["outcome"] == "replaced" for run in attempts)]


def beside(runs: Runs) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs of runs of which the second started while the first ran."""
    return [(one, after) for one, after in pairwise(runs)
            if at(after["started_at"]) < at(one["finished_at"])]


def sequences(runs: Runs) -> dict[str, Runs]:
    """Attempts by occurrence."""
    found: dict[str, Runs] = {}
    for run in runs:
        found.setdefault(run["scheduled_for"], []).append(run)
    return found


def first_starts(runs: Runs) -> dict[str, float]:
    return {occurrence: at(attempts[0]["started_at"]) for occurrence, attempts in sequences(runs).items()}


def check_what_holds_for_all(rig: Rig, runs: Runs) -> None:
    """Each sequence counts 1, 2, ... up to four, and ends for good when a newer occurrence has been launched; a retry
    that waits when the fire comes is given up."""
    rig.logged("Job waiting: the pending retry #1 is given up: superseded")
    assert {run["attempt"] for run in rig.runs("waiting")} == {1}
    began = first_starts(runs)
    for occurrence, attempts in sequences(runs).items():
        assert [run["attempt"] for run in attempts] == list(range(1, len(attempts) + 1)) and len(attempts) <= 4
        newer = min((start for other, start in began.items() if other > occurrence), default=float("inf"))
        assert all(at(run["started_at"]) <= newer for run in attempts), "no attempt of an old sequence"


def test_41_forbid_lets_whoever_is_there_go_on(rig: Rig) -> None:
    """41, Forbid: A fire that meets a running attempt is dropped, and the sequence goes on; one that meets a waiting
    retry begins a sequence of its own, and the retry is given up. No two attempts overlap."""
    runs = meetings(rig, "Forbid", crossed)
    check_what_holds_for_all(rig, runs)
    assert not beside(runs), "no two attempts overlap"
    marks = (rig.folder / "marks").read_text().split()
    assert all(mark == "+-"[number % 2] for number, mark in enumerate(marks))
    assert rig.job("flaky")["skipped"] >= len(crossed(runs))


def test_41_replace_retries_nothing_that_was_replaced(rig: Rig) -> None:
    """41, Replace: The newer fire takes the place of a running attempt and of a waiting retry alike; what was replaced
    is not retried, and is no failure."""
    runs = meetings(rig, "Replace", replaced)
    check_what_holds_for_all(rig, runs)
    assert all(attempts[-1]["outcome"] == "replaced" for attempts in replaced(runs)), "nothing followed it"
    assert not beside(runs)


def test_41_allow_lets_the_older_attempt_end_and_not_climb_on(rig: Rig) -> None:
    """41, Allow: The newer fire starts beside a running attempt of the older, which ends by itself and is not tried
    again; the newer occurrence has the only sequence."""
    runs = meetings(rig, "Allow", beside)
    check_what_holds_for_all(rig, runs)
    for one, after in beside(runs):
        assert one["outcome"] == "failure" and one["exit_code"] == 1 and one["scheduled_for"] < after["scheduled_for"]


@pytest.mark.parametrize("attempt", [1, 2])
def test_43_an_interrupted_attempt_is_not_tried_again_by_the_dying_daemon(rig: Rig, attempt: int) -> None:
    """43: A run that the end of the daemon has ended is `cancelled`: it starts nothing in the daemon that is ending,
    and the end does not wait for a retry."""
    again = {"maximumRetries": 5, "initialDelay": 0.05, "maximumDelay": 1, "manual": True}
    rig.start([{"name": "slow", "schedule": NEVER, "killTimeout": 1, "onFailure": {"retry": again},
                "command": f"echo s >> {rig.folder}/marks; test $SEXTON_ATTEMPT = {attempt} && sleep 60; exit 1"}],
              state={"path": str(rig.folder / "state")})
    rig.fire("slow")
    marks = rig.folder / "marks"
    until(lambda: marks.exists() and marks.read_text() == "s\n" * attempt, 10, "the attempt")
    assert rig.stop() == 0
    assert marks.read_text() == "s\n" * attempt, "nothing began during the end"
    rig.start()
    always(lambda: marks.read_text() == "s\n" * attempt, 0.3, "and nothing after it")
    assert max(rig.runs("slow"), key=lambda run: run["id"])["outcome"] == "cancelled"


def test_43_a_retry_that_waits_at_the_end_loses_no_attempt(rig: Rig) -> None:
    """43: A waiting retry is left to the next daemon with its number: the end has used up none."""
    again = {"maximumRetries": 1, "initialDelay": 3, "maximumDelay": 3, "manual": True}
    rig.start([{"name": "slow", "schedule": NEVER, "onFailure": {"retry": again}, "command": "exit 1"}],
              state={"path": str(rig.folder / "state")})
    rig.recorded(rig.fire("slow"))
    until(lambda: "pending" in (rig.state_of("slow", "retry") or ""), 5, "the note in the store")
    assert rig.stop() == 0
    rig.start()
    until(lambda: len(rig.runs("slow")) == 2, 10, "the retry")
    assert sorted(run["attempt"] for run in rig.runs("slow")) == [1, 2]

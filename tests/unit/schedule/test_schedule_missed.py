"""What is owed after a time in which nobody fired: the rules as tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sexton.model.job import DayRule, OnMissed
from sexton.model.pause import Pause
from sexton.schedule.expression import parse
from sexton.schedule.missed import MOST, Owed, owed_since
from sexton.schedule.occurrences import Occurrences, occurrences_of

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ONCE, ALL = OnMissed.RUN_ONCE, OnMissed.RUN_ALL


def every(text: str) -> Occurrences:
    expression = parse(text, seed="j")
    return occurrences_of(expression, UTC, DayRule.OR)  # type: ignore[arg-type]


def hours(*numbers: float) -> tuple[datetime, ...]:
    return tuple(NOON + timedelta(hours=number) for number in numbers)


HOURLY = every("0 * * * *")


@pytest.mark.parametrize(("policy", "expected"), [
    (OnMissed.SKIP, ()), (ONCE, hours(3)), (ALL, hours(1, 2, 3)),
])
def test_each_policy(policy: OnMissed, expected: tuple[datetime, ...]) -> None:
    """skip owes nothing, run-once the newest, run-all each; what was decided at the beginning is not owed again."""
    assert owed_since(HOURLY, NOON, NOON + timedelta(hours=3, minutes=30), policy, None).occurrences == expected


def test_an_occurrence_of_this_very_instant_is_owed() -> None:
    """The end of the time is in it, its beginning is not."""
    assert owed_since(HOURLY, NOON, NOON + timedelta(hours=1), ALL, None).occurrences == hours(1)


def test_what_is_too_old_is_given_up_and_counted() -> None:
    """startingDeadlineSeconds cuts off the older ones."""
    owed = owed_since(HOURLY, NOON, NOON + timedelta(hours=5), ALL, 7200.0)
    assert owed == Owed(hours(3, 4, 5), 2)
    assert owed_since(HOURLY, NOON, NOON + timedelta(hours=1, minutes=30), ONCE, 60.0) == Owed((), 1)


def test_so_many_at_most() -> None:
    """The newest are made up for, the rest is counted; a month of minutes is looked at only so far."""
    owed = owed_since(every("* * * * *"), NOON, NOON + timedelta(minutes=250), ALL, None)
    assert len(owed.occurrences) == MOST and owed.given_up == 150 and owed.exact
    assert owed.occurrences[-1] == NOON + timedelta(minutes=250)
    assert not owed_since(every("* * * * *"), NOON, NOON + timedelta(days=30), ALL, None).exact


def test_a_pause_excuses() -> None:
    """Nothing is owed for the time in which somebody wanted nothing to run."""
    pause = Pause(since=NOON + timedelta(hours=1, minutes=30), until=NOON + timedelta(hours=3, minutes=30))
    owed = owed_since(HOURLY, NOON, NOON + timedelta(hours=5), ALL, None, pause)
    assert owed == Owed(hours(1, 4, 5))


def test_an_interrupted_run_is_owed_and_a_finished_one_is_not() -> None:
    """By their occurrences, wherever the time that is looked at begins."""
    owed = owed_since(HOURLY, NOON, NOON + timedelta(hours=3), ALL, None, None, hours(-1), hours(2))
    assert owed.occurrences == hours(-1, 1, 3)


@pytest.mark.parametrize("policy", [ONCE, ALL])
def test_45_a_month_is_no_walk(policy: OnMissed, monkeypatch: pytest.MonkeyPatch) -> None:
    """45: However long nobody fired, no more than some hundreds of occurrences are looked at; those that are owed
    are the newest, and it is said that the rest was not counted."""
    asked, previous = [], Occurrences.previous

    def counting(schedule: Occurrences, before: datetime) -> datetime | None:
        asked.append(before)
        return previous(schedule, before)

    monkeypatch.setattr(Occurrences, "previous", counting)
    owed = owed_since(every("* * * * * * *"), NOON - timedelta(days=30), NOON, policy, None)
    assert len(asked) < 2000 and owed.occurrences[-1] == NOON
    assert len(owed.occurrences) == (1 if policy is ONCE else MOST) and not owed.exact

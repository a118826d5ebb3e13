"""What is said about a schedule and about one instant of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.model.job import DayRule
from sexton.schedule.describe import describe
from sexton.schedule.explain import Explanation, explain
from sexton.schedule.expression import CronExpression, parse


def explained(text: str, zone: str, at: str, rule: DayRule = DayRule.OR) -> Explanation:
    expression = parse(text, seed="job")
    assert isinstance(expression, CronExpression)
    return explain(expression, ZoneInfo(zone), rule, datetime.fromisoformat(at))


DESCRIPTIONS = [
    ("* * * * *", "every minute"),
    ("*/5 * * * *", "every 5 minutes"),
    ("*/7 * * * *", "every 7 minutes from 0"),
    ("30 2 * * *", "at 02:30, every day"),
    ("0 9,17 * * 1-5", "at 09:00 and 17:00, on Monday to Friday"),
    ("@hourly", "at minute 0 of every hour"),
    ("*/10 * * * * * *", "every 10 seconds"),
    ("15 30 6 * * * *", "at 06:30:15, every day"),
    ("0 0 LW * *", "at 00:00, on the last weekday (Monday to Friday) of the month"),
    (
        "0 0 L-3,15W * *",
        "at 00:00, on the weekday nearest to day 15 and the day 3 before the last day of the month",
    ),
    ("0 0 * * L5,1#2", "at 00:00, on the last Friday and the second Monday of the month"),
    ("48 14 31 6 0", "at 14:48, on day 31 of the month or on Sunday, in June"),
    ("0 0 */10 * FRI", "at 00:00, on days 1, 11, 21 and 31 of the month, only if that is Friday"),
    ("0 0 1 1 * 2030", "at 00:00, on day 1 of the month, in January, in 2030"),
    ("@reboot", "once when the daemon starts"),
]


@pytest.mark.parametrize(("text", "expected"), DESCRIPTIONS)
def test_descriptions(text: str, expected: str) -> None:
    """A schedule is told in one line of plain English."""
    assert describe(parse(text, seed="job")) == expected


def test_the_day_rule_is_described() -> None:
    """The line follows the job's day rule."""
    assert describe(parse("0 0 13 * 5", seed=""), DayRule.AND).endswith("only if that is Friday")


def test_each_field_is_held_against_the_local_time() -> None:
    """The one field that does not match is named, with the value that it met."""
    found = explained("30 9 * * MON", "Europe/Berlin", "2026-05-04T07:29:00+00:00")
    assert [(each.field, each.value) for each in found.fields if not each.matches] == [("minute", 29)]
    assert not found.matches and not found.fires
    assert found.local.hour == 9
    assert found.next == datetime(2026, 5, 4, 7, 30, tzinfo=UTC)
    assert found.previous == datetime(2026, 4, 27, 7, 30, tzinfo=UTC)


def test_the_day_rule_decides() -> None:
    """A 13th that is no Friday counts under `or` and does not under `and`, and a note says why."""
    either = explained("0 9 13 * FRI", "UTC", "2026-04-13T09:00:00+00:00")
    both = explained("0 9 13 * FRI", "UTC", "2026-04-13T09:00:00+00:00", DayRule.AND)
    assert (either.fires, both.fires) == (True, False)
    assert "either" in either.notes[0] and "both of them" in both.notes[0]


def test_a_gap_is_explained() -> None:
    """A time that the clocks left out fires at the end of the gap although no field says so."""
    found = explained("30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00+00:00")
    assert (found.matches, found.fires) == (False, True)
    assert "2026-03-29 02:00:00 to 2026-03-29 03:00:00" in found.notes[0]
    interval = explained("*/30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00+00:00")
    assert not interval.fires and "does not fire" in interval.notes[0]


def test_a_repeated_hour_is_explained() -> None:
    """In the second pass a fixed time matches and does not fire, an interval does both."""
    fixed = explained("30 2 * * *", "Europe/Berlin", "2026-10-25T01:30:00+00:00")
    interval = explained("*/30 * * * *", "Europe/Berlin", "2026-10-25T01:30:00+00:00")
    assert (fixed.matches, fixed.fires) == (True, False)
    assert (interval.matches, interval.fires) == (True, True)
    assert "second pass" in fixed.notes[0] and "second pass" in interval.notes[0]
    before = explained("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00+00:00")
    assert before.fires and "go back at 2026-10-25 03:00:00" in before.notes[0]


def test_no_notes_on_an_ordinary_day() -> None:
    """Nothing is said about clocks that did not change."""
    assert explained("30 2 * * *", "Europe/Berlin", "2026-06-25T01:30:00+00:00").notes == ()


@given(
    text=st.sampled_from(["*/7 * * * *", "5,30 */2 * * *", "0 0 L,10W * *", "0 12 * * L5,2#1", "0 3 13 * 5"]),
    rule=st.sampled_from(DayRule),
    minutes=st.integers(0, 366 * 1440),
)
@settings(max_examples=200, deadline=None)
def test_matches_and_fires_agree_without_clock_changes(text: str, rule: DayRule, minutes: int) -> None:
    """In a zone whose clocks never change, all fields match exactly when the schedule fires."""
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    found = explained(text, "Asia/Tokyo", at.isoformat(), rule)
    assert found.matches is found.fires
    if found.next is not None:
        assert explained(text, "Asia/Tokyo", found.next.isoformat(), rule).matches

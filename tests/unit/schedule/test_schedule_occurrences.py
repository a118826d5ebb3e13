"""When schedules fire: checked dates, changes of the clocks, another engine, and a scan of every minute."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fires import fires
from sexton.model.job import DayRule
from sexton.schedule.expression import CronExpression, parse
from sexton.schedule.occurrences import Occurrences, occurrences_of


def schedule(text: str, zone: str = "UTC", rule: DayRule = DayRule.OR) -> Occurrences:
    expression = parse(text, seed="job")
    assert isinstance(expression, CronExpression)
    return Occurrences(expression, ZoneInfo(zone), rule)


def local_fires(text: str, zone: str, after: str, count: int, rule: DayRule = DayRule.OR) -> list[str]:
    """The fires after a local time, as local times with their offset."""
    where = ZoneInfo(zone)
    start = datetime.fromisoformat(after).replace(tzinfo=where)
    found = fires(schedule(text, zone, rule), start, start + timedelta(days=40000), count)
    return [each.astimezone(where).strftime("%Y-%m-%dT%H:%M:%S%z") for each in found]


def dates(text: str, after: str, count: int, rule: DayRule = DayRule.OR) -> list[str]:
    return [each[:10] for each in local_fires(text, "UTC", after, count, rule)]


DATES = [
    ("0 0 31W * *", "2026-12-01", ["2026-12-31", "2027-01-29", "2027-03-31"]),
    ("0 0 1W 8 *", "2026-07-01", ["2026-08-03", "2027-08-02"]),
    ("0 0 15W 2,8 *", "2026-01-01", ["2026-02-16", "2026-08-14"]),
    ("0 0 L-3 2 *", "2027-01-01", ["2027-02-25", "2028-02-26"]),
    ("0 0 L-30 * *", "2026-01-15", ["2026-03-01", "2026-05-01"]),
    ("0 0 31,L * *", "2026-03-30", ["2026-03-31", "2026-04-30", "2026-05-31"]),
    ("0 0 LW * *", "2026-01-01", ["2026-01-30", "2026-02-27", "2026-03-31"]),
    ("0 0 * * L5", "2026-01-01", ["2026-01-30", "2026-02-27"]),
    ("0 0 * * 5#3", "2026-01-01", ["2026-01-16", "2026-02-20"]),
    ("0 0 * * 1#5", "2026-01-01", ["2026-03-30", "2026-06-29"]),
    ("0 0 29 2 *", "2026-01-01", ["2028-02-29", "2032-02-29"]),
    ("0 0 1 1 * 2030,2050", "2026-01-01", ["2030-01-01", "2050-01-01"]),
    ("0 0 13 * FRI", "2026-03-01", ["2026-03-06", "2026-03-13", "2026-03-20"]),
    ("48 14 31 6 0", "2026-06-01", ["2026-06-07", "2026-06-14", "2026-06-21", "2026-06-28", "2027-06-06"]),
    ("0 0 */2 * FRI", "2026-03-01", ["2026-03-13", "2026-03-27"]),
]


@pytest.mark.parametrize(("text", "after", "expected"), DATES)
def test_dates(text: str, after: str, expected: list[str]) -> None:
    """Special days, leap years and the two day fields fall on the dates a calendar shows."""
    assert dates(text, after, len(expected)) == expected


def test_both_days_must_match_under_and() -> None:
    """`DayRule.AND` is the Friday the 13th that the text seems to say."""
    assert dates("0 0 13 * FRI", "2026-03-01", 3, DayRule.AND) == ["2026-03-13", "2026-11-13", "2027-08-13"]


NEVER = ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 31W 4 *", "0 0 1 1 * 1999", "0 0 L-30 4 *"]


@pytest.mark.parametrize("text", NEVER)
def test_never(text: str) -> None:
    """A date that does not come is told at once, not searched for minute by minute."""
    found = schedule(text, "Europe/Berlin")
    now = datetime(2026, 5, 1, tzinfo=UTC)
    assert found.next_after(now) is None
    assert found.never_fires(now)
    took = []
    for shift in range(5):
        began = time.perf_counter()
        found.next_after(now + timedelta(seconds=shift))
        took.append(time.perf_counter() - began)
    assert min(took) < 0.005
    assert schedule("48 14 31 6 0", rule=DayRule.AND).never_fires(now)


def test_the_end_of_time() -> None:
    """Schedules end with the year 2099 and begin with 1970, at any distance."""
    minutely = schedule("* * * * *", "Pacific/Kiritimati")
    assert minutely.next_after(datetime(2150, 1, 1, tzinfo=UTC)) is None
    assert minutely.previous(datetime(1900, 1, 1, tzinfo=UTC)) is None
    last = minutely.previous(datetime(9999, 1, 1, tzinfo=UTC))
    assert last == datetime(2099, 12, 31, 9, 59, tzinfo=UTC)
    assert minutely.next_after(last) is None
    assert minutely.next_after(datetime(1, 1, 1, tzinfo=UTC)) == datetime(1970, 1, 1, 10, 40, tzinfo=UTC)


def test_strictly_after_and_before() -> None:
    """An instant is never its own successor or predecessor; parts of a second count."""
    minutely = schedule("* * * * *")
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    tick = timedelta(microseconds=1)
    assert minutely.next_after(noon) == noon + timedelta(minutes=1)
    assert minutely.next_after(noon - tick) == noon
    assert minutely.previous(noon) == noon - timedelta(minutes=1)
    assert minutely.previous(noon + tick) == noon
    assert minutely.fires_at(noon) and not minutely.fires_at(noon + tick)
    assert fires(minutely, noon, noon + timedelta(minutes=2), 9) == [
        noon + timedelta(minutes=m) for m in (1, 2)
    ]


def test_sharing() -> None:
    """Jobs with the same schedule, zone and rule share one `Occurrences`."""
    one = parse("*/5 * * * *", seed="a")
    two = parse("*/5 * * * *", seed="b")
    assert isinstance(one, CronExpression) and isinstance(two, CronExpression)
    assert occurrences_of(one, ZoneInfo("UTC")) is occurrences_of(two, ZoneInfo("UTC"))
    assert occurrences_of(one, ZoneInfo("UTC")) != occurrences_of(one, ZoneInfo("UTC"), DayRule.AND)


CLOCK_CHANGES = [
    # A missing time fires at the first instant after the gap, several of them once.
    (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00",
        ["2026-03-29T03:00:00+0200", "2026-03-30T02:30:00+0200"],
    ),
    (
        "0,30 2 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00",
        ["2026-03-29T03:00:00+0200", "2026-03-30T02:00:00+0200"],
    ),
    (
        "0 2,3 * * *",
        "Europe/Berlin",
        "2026-03-28T12:00",
        ["2026-03-29T03:00:00+0200", "2026-03-30T02:00:00+0200"],
    ),
    (
        "15 0 * * *",
        "America/Sao_Paulo",
        "2018-11-03T12:00",
        ["2018-11-04T01:00:00-0200", "2018-11-05T00:15:00-0200"],
    ),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", ["2026-10-04T02:30:00+1100"]),
    (
        "0 12 30 * *",
        "Pacific/Apia",
        "2011-12-29T13:00",
        ["2011-12-31T00:00:00+1400", "2012-01-30T12:00:00+1400"],
    ),
    # A repeated time fires the first time only.
    (
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-25T00:00",
        ["2026-10-25T02:30:00+0200", "2026-10-26T02:30:00+0100"],
    ),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05T00:00", ["2026-04-05T01:45:00+1100"]),
    (
        "30 23 * * *",
        "America/Santiago",
        "2026-04-04T12:00",
        ["2026-04-04T23:30:00-0300", "2026-04-05T23:30:00-0400"],
    ),
    # An interval keeps its rhythm: nothing for a missing hour, both passes of a repeated one.
    ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-30T02:00:00+0200"]),
    (
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-10-25T02:00",
        ["2026-10-25T02:30:00+0200", "2026-10-25T02:00:00+0100", "2026-10-25T02:30:00+0100"],
    ),
    (
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-03-29T01:00",
        ["2026-03-29T01:30:00+0100", "2026-03-29T03:00:00+0200"],
    ),
    # A repeated hour counts also when the schedule's own year ends there.
    (
        "*/45 2 25 10 * 2026",
        "Europe/Berlin",
        "2026-10-25T02:45",
        ["2026-10-25T02:00:00+0100", "2026-10-25T02:45:00+0100"],
    ),
]


@pytest.mark.parametrize(("text", "zone", "after", "expected"), CLOCK_CHANGES)
def test_clock_changes(text: str, zone: str, after: str, expected: list[str]) -> None:
    """Fixed times come once a day, intervals keep real time."""
    assert local_fires(text, zone, after, len(expected)) == expected


DAY_LENGTHS = [("2026-11-01", 25), ("2026-03-08", 23), ("2026-05-01", 24)]


@pytest.mark.parametrize(("day", "hours"), DAY_LENGTHS)
def test_an_hourly_job_runs_each_real_hour(day: str, hours: int) -> None:
    """An hourly job has as many runs as the day has hours, an hour apart."""
    zone = ZoneInfo("America/Los_Angeles")
    begin = datetime.fromisoformat(day).replace(tzinfo=zone)
    end = (begin + timedelta(days=1)).astimezone(UTC)
    found = fires(
        schedule("0 * * * *", "America/Los_Angeles"),
        begin.astimezone(UTC) - timedelta(seconds=1), end - timedelta(seconds=1), 100
    )
    assert len(found) == hours
    assert {later - earlier for earlier, later in pairwise(found)} == {timedelta(hours=1)}


# Places and days with a change of the clocks: by an hour, by half of one, by two, at midnight, by a day,
# for good, and the two that Ramadan moves.
WINDOWS = [
    ("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"), ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"), ("Australia/Lord_Howe", "2026-10-04"),
    ("Pacific/Chatham", "2026-04-05"), ("Pacific/Chatham", "2026-09-27"),
    ("Antarctica/Troll", "2026-03-29"), ("Antarctica/Troll", "2026-10-25"),
    ("Africa/Casablanca", "2026-02-15"), ("Africa/Casablanca", "2026-03-22"),
    ("America/Santiago", "2026-04-05"), ("America/Santiago", "2026-09-06"),
    ("America/Sao_Paulo", "2018-11-04"), ("America/Sao_Paulo", "2019-02-17"),
    ("Asia/Kathmandu", "1986-01-01"), ("Pacific/Apia", "2011-12-30"),
    ("Pacific/Kwajalein", "1993-08-21"), ("America/Caracas", "2007-12-09"),
    ("Asia/Pyongyang", "2018-05-05"), ("UTC", "2026-12-31"),
]  # fmt: skip


@lru_cache
def window(zone: str, day: str) -> list[tuple[datetime, datetime]]:
    """Every minute of five days, as instant and wall clock."""
    begin = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=2)
    where = ZoneInfo(zone)
    instants = [begin + timedelta(minutes=minute) for minute in range(5 * 1440)]
    return [(each, each.astimezone(where).replace(tzinfo=None)) for each in instants]


def listed(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A list's text with the values that it stands for."""
    lists = st.lists(st.integers(low, high), min_size=1, max_size=4, unique=True)
    return lists.map(lambda found: (",".join(map(str, found)), frozenset(found)))


def stepped(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field's text with the values that it stands for."""
    every = frozenset(range(low, high + 1))
    return st.one_of(
        st.just(("*", every)),
        st.integers(2, 20)
        .filter(lambda n: n <= high - low)
        .map(lambda n: (f"*/{n}", frozenset(range(low, high + 1, n)))),
        listed(low, high),
    )


@given(
    where=st.sampled_from(WINDOWS),
    minute=stepped(0, 59),
    hour=st.one_of(stepped(0, 23), listed(0, 4)),
    weekday=st.one_of(st.just(("*", frozenset(range(7)))), stepped(0, 6)),
)
@settings(max_examples=150, deadline=None)
def test_agrees_with_a_scan_of_every_minute(
    where: tuple[str, str],
    minute: tuple[str, frozenset[int]],
    hour: tuple[str, frozenset[int]],
    weekday: tuple[str, frozenset[int]],
) -> None:
    """Forward and backward, the engine finds what looking at each minute of five days finds.

    A fixed time fires at the first minute whose wall clock has reached it; an interval at each that shows it.
    """
    zone, day = where
    minutes = window(zone, day)

    def shown(wall: datetime) -> bool:
        return wall.minute in minute[1] and wall.hour in hour[1] and wall.isoweekday() % 7 in weekday[1]

    expected = []
    if minute[0].startswith("*") or hour[0].startswith("*"):
        expected = [instant for instant, wall in minutes[1:] if shown(wall)]
    else:
        reached = minutes[0][1]
        for instant, wall in minutes[1:]:
            passed = False
            while reached < wall:
                reached += timedelta(minutes=1)
                passed = passed or shown(reached)
            if passed:
                expected.append(instant)
    found = schedule(f"{minute[0]} {hour[0]} * * {weekday[0]}", zone)
    begin, end = minutes[0][0], minutes[-1][0]
    forward = fires(found, begin, end, 10000)
    assert forward == expected
    backward = []
    at: datetime | None = end + timedelta(minutes=1)
    while at is not None and (at := found.previous(at)) is not None and at > begin:
        backward.append(at)
    assert backward[::-1] == expected


ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Africa/Casablanca", "America/Santiago",
    "Australia/Lord_Howe", "Pacific/Chatham", "Antarctica/Troll", "America/Sao_Paulo", "Asia/Gaza",
)  # fmt: skip


def _cron_field(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    spans = st.tuples(value, value).map(sorted)
    item = st.one_of(
        value.map(str),
        spans.map(lambda span: f"{span[0]}-{span[1]}"),
        # The other engine takes `5-5/2` for `5/2`, which no other cron does: no such ranges here.
        st.tuples(spans.filter(lambda span: span[0] < span[1]), st.integers(1, high - low)).map(
            lambda s: f"{s[0][0]}-{s[0][1]}/{s[1]}"
        ),
        st.tuples(value, st.integers(1, high - low)).map(lambda s: f"{s[0]}/{s[1]}"),
    )
    return st.one_of(
        st.just("*"),
        st.integers(1, high - low).map(lambda n: f"*/{n}"),
        st.lists(item, min_size=1, max_size=3).map(",".join),
    )


def _other_spelling(text: str) -> str:
    """The other engine spells our `L5` as `5L`."""
    fields = text.split()
    fields[4] = ",".join(f"{each[1:]}L" if each.startswith("L") else each for each in fields[4].split(","))
    return " ".join(fields)


@given(
    minute=_cron_field(0, 59),
    hour=_cron_field(0, 23),
    day=st.one_of(st.just("*"), _cron_field(1, 31), st.sampled_from(["L", "LW", "1,L", "15,LW"])),
    month=st.one_of(st.just("*"), _cron_field(1, 12)),
    weekday=st.one_of(st.just("*"), _cron_field(0, 6), st.sampled_from(["L5", "5#3", "1,L0", "0#1", "7#5"])),
    zone=st.sampled_from(ZONES),
    start=st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)),
)
@settings(max_examples=250, deadline=None)
def test_agrees_with_cronsim(
    minute: str, hour: str, day: str, month: str, weekday: str, zone: str, start: datetime
) -> None:
    """On the common dialect the next fires are those of another engine that follows Debian's rules."""
    text = f"{minute} {hour} {day} {month} {weekday}"
    begin = start.replace(microsecond=0, tzinfo=UTC).astimezone(ZoneInfo(zone))
    assume(begin.fold == 0)
    interval = minute.startswith("*") or hour.startswith("*")
    # The other engine walks by whole hours and oversteps where the clocks change by half of one.
    assume(not (interval and zone == "Australia/Lord_Howe"))
    try:
        other = CronSim(_other_spelling(text), begin if zone != "UTC" else begin.astimezone(UTC))
        theirs = _distinct(other, 6)
    except CronSimError:
        assume(False)
    ours = fires(schedule(text, zone), begin, datetime(2100, 1, 1, tzinfo=UTC), 6)
    assert ours[: len(theirs)] == theirs[: len(ours)]
    # It gives up after fifty years, we at the end of 2099.
    assert len(ours) == len(theirs) or min(len(ours), len(theirs)) == 0 or ours[-1].year > 2050


def _distinct(other: CronSim, count: int) -> list[datetime]:
    """Several missing times that fire at one instant are told several times by the other engine."""
    found: list[datetime] = []
    for each in other:
        instant = each.astimezone(UTC)
        if not found or instant != found[-1]:
            found.append(instant)
        if len(found) == count:
            break
    return found

"""What a schedule may say, and what is said back when it is not understood."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.model.errors import ScheduleError
from sexton.model.job import ScheduleFields
from sexton.schedule.expression import CronExpression, Reboot, day_rules_differ, parse
from sexton.schedule.fields import FIRST_YEAR


def expression(spec: str | ScheduleFields, seed: str = "job") -> CronExpression:
    parsed = parse(spec, seed=seed)
    assert isinstance(parsed, CronExpression)
    return parsed


def bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


MINUTES = [
    ("*", list(range(60))),
    ("5", [5]),
    ("05", [5]),
    ("1,3,5", [1, 3, 5]),
    ("10-13", [10, 11, 12, 13]),
    ("*/20", [0, 20, 40]),
    ("10-30/10", [10, 20, 30]),
    ("45/5", [45, 50, 55]),
    ("1-3,50-58/4,7", [1, 2, 3, 7, 50, 54, 58]),
    ("*/60", [0]),
]


@pytest.mark.parametrize(("text", "expected"), MINUTES)
def test_minute_forms(text: str, expected: list[int]) -> None:
    """Values, lists, ranges and steps mean what cron users expect; `a/n` runs to the end."""
    assert bits(expression(f"{text} * * * *").minute.mask) == expected


WEEKDAYS = [
    ("0", [0]),
    ("7", [0]),
    ("sat-sun", [0, 6]),
    ("5-7", [0, 5, 6]),
    ("5-0", [0, 5, 6]),
    ("0-7", [0, 1, 2, 3, 4, 5, 6]),
    ("MON-fri", [1, 2, 3, 4, 5]),
    ("Mon,wEd", [1, 3]),
    ("*/2", [0, 2, 4, 6]),
    ("1/2", [0, 1, 3, 5]),
    ("sun-sun", [0]),
    ("?", [0, 1, 2, 3, 4, 5, 6]),
]


@pytest.mark.parametrize(("text", "expected"), WEEKDAYS)
def test_weekday_forms(text: str, expected: list[int]) -> None:
    """Sunday is 0 and 7, names take any case, and a range may end in Sunday."""
    assert bits(expression(f"0 0 * * {text}").weekday.mask) == expected


def test_month_names() -> None:
    """Months have names, also in ranges with a step."""
    assert bits(expression("0 0 1 jan-Dec/3,FEB *").month.mask) == [1, 2, 4, 7, 10]


def test_special_days() -> None:
    """`L`, `L-n`, `nW` and `LW` mix with plain days in one list."""
    day = expression("0 0 1,L,l-3,15W,LW * *").day
    assert (bits(day.mask), bits(day.from_end), bits(day.nearest), day.last_weekday) == (
        [1],
        [0, 3],
        [15],
        True,
    )


def test_special_weekdays() -> None:
    """`L5`, ranges of them, and `5#3` mix with plain weekdays in one list."""
    weekday = expression("0 0 * * 1,L5-sun,fri#3,7#1").weekday
    assert bits(weekday.mask) == [1]
    assert bits(weekday.last) == [0, 5, 6]
    assert [bits(mask) for mask in weekday.nth] == [[0], [], [5], [], []]


def test_field_counts() -> None:
    """A sixth field is the year; seven begin with the second."""
    six = expression("0 0 1 1 * 2030/30")
    assert [year + FIRST_YEAR for year in bits(six.year.mask)] == [2030, 2060, 2090]
    assert bits(six.second.mask) == [0]
    seven = expression("*/30 * * * * * *")
    assert bits(seven.second.mask) == [0, 30]
    assert seven.sub_minute and not six.sub_minute


def test_map_form() -> None:
    """A map reads like the text with the same fields; a missing key is `*`, a missing second `0`."""
    mapped = expression(ScheduleFields(minute="*/5", hour="1", day_of_week="mon", year="2030"))
    assert mapped.resolved == expression("*/5 1 * * MON 2030").resolved


MACROS = [
    ("@yearly", "0 0 1 1 *"),
    ("@ANNUALLY", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    (" @hourly\n", "0 * * * *"),
]


@pytest.mark.parametrize(("macro", "meaning"), MACROS)
def test_macros(macro: str, meaning: str) -> None:
    """A macro is its five fields."""
    assert expression(macro).resolved == meaning


def test_reboot_is_no_expression() -> None:
    """`@reboot` has no instants and says so by its type."""
    assert parse("@Reboot", seed="job") == Reboot()


def test_hash_is_stable_per_job_and_field() -> None:
    """`H` depends on the job's name and the field, on nothing else."""
    assert expression("H H * * *", "a").resolved == expression("H H * * *", "a").resolved
    minutes = {expression("H * * * *", f"job {number}").resolved for number in range(200)}
    assert len(minutes) > 30
    both = [expression("H * * H H", f"job {number}") for number in range(50)]
    assert any(each.minute.mask != 1 << (each.month.mask.bit_length() - 1) for each in both)


@given(st.text(max_size=20))
@settings(max_examples=60)
def test_hash_stays_in_range(seed: str) -> None:
    """Ranges and steps of `H` hold for every name; a plain one in the day of month is within 1-28."""
    parsed = expression("H/15 H(9-17) H H H(1-5)/2", seed)
    minutes = bits(parsed.minute.mask)
    assert len(minutes) == 4 and minutes[0] < 15 and minutes == list(range(minutes[0], 60, 15))
    assert len(bits(parsed.hour.mask)) == 1 and 9 <= bits(parsed.hour.mask)[0] <= 17
    assert 1 <= bits(parsed.day.mask)[0] <= 28
    assert bits(parsed.weekday.mask)[0] in (1, 2)


def test_the_seed_matters_only_to_hashes() -> None:
    """Jobs with the same schedule share one value, whatever their names; THU and MARCH are no hashes."""
    assert parse("0 0 * * THU", seed="a") is parse("0 0 * * THU", seed="b")
    assert parse("H 0 * * *", seed="a") == parse("H 0 * * *", seed="a")


REFUSALS = [
    ("61 * * * *", "minute", "61", "minute value 61 out of range 0-59", ""),
    ("* 24 * * *", "hour", "24", "hour value 24 out of range 0-23", ""),
    ("* * 0 * *", "day of month", "0", "out of range 1-31", ""),
    ("* * * 13 *", "month", "13", "out of range 1-12", ""),
    ("* * * * 8", "day of week", "8", "out of range 0-7", ""),
    ("* * * * * 1969", "year", "1969", "out of range 1970-2099", "six fields"),
    ("60 * * * * * *", "second", "60", "out of range 0-59", ""),
    ("999999999999 * * * *", "minute", "999999999999", "out of range", ""),
    ("*/0 * * * *", "minute", "*/0", "out of range 1-60", ""),
    ("*/90 * * * *", "minute", "*/90", "out of range 1-60", "anew in each hour"),
    ("* * * * */8", "day of week", "*/8", "out of range 1-7", "anew in each week"),
    ("0 /30 * * *", "hour", "/30", "nothing before its step", "write */30"),
    ("~ * * * *", "minute", "~", "not known", "H, or H(a-b)"),
    ("* 1~5 * * *", "hour", "1~5", "not known", "H, or H(a-b)"),
    ("*/ * * * *", "minute", "*/", "must be a number", ""),
    ("*/2/2 * * * *", "minute", "*/2/2", "must be a number", ""),
    ("5-2 * * * *", "minute", "5-2", "runs backwards", "5-59,0-2"),
    ("* * * * fri-tue", "day of week", "FRI-TUE", "runs backwards", ""),
    ("5- * * * *", "minute", "5-", "not a range", ""),
    ("٣ * * * *", "minute", "٣", "no schedule can have", ""),
    ("*\xa0* * * * *", "minute", "*\xa0*", "no schedule can have", ""),
    ("1,,2 * * * *", "minute", "1,,2", "empty place", ""),
    (", * * * *", "minute", ",", "empty place", ""),
    ("* * *", "schedule", "* * *", "has 3 fields", "a 6th is the year"),
    ("*", "schedule", "*", "has 1 field", ""),
    ("* * * * * * * *", "schedule", "* * * * * * * *", "has 8 fields", ""),
    ("  ", "schedule", "", "is empty", "five fields"),
    ("* * * * 5L", "day of week", "5L", "not known", "L5"),
    ("* * * * friL", "day of week", "FRIL", "not known", "LFRI"),
    ("* * * * L", "day of week", "L", "not known", "L5"),
    ("35 * 1-L/8 8 *", "day of month", "1-L/8", "not known", "no range and no step"),
    ("* * L/2 * *", "day of month", "L/2", "not known", "no step"),
    ("* * LW-3 * *", "day of month", "LW-3", "not known", "LW"),
    ("* * 32W * *", "day of month", "32W", "out of range 1-31", ""),
    ("* * L-31 * *", "day of month", "L-31", "out of range 1-30", ""),
    ("* * L-0 * *", "day of month", "L-0", "out of range 1-30", ""),
    ("* * * * 5#6", "day of week", "5#6", "out of range 1-5", ""),
    ("* * * * 1-5#2", "day of week", "1-5#2", "not known", ""),
    ("* * * * monday", "day of week", "MONDAY", "not known", "did you mean MON?"),
    ("* * * fbe *", "month", "FBE", "not known", "did you mean FEB?"),
    ("0 0 12 * * MON", "year", "MON", "not known", "seven fields"),
    ("0 0 12 * * ?", "year", "?", "not known", "seven fields"),
    ("? * * * *", "minute", "?", "not known", "day field"),
    ("* * 1,? * *", "day of month", "?", "not known", "alone"),
    ("* * * * * H", "year", "H", "cannot be used for the year", ""),
    ("H(1-3)/9 * * * *", "minute", "H(1-3)/9", "out of range 1-3", ""),
    ("H(70) * * * *", "minute", "H(70)", "needs a range", "H(a-b)"),
    ("H(0-70) * * * *", "minute", "H(0-70)", "out of range 0-59", ""),
    ("HH * * * *", "minute", "HH", "not known", "H(a-b)"),
    ("@dayly", "schedule", "@dayly", "not known", "did you mean @daily?"),
    ("@every 5m", "schedule", "@every 5m", "not known", "write */5 * * * *"),
    ("@Every 1h", "schedule", "@Every 1h", "not known", "write 0 * * * *"),
    ("@every 24h", "schedule", "@every 24h", "not known", "write 0 0 * * *"),
    ("@every_minute", "schedule", "@every_minute", "not known", "write * * * * *"),
    ("@every 30s", "schedule", "@every 30s", "not known", "write */30 * * * * * *"),
    ("@every 7m", "schedule", "@every 7m", "not known", "times of the clock"),
    ("@every 1h30m", "schedule", "@every 1h30m", "not known", "times of the clock"),
    (ScheduleFields(minute=""), "minute", "", "is empty", "*"),
    (ScheduleFields(hour="1 2"), "hour", "1 2", "has a space", ""),
    (ScheduleFields(day_of_week=" 1"), "day of week", " 1", "has a space", ""),
    (ScheduleFields(hour="@daily"), "hour", "@DAILY", "not known", ""),
]


@pytest.mark.parametrize(("spec", "field", "value", "message", "hint"), REFUSALS)
def test_refusals(spec: str | ScheduleFields, field: str, value: str, message: str, hint: str) -> None:
    """A refusal names the field and the value, and where it can, what to write instead."""
    with pytest.raises(ScheduleError) as caught:
        parse(spec, seed="job")
    assert (caught.value.field, caught.value.value) == (field, value)
    assert message in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_endless_text_is_refused() -> None:
    """Text no schedule needs is not worked on."""
    with pytest.raises(ScheduleError, match="longer than"):
        parse("1," * 5000 + "1 * * * *", seed="job")


TOKENS = st.text(alphabet="0123456789*/-,LW#?H()@ \tmonfriJAN٣\xa0é\ud800", max_size=24)


@given(st.one_of(TOKENS, st.text(max_size=30), st.lists(TOKENS, min_size=5, max_size=7).map(" ".join)))
@settings(max_examples=600, deadline=None)
def test_any_text_is_read_or_refused(text: str) -> None:
    """Whatever the text, the answer is a schedule or a `ScheduleError`."""
    try:
        parse(text, seed="job")
    except ScheduleError as refusal:
        assert str(refusal)


@given(st.lists(st.text(alphabet="0123456789*/-,LWH", min_size=1, max_size=6), min_size=5, max_size=5))
@settings(max_examples=300, deadline=None)
def test_the_resolved_form_says_the_same(tokens: list[str]) -> None:
    """The resolved form can be read again and means what the text meant."""
    try:
        first = expression(" ".join(tokens))
    except ScheduleError:
        return
    again = expression(first.resolved)
    masks = [field.mask for _, field in first.fields()]
    assert [field.mask for _, field in again.fields()] == masks


DIFFERS = [
    ("0 0 13 * FRI", True),
    ("48 14 31 6 0", True),
    ("0 0 1-31 * FRI", True),
    ("0 0 * * FRI", False),
    ("0 0 */2 * FRI", False),
    ("0 0 13 * */2", False),
    ("0 0 13 * *", False),
    ("0 0 1-31 * 0-6", False),
]


@pytest.mark.parametrize(("text", "differs"), DIFFERS)
def test_day_rules_differ(text: str, differs: bool) -> None:
    """The two day rules differ only when neither day field begins with `*` and some day shows it."""
    assert day_rules_differ(expression(text)) is differs

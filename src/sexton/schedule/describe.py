"""Schedules in plain English: what one field means, and a whole schedule in a line."""

from __future__ import annotations

from typing import assert_never

from sexton.model.job import DayRule
from sexton.schedule.expression import CronExpression, Reboot
from sexton.schedule.fields import (
    DOMAINS,
    FIRST_YEAR,
    DayField,
    Field,
    Part,
    WeekdayField,
)

_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_MOST_TIMES = 6
"""Times of day are listed up to here; more of them are told as minutes and hours."""


def join(words: list[str], last: str = "and") -> str:
    """`a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def values(mask: int) -> list[int]:
    """The set bits of a mask, in order."""
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def _is_full(part: Part, mask: int) -> bool:
    low, high = DOMAINS[part]
    return mask.bit_count() == high - low + 1


def _label(part: Part, value: int) -> str:
    match part:
        case Part.WEEKDAY:
            return _WEEKDAYS[value]
        case Part.MONTH:
            return _MONTHS[value - 1]
        case Part.YEAR:
            return str(value + FIRST_YEAR)
        case Part.SECOND | Part.MINUTE | Part.HOUR | Part.DAY:
            return str(value)
        case _:
            assert_never(part)


def _listed(part: Part, mask: int) -> str:
    """The values of a mask, with three or more in a row as a range."""
    words: list[str] = []
    run: list[int] = []
    for value in [*values(mask), None]:
        if value is not None and (not run or value == run[-1] + 1):
            run.append(value)
            continue
        if len(run) > 2:
            words.append(f"{_label(part, run[0])} to {_label(part, run[-1])}")
        else:
            words += [_label(part, each) for each in run]
        run = [] if value is None else [value]
    return join(words)


def _even_step(part: Part, mask: int) -> int | None:
    """The step of a mask such as `*/5` that starts at the lowest value and runs to the end."""
    found = values(mask)
    low, high = DOMAINS[part]
    if len(found) < 3 or part is Part.YEAR:
        return None
    step = found[1] - found[0]
    return step if step > 1 and found == list(range(low, high + 1, step)) else None


def field_meaning(part: Part, field: Field) -> str:
    """What a field allows, such as `every 5 minutes` or `the last Friday`."""
    if isinstance(field, DayField):
        return _day_meaning(field)
    if isinstance(field, WeekdayField):
        return _weekday_meaning(field)
    if _is_full(part, field.mask):
        return f"every {part.value}"
    step = _even_step(part, field.mask)
    if step is not None:
        low, high = DOMAINS[part]
        even = part in (Part.SECOND, Part.MINUTE, Part.HOUR) and (high - low + 1) % step == 0
        return f"every {step} {part.value}s" + ("" if even else f" from {_label(part, low)}")
    if part is Part.MONTH:
        return _listed(part, field.mask)
    plural = "s" if field.mask.bit_count() > 1 else ""
    return f"{part.value}{plural} {_listed(part, field.mask)}"


def _day_meaning(field: DayField) -> str:
    if _is_full(Part.DAY, field.mask):
        return "every day"
    words = []
    if field.mask:
        plural = "s" if field.mask.bit_count() > 1 else ""
        words.append(f"day{plural} {_listed(Part.DAY, field.mask)}")
    words += [f"the weekday nearest to day {day}" for day in values(field.nearest)]
    for before in values(field.from_end):
        words.append("the last day" if before == 0 else f"the day {before} before the last day")
    if field.last_weekday:
        words.append("the last weekday (Monday to Friday)")
    return join(words) + " of the month"


def _weekday_meaning(field: WeekdayField) -> str:
    if _is_full(Part.WEEKDAY, field.mask):
        return "every day of the week"
    words = [_listed(Part.WEEKDAY, field.mask)] if field.mask else []
    special = [f"the last {_WEEKDAYS[day]}" for day in values(field.last)]
    for ordinal, mask in zip(_ORDINALS, field.nth, strict=True):
        special += [f"the {ordinal} {_WEEKDAYS[day]}" for day in values(mask)]
    if special:
        words.append(join(special) + " of the month")
    return join(words)


def describe(schedule: CronExpression | Reboot, day_rule: DayRule = DayRule.OR) -> str:
    """A schedule in one line of English, such as `at 02:30, on Monday to Friday`."""
    if isinstance(schedule, Reboot):
        return "once when the daemon starts"
    parts = [_times(schedule), *_days(schedule, day_rule)]
    if not _is_full(Part.MONTH, schedule.month.mask):
        parts.append("in " + field_meaning(Part.MONTH, schedule.month))
    if not _is_full(Part.YEAR, schedule.year.mask):
        parts.append("in " + _listed(Part.YEAR, schedule.year.mask))
    return ", ".join(parts)


def _times(schedule: CronExpression) -> str:
    seconds, minutes, hours = (values(f.mask) for f in (schedule.second, schedule.minute, schedule.hour))
    if len(seconds) * len(minutes) * len(hours) <= _MOST_TIMES:
        every = [
            f"{h:02}:{m:02}" + (f":{s:02}" if seconds != [0] else "")
            for h in hours
            for m in minutes
            for s in seconds
        ]
        return "at " + join(every)
    words = []
    if seconds != [0]:
        words.append(field_meaning(Part.SECOND, schedule.second))
    if not (words and _is_full(Part.MINUTE, schedule.minute.mask)):
        words.append(field_meaning(Part.MINUTE, schedule.minute))
    if not (_is_full(Part.HOUR, schedule.hour.mask) and words[-1].startswith("every")):
        words.append(field_meaning(Part.HOUR, schedule.hour))
    text = " of ".join(words)
    return text if text.startswith("every") else f"at {text}"


def _days(schedule: CronExpression, day_rule: DayRule) -> list[str]:
    any_day = _is_full(Part.DAY, schedule.day.mask)
    any_weekday = _is_full(Part.WEEKDAY, schedule.weekday.mask)
    by_day = "on " + _day_meaning(schedule.day)
    by_week = _weekday_meaning(schedule.weekday)
    both = day_rule is DayRule.AND or schedule.day.star or schedule.weekday.star
    if not both:
        return ["every day"] if any_day or any_weekday else [f"{by_day} or on {by_week}"]
    if any_day and any_weekday:
        return [] if _often(schedule) else ["every day"]
    if any_day:
        return [f"on {by_week}"]
    return [by_day] if any_weekday else [f"{by_day}, only if that is {by_week}"]


def _often(schedule: CronExpression) -> bool:
    """True for a rhythm that needs no `every day` after it."""
    return _is_full(Part.HOUR, schedule.hour.mask)

"""Which days of a month match: the calendar half of a schedule.

The days depend on no more than the month's length and the weekday it begins with, so that the 28 possible
layouts are all that ever has to be worked out for an expression.
"""

from __future__ import annotations

from datetime import date

from sexton.model.job import DayRule
from sexton.schedule.fields import FIRST_YEAR, LAST_YEAR, DayField, WeekdayField

EPOCH_ORDINAL = date(1970, 1, 1).toordinal()

MONTH_STARTS: tuple[int, ...] = tuple(
    date(year, month, 1).toordinal() - EPOCH_ORDINAL
    for year in range(FIRST_YEAR, LAST_YEAR + 2)
    for month in range(1, 13)
    if year <= LAST_YEAR or month == 1
)
"""Days since 1970-01-01 of the first day of each month; the last entry closes the last month."""

MONTH_COUNT = len(MONTH_STARTS) - 1

_SATURDAY, _SUNDAY = 6, 0


def layout(index: int) -> tuple[int, int]:
    """The weekday (Sunday is 0) of the first of the month that stands at `index`, and the month's length."""
    start = MONTH_STARTS[index]
    # 1970-01-01 was a Thursday.
    return (start + 4) % 7, MONTH_STARTS[index + 1] - start


def days_of_month(field: DayField, first: int, length: int) -> int:
    """The days that the day-of-month field allows; bit n is day n."""
    every = (1 << (length + 1)) - 2
    mask = field.mask & every
    if field.from_end:
        for day in range(1, length + 1):
            if field.from_end >> (length - day) & 1:
                mask |= 1 << day
    if field.nearest:
        for day in range(1, length + 1):
            if field.nearest >> day & 1:
                mask |= 1 << _nearest_weekday(day, first, length)
    if field.last_weekday:
        mask |= 1 << _nearest_weekday(length, first, length)
    return mask


def _nearest_weekday(day: int, first: int, length: int) -> int:
    """The Monday-to-Friday closest to `day` that does not leave the month."""
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def days_of_week(field: WeekdayField, first: int, length: int) -> int:
    """The days that the day-of-week field allows; bit n is day n."""
    mask = 0
    for weekday in range(7):
        bit = 1 << weekday
        days = range(1 + (weekday - first) % 7, length + 1, 7)
        if field.mask & bit:
            for day in days:
                mask |= 1 << day
            continue
        if field.last & bit:
            mask |= 1 << days[-1]
        for day, allowed in zip(days, field.nth, strict=False):
            if allowed & bit:
                mask |= 1 << day
    return mask


def days_mask(day: DayField, weekday: WeekdayField, rule: DayRule, first: int, length: int) -> int:
    """The days on which the two fields together allow a run.

    Under `DayRule.OR` either may match, unless one of them begins with `*`: then both must, as in Debian's
    cron. Under `DayRule.AND` both must in any case.
    """
    by_day = days_of_month(day, first, length)
    by_week = days_of_week(weekday, first, length)
    if rule is DayRule.OR and not day.star and not weekday.star:
        return by_day | by_week
    return by_day & by_week

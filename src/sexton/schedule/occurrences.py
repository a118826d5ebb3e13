"""When a schedule fires: the next instant, the one before, all in a span.

Two rules for a change of the clocks, chosen by `CronExpression.wildcard`:

- an interval schedule fires whenever the wall clock matches: in a repeated hour twice, in a missing one not;
- a schedule of fixed times fires once for each time of day. A time that is left out fires at the first
  instant after the gap (once, however many times were in it); a time that comes twice, the first time only.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from sexton.model.job import DayRule
from sexton.schedule.days import MONTH_COUNT, MONTH_STARTS, days_mask, layout
from sexton.schedule.expression import CronExpression
from sexton.schedule.fields import FIRST_YEAR, LAST_YEAR
from sexton.schedule.zones import DAY, EPOCH, Piece, zone_of

_END_OF_TIME = MONTH_STARTS[-1] * DAY
_NEVER = _END_OF_TIME + 30 * DAY
_BEFORE_TIME = -30 * DAY
# Zones differ from UTC by less than 15 hours and no change is longer than a day.
_MARGIN = 3 * DAY


def to_seconds(instant: datetime) -> int:
    """Whole seconds since 1970 of an aware datetime, rounded down."""
    elapsed = instant - EPOCH
    return elapsed.days * DAY + elapsed.seconds


def to_instant(seconds: int) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def _low(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _high(mask: int) -> int:
    return mask.bit_length() - 1


class Occurrences:
    """A schedule in a zone under a day rule. Instants are UTC with whole seconds.

    Get one with `occurrences_of`, which shares it between all jobs that have the same schedule.
    """

    __slots__ = (
        "_clock", "_days", "_first", "_hours", "_last", "_memo", "_minutes", "_months", "_seconds",
        "_wildcard", "day_rule", "expression", "zone",
    )  # fmt: skip

    def __init__(
        self, expression: CronExpression, zone: tzinfo = UTC, day_rule: DayRule = DayRule.OR
    ) -> None:
        self.expression = expression
        self.zone = zone
        self.day_rule = day_rule
        self._clock = zone_of(zone)
        self._wildcard = expression.wildcard
        self._seconds = expression.second.mask
        self._minutes = expression.minute.mask
        self._hours = expression.hour.mask
        self._months = _months_mask(expression.month.mask, expression.year.mask)
        self._first = _low(self._hours) * 3600 + _low(self._minutes) * 60 + _low(self._seconds)
        self._last = _high(self._hours) * 3600 + _high(self._minutes) * 60 + _high(self._seconds)
        self._days: dict[tuple[int, int], int] = {}
        # The last question: jobs that share a schedule ask the same one in the same pass.
        self._memo: tuple[int, int | None] = (_NEVER, None)

    def __repr__(self) -> str:
        return f"Occurrences({self.expression.text!r}, {self.zone}, {self.day_rule.value})"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Occurrences):
            return NotImplemented
        mine = (self.day_rule, self.zone, self.expression)
        return mine == (other.day_rule, other.zone, other.expression)

    def __hash__(self) -> int:
        return hash((self.day_rule, self.zone, self.expression))

    def next_after(self, after: datetime) -> datetime | None:
        """The first fire strictly after `after` (aware); None when there is none before 2100."""
        found = self.next_second(to_seconds(after))
        return None if found is None else to_instant(found)

    def following(self, after: datetime, count: int) -> list[datetime]:
        """The next `count` fires strictly after `after` (aware); fewer when there are no more."""
        fires: list[datetime] = []
        while len(fires) < count and (found := self.next_after(fires[-1] if fires else after)) is not None:
            fires.append(found)
        return fires

    def previous(self, before: datetime) -> datetime | None:
        """The last fire strictly before `before` (aware); None when there is none since 1970."""
        second = to_seconds(before)
        found = self.previous_second(second if before.microsecond == 0 else second + 1)
        return None if found is None else to_instant(found)

    def seconds_between(self, after: int, until: int) -> Iterator[int]:
        """The fires in (after, until], one after the other, as seconds since 1970."""
        found = self.next_second(after)
        while found is not None and found <= until:
            yield found
            found = self.next_second(found)

    def fires_at(self, instant: datetime) -> bool:
        second = to_seconds(instant)
        return instant.microsecond == 0 and self.next_second(second - 1) == second

    def never_fires(self, now: datetime) -> bool:
        """True when no fire is left after `now`."""
        return self.next_second(to_seconds(now)) is None

    def next_second(self, after: int) -> int | None:
        """`next_after` in seconds since 1970."""
        asked, answer = self._memo
        if asked != after:
            answer = self._search_forward(after)
            self._memo = (after, answer)
        return answer

    def _search_forward(self, after: int) -> int | None:
        at = max(after + 1, -_MARGIN)
        while at < _END_OF_TIME + _MARGIN:
            piece = self._clock.at(at)
            low = self._from_wall(piece, at)
            label = self._label_from(low)
            found = max(label - piece.offset, piece.start)
            if label < _NEVER and found < piece.end:
                return found
            at = piece.end
            following = self._clock.at(at)
            if following.start + following.offset >= low:
                # Nothing before `label` in any later piece either: go where it is.
                at = max(at, label - _MARGIN)
        return None

    def _from_wall(self, piece: Piece, at: int) -> int:
        """The first wall clock time that may fire at `at` or later in this piece."""
        if self._wildcard:
            return at + piece.offset
        return piece.seen if at == piece.start else max(at + piece.offset, piece.seen)

    def previous_second(self, before: int) -> int | None:
        """`previous` in seconds since 1970."""
        at = min(before - 1, _END_OF_TIME + _MARGIN)
        while at > -_MARGIN:
            piece = self._clock.at(at)
            high = at + piece.offset
            label = self._label_until(high)
            floor = piece.start + piece.offset if self._wildcard else piece.seen
            if label > _BEFORE_TIME and label >= floor:
                return max(label - piece.offset, piece.start)
            at = piece.start - 1
            earlier = self._clock.at(at)
            if at + earlier.offset <= high:
                at = min(at, label + _MARGIN)
        return None

    def _days_at(self, index: int) -> int:
        """The matching days of a month, bit n is day n."""
        shape = layout(index)
        mask = self._days.get(shape)
        if mask is None:
            expression = self.expression
            mask = days_mask(expression.day, expression.weekday, self.day_rule, *shape)
            self._days[shape] = mask
        return mask

    def _label_from(self, wall: int) -> int:
        """The first wall clock time at or after `wall` that matches all fields, or `_NEVER`."""
        wall = max(wall, 0)
        if wall >= _END_OF_TIME:
            return _NEVER
        day, second = divmod(wall, DAY)
        index = _month_index(day)
        if self._months >> index & 1:
            start = MONTH_STARTS[index] - 1
            days = self._days_at(index) >> (day - start)
            if days & 1:
                found = self._time_from(second)
                if found >= 0:
                    return day * DAY + found
            days &= ~1
            if days:
                return (day + _low(days)) * DAY + self._first
        later = self._months >> (index + 1)
        while later:
            step = _low(later)
            index += step + 1
            later >>= step + 1
            days = self._days_at(index)
            if days:
                return (MONTH_STARTS[index] - 1 + _low(days)) * DAY + self._first
        return _NEVER

    def _label_until(self, wall: int) -> int:
        """The last wall clock time at or before `wall` that matches all fields, or `_BEFORE_TIME`."""
        wall = min(wall, _END_OF_TIME - 1)
        if wall < 0:
            return _BEFORE_TIME
        day, second = divmod(wall, DAY)
        index = _month_index(day)
        if self._months >> index & 1:
            start = MONTH_STARTS[index] - 1
            days = self._days_at(index)
            if days >> (day - start) & 1:
                found = self._time_until(second)
                if found >= 0:
                    return day * DAY + found
            days &= (1 << (day - start)) - 1
            if days:
                return (start + _high(days)) * DAY + self._last
        earlier = self._months & ((1 << index) - 1)
        while earlier:
            index = _high(earlier)
            earlier ^= 1 << index
            days = self._days_at(index)
            if days:
                return (MONTH_STARTS[index] - 1 + _high(days)) * DAY + self._last
        return _BEFORE_TIME

    def _time_from(self, second_of_day: int) -> int:
        """The first matching second of the day at or after this one, or -1."""
        hour, rest = divmod(second_of_day, 3600)
        minute, second = divmod(rest, 60)
        if self._hours >> hour & 1:
            if self._minutes >> minute & 1:
                seconds = self._seconds >> second
                if seconds:
                    return second_of_day + _low(seconds)
            minutes = self._minutes >> (minute + 1)
            if minutes:
                return hour * 3600 + (minute + 1 + _low(minutes)) * 60 + _low(self._seconds)
        hours = self._hours >> (hour + 1)
        if hours:
            return (hour + 1 + _low(hours)) * 3600 + _low(self._minutes) * 60 + _low(self._seconds)
        return -1

    def _time_until(self, second_of_day: int) -> int:
        """The last matching second of the day at or before this one, or -1."""
        hour, rest = divmod(second_of_day, 3600)
        minute, second = divmod(rest, 60)
        if self._hours >> hour & 1:
            if self._minutes >> minute & 1:
                seconds = self._seconds & ((2 << second) - 1)
                if seconds:
                    return hour * 3600 + minute * 60 + _high(seconds)
            minutes = self._minutes & ((1 << minute) - 1)
            if minutes:
                return hour * 3600 + _high(minutes) * 60 + _high(self._seconds)
        hours = self._hours & ((1 << hour) - 1)
        if hours:
            return _high(hours) * 3600 + _high(self._minutes) * 60 + _high(self._seconds)
        return -1


@lru_cache(maxsize=16384)
def occurrences_of(
    expression: CronExpression, zone: tzinfo = UTC, day_rule: DayRule = DayRule.OR
) -> Occurrences:
    """The shared `Occurrences` of a schedule: jobs that have the same one cost one computation."""
    return Occurrences(expression, zone, day_rule)


@lru_cache(maxsize=1024)
def _months_mask(months: int, years: int) -> int:
    """Which of the months from January 1970 on can match; bit 0 is that one."""
    mask = 0
    for year in range(LAST_YEAR - FIRST_YEAR + 1):
        if years >> year & 1:
            mask |= months >> 1 << (12 * year)
    return mask & ((1 << MONTH_COUNT) - 1)


def _month_index(day: int) -> int:
    """Which month of `MONTH_STARTS` a day since 1970 lies in."""
    # A month is 30.44 days on average, and the guess is never off by more than one.
    index = min(day * 100 // 3044, MONTH_COUNT - 1)
    if MONTH_STARTS[index] > day:
        return index - 1
    if MONTH_STARTS[index + 1] <= day:
        return index + 1
    return index

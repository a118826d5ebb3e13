"""Why a schedule does or does not fire at an instant, field by field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from sexton.model.job import DayRule
from sexton.schedule.days import MONTH_COUNT, days_of_month, days_of_week, layout
from sexton.schedule.describe import describe, field_meaning
from sexton.schedule.expression import CronExpression, day_rules_differ
from sexton.schedule.fields import FIRST_YEAR, DayField, Field, Part, WeekdayField
from sexton.schedule.occurrences import occurrences_of, to_seconds
from sexton.schedule.zones import DAY, Piece, zone_of


class FieldVerdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One field held against the local time."""

    field: str
    text: str
    resolved: str
    """The text with every `H` replaced by its value."""
    meaning: str
    value: int
    """What the local time has there; Sunday is 0."""
    matches: bool


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that decides about one instant."""

    schedule: str
    description: str
    timezone: str
    day_rule: DayRule
    at: datetime
    """The second that was asked about, UTC."""
    local: datetime
    """The same in the schedule's zone."""
    fields: tuple[FieldVerdict, ...]
    matches: bool
    """Every field matches the local time, the two day fields by the day rule."""
    fires: bool
    """The schedule fires at this instant. Differs from `matches` only where the clocks change."""
    notes: tuple[str, ...]
    """What else mattered: how the day fields combine, and what a change of the clocks did."""
    previous: datetime | None
    """The last fire before `at`, UTC."""
    next: datetime | None
    """The first fire after `at`, UTC."""


def explain(expression: CronExpression, zone: tzinfo, day_rule: DayRule, at: datetime) -> Explanation:
    """Hold a schedule against the second that `at` (aware) lies in."""
    at = at.astimezone(UTC).replace(microsecond=0)
    local = at.astimezone(zone)
    occurrences = occurrences_of(expression, zone, day_rule)
    fields = tuple(_verdict(part, field, local) for part, field in expression.fields())
    matches = _all_match(expression, day_rule, fields)
    fires = occurrences.fires_at(at)
    notes = [*_day_notes(expression, day_rule), *_clock_notes(expression, zone, at, matches, fires)]
    return Explanation(
        schedule=expression.text,
        description=describe(expression, day_rule),
        timezone=str(zone),
        day_rule=day_rule,
        at=at,
        local=local,
        fields=fields,
        matches=matches,
        fires=fires,
        notes=tuple(notes),
        previous=occurrences.previous(at),
        next=occurrences.next_after(at),
    )


def _verdict(part: Part, field: Field, local: datetime) -> FieldVerdict:
    value = _value(part, local)
    return FieldVerdict(
        field=part.value,
        text=field.text,
        resolved=field.resolved,
        meaning=field_meaning(part, field),
        value=value,
        matches=_field_matches(part, field, local, value),
    )


def _value(part: Part, local: datetime) -> int:
    match part:
        case Part.SECOND:
            return local.second
        case Part.MINUTE:
            return local.minute
        case Part.HOUR:
            return local.hour
        case Part.DAY:
            return local.day
        case Part.MONTH:
            return local.month
        case Part.WEEKDAY:
            return local.isoweekday() % 7
        case Part.YEAR:
            return local.year


def _field_matches(part: Part, field: Field, local: datetime, value: int) -> bool:
    index = (local.year - FIRST_YEAR) * 12 + local.month - 1
    if not 0 <= index < MONTH_COUNT:
        return False
    if isinstance(field, DayField):
        return bool(days_of_month(field, *layout(index)) >> local.day & 1)
    if isinstance(field, WeekdayField):
        return bool(days_of_week(field, *layout(index)) >> local.day & 1)
    return bool(field.mask >> (value - FIRST_YEAR if part is Part.YEAR else value) & 1)


def _all_match(expression: CronExpression, rule: DayRule, fields: tuple[FieldVerdict, ...]) -> bool:
    found = {each.field: each.matches for each in fields}
    by_day, by_week = found.pop(Part.DAY.value), found.pop(Part.WEEKDAY.value)
    either = _either_day(expression, rule)
    return all(found.values()) and (by_day or by_week if either else by_day and by_week)


def _either_day(expression: CronExpression, rule: DayRule) -> bool:
    return rule is DayRule.OR and not expression.day.star and not expression.weekday.star


def _day_notes(expression: CronExpression, rule: DayRule) -> list[str]:
    if day_rules_differ(expression):
        if rule is DayRule.OR:
            return ["Both day fields are restricted: a day that matches either of them counts."]
        return ["Both day fields are restricted: only a day that matches both of them counts."]
    return []


def _clock_notes(
    expression: CronExpression, zone: tzinfo, at: datetime, matches: bool, fires: bool
) -> list[str]:
    """What a change of the clocks close to `at` did to it."""
    second = to_seconds(at)
    clock = zone_of(zone)
    piece = clock.at(second)
    missing = piece.start + piece.offset - piece.seen
    if missing > 0 and second - piece.start < DAY:
        return [_gap_note(expression, piece, missing, second, fires)]
    if second + piece.offset < piece.seen:
        if expression.wildcard:
            return ["This is the second pass of a repeated hour; an interval schedule fires in both."]
        if matches:
            return ["This is the second pass of a repeated hour; fixed times fire in the first one only."]
        return ["This is the second pass of a repeated hour."]
    if clock.at(piece.end).offset < piece.offset and piece.end - second <= DAY:
        return [f"The clocks go back at {_wall(piece.end, piece.offset)} local time."]
    return []


def _gap_note(expression: CronExpression, piece: Piece, missing: int, second: int, fires: bool) -> str:
    gap = (
        f"The clocks went forward from {_wall(piece.start, piece.offset - missing)}"
        f" to {_wall(piece.start, piece.offset)} local time."
    )
    if expression.wildcard:
        return f"{gap} An interval schedule does not fire for the times left out."
    if fires and second == piece.start:
        return f"{gap} The times left out fire here, once."
    return f"{gap} Fixed times that were left out fired once, at that instant."


def _wall(second: int, offset: int) -> str:
    local = datetime(1970, 1, 1) + timedelta(seconds=second + offset)
    return local.strftime("%Y-%m-%d %H:%M:%S")

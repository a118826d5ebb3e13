"""A schedule as a checked value: `parse` turns text into masks or says what is wrong with it."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from sexton.model.errors import ScheduleError
from sexton.model.job import DayRule, ScheduleFields
from sexton.schedule.days import MONTH_COUNT, days_mask, layout
from sexton.schedule.fields import (
    DayField,
    Field,
    Part,
    WeekdayField,
    read_day,
    read_field,
    read_weekday,
    refuse,
)

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
REBOOT = "@reboot"
LONGEST_TEXT = 1000
"""Characters; nothing sensible is longer, and work on hostile text stays small."""

_EVERY = re.compile(r"@every(?:_|\s+)([1-9][0-9]{0,5})?(s|m|h|second|minute|hour)s?")
_SPACE = re.compile(r"[ \t\r\n\f\v]+")
# An H of its own, not the one in THU or MARCH: only then does the result depend on the seed.
_HASHED = re.compile(r"(?<![A-Za-z])[Hh](?![A-Za-z])")


class Reboot(msgspec.Struct, frozen=True):
    """`@reboot`: once when the daemon starts, at no instant of the clock."""

    text: str = REBOOT


class CronExpression(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that was accepted: seven fields of bit masks, independent of zone and day rule."""

    text: str
    """As it was written; a map is shown as its seven values."""
    second: Field
    minute: Field
    hour: Field
    day: DayField
    month: Field
    weekday: WeekdayField
    year: Field

    @property
    def wildcard(self) -> bool:
        """True for an interval schedule: its hour or its minute begins with `*`.

        Such a schedule keeps its rhythm in elapsed time when the clocks change; any other names times of the
        day, each of which comes once a day. The second does not matter to this.
        """
        return self.minute.star or self.hour.star

    @property
    def sub_minute(self) -> bool:
        """True when more than one second of a minute can match."""
        return self.second.mask & (self.second.mask - 1) != 0

    @property
    def resolved(self) -> str:
        """The shortest form that says the same, with every `H` replaced by its value."""
        fields = [f.resolved for f in (self.minute, self.hour, self.day, self.month, self.weekday)]
        if self.second.mask != 1:
            return " ".join([self.second.resolved, *fields, self.year.resolved])
        if self.year.resolved != "*":
            fields.append(self.year.resolved)
        return " ".join(fields)

    def fields(self) -> tuple[tuple[Part, Field], ...]:
        """The seven fields in the order of the long form."""
        return (
            (Part.SECOND, self.second),
            (Part.MINUTE, self.minute),
            (Part.HOUR, self.hour),
            (Part.DAY, self.day),
            (Part.MONTH, self.month),
            (Part.WEEKDAY, self.weekday),
            (Part.YEAR, self.year),
        )


def parse(spec: str | ScheduleFields, *, seed: str) -> CronExpression | Reboot:
    """Read a schedule. `seed` (the job's name) decides what `H` stands for and nothing else.

    Raises `ScheduleError`, and no other exception, whatever the text.
    """
    if isinstance(spec, ScheduleFields):
        tokens = _tokens_of_map(spec)
        hashed = any(map(_HASHED.search, tokens))
        return _read(tokens, " ".join(tokens), seed if hashed else "")
    if len(spec) > LONGEST_TEXT:
        raise ScheduleError(f"schedule is longer than {LONGEST_TEXT} characters", value=spec[:40])
    return _parse_text(spec, seed if _HASHED.search(spec) else "")


@lru_cache(maxsize=16384)
def _parse_text(text: str, seed: str) -> CronExpression | Reboot:
    stripped = text.strip(" \t\r\n\f\v")
    if stripped.startswith("@"):
        name = stripped.lower()
        if name == REBOOT:
            return Reboot()
        if name not in MACROS:
            _refuse_macro(stripped)
        return _read(_tokens_of_text(MACROS[name]), stripped, seed)
    return _read(_tokens_of_text(stripped), stripped, seed)


def _refuse_macro(text: str) -> None:
    known = [*MACROS, REBOOT]
    hint = _every(text.lower())
    if hint is None:
        from difflib import get_close_matches  # only for who mistypes

        near = get_close_matches(text.lower()[:20], known, n=1)
        hint = f"did you mean {near[0]}?" if near else "known are " + ", ".join(known)
    raise ScheduleError(f"schedule {text!r} is not known", value=text, hint=hint)


def _every(text: str) -> str | None:
    """What `@every 5m` and its like, which other schedulers know, are called here; None for anything else."""
    if not text.startswith("@every"):
        return None
    found = _EVERY.fullmatch(text)
    count, unit = (int(found[1] or 1), found[2][0]) if found else (0, "")
    # A step that does not divide its field evenly would not be that span.
    for name, size, fields in (("s", 60, "{} * * * * * *"), ("m", 60, "{} * * * *"), ("h", 24, "0 {} * * *")):
        if unit == name and count and size % count == 0:
            return "write " + fields.format("*" if count == 1 else f"*/{count}" if count < size else "0")
    return "a schedule names times of the clock: */5 * * * * is every five minutes, 0 */2 * * * every two hours"


def _tokens_of_text(text: str) -> tuple[str, ...]:
    """Seven tokens in the order of the long form, from five, six or seven."""
    tokens = tuple(_SPACE.split(text)) if text else ()
    match len(tokens):
        case 5:
            return ("0", *tokens, "*")
        case 6:
            return ("0", *tokens)
        case 7:
            return tokens
        case 0:
            raise ScheduleError("schedule is empty", hint="five fields: minute hour day month weekday")
        case found:
            raise ScheduleError(
                f"schedule has {found} field{'s' if found > 1 else ''}",
                value=text,
                hint="5 fields are minute hour day month weekday; a 6th is the year; 7 begin with the second",
            )


def _tokens_of_map(fields: ScheduleFields) -> tuple[str, ...]:
    tokens = fields.tokens()
    for part, token in zip(Part, tokens, strict=True):
        # A blank or a space would shift every field after it by one.
        if not token or token.isspace():
            refuse(part, token, f"{part.value} is empty", "write * for any")
        if token.split() != [token]:
            refuse(part, token, f"{part.value} value {token!r} has a space in it")
        if len(token) > LONGEST_TEXT:
            refuse(part, token[:40], f"{part.value} is longer than {LONGEST_TEXT} characters")
    return tokens


@lru_cache(maxsize=16384)
def _read(tokens: tuple[str, ...], text: str, seed: str) -> CronExpression:
    second, minute, hour, day, month, weekday, year = tokens
    return CronExpression(
        text=text,
        second=read_field(Part.SECOND, second, seed),
        minute=read_field(Part.MINUTE, minute, seed),
        hour=read_field(Part.HOUR, hour, seed),
        day=read_day(day, seed),
        month=read_field(Part.MONTH, month, seed),
        weekday=read_weekday(weekday, seed),
        year=read_field(Part.YEAR, year, seed),
    )


@lru_cache(maxsize=1024)
def day_rules_differ(expression: CronExpression) -> bool:
    """True when some month has a day on which the two day rules disagree, so that the choice matters."""
    if expression.day.star or expression.weekday.star:
        return False
    seen = set()
    for index in range(MONTH_COUNT):
        if expression.year.mask >> index // 12 & 1 and expression.month.mask >> index % 12 + 1 & 1:
            seen.add(layout(index))
    return any(
        days_mask(expression.day, expression.weekday, DayRule.OR, *each)
        != days_mask(expression.day, expression.weekday, DayRule.AND, *each)
        for each in seen
    )

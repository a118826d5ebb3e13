"""The language of one cron field: text in, bit masks out.

A bit mask answers "which value comes next" with two machine operations, and costs the same for `*` and for a
list. Bit n stands for the value n, except for years, where bit 0 is 1970.
"""

from __future__ import annotations

import re
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple, NoReturn

import msgspec

from sexton.model.errors import ScheduleError

FIRST_YEAR = 1970
LAST_YEAR = 2099


class Part(Enum):
    """The parts of a schedule, in the order of the long form."""

    SECOND = "second"
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day of month"
    MONTH = "month"
    WEEKDAY = "day of week"
    YEAR = "year"


class Domain(NamedTuple):
    low: int
    high: int


DOMAINS = {
    Part.SECOND: Domain(0, 59),
    Part.MINUTE: Domain(0, 59),
    Part.HOUR: Domain(0, 23),
    Part.DAY: Domain(1, 31),
    Part.MONTH: Domain(1, 12),
    Part.WEEKDAY: Domain(0, 6),
    Part.YEAR: Domain(FIRST_YEAR, LAST_YEAR),
}
# A plain H stays within the days that every month has.
HASHED = {**DOMAINS, Part.DAY: Domain(1, 28)}

# Cron takes */90 for "once an hour", which is never what was meant.
_STEPS = {
    part: f"steps begin anew in each {within}"
    for part, within in zip(Part, ("minute", "hour", "day", "month", "year", "week"), strict=False)
}

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
NAMES: dict[Part, dict[str, int]] = {
    Part.MONTH: {name: number for number, name in enumerate(MONTHS, 1)},
    Part.WEEKDAY: {name: number for number, name in enumerate(WEEKDAYS)},
}

_HASH = re.compile(r"H(?:\(([^()/]+)\))?(?:/([^/]*))?")
_FROM_END = re.compile(r"L-([0-9]+)")
_NEAREST = re.compile(r"([0-9]+)W")
_NTH = re.compile(r"([^#]*)#([^#]*)")


class Field(msgspec.Struct, frozen=True):
    """A field whose values are plain numbers."""

    text: str
    resolved: str
    """The text with every `H` replaced by the value it stands for."""
    mask: int

    @property
    def star(self) -> bool:
        """True when the field begins with `*`, which cron takes as "not restricted" whatever follows."""
        return self.text.startswith(("*", "?"))


class DayField(Field, frozen=True):
    """Day of month: plain days and those that depend on the month."""

    from_end: int = 0
    """Bit 0 is the last day (`L`), bit n the day n before it (`L-n`)."""
    nearest: int = 0
    """Bit n: the weekday nearest to day n (`nW`)."""
    last_weekday: bool = False
    """`LW`: the last day of the month that is Monday to Friday."""


class WeekdayField(Field, frozen=True):
    """Day of week, Sunday is bit 0."""

    last: int = 0
    """`L5`: bit n, the last such weekday of the month."""
    nth: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    """`5#3`: one mask of weekdays for each of the first to fifth time."""


def refuse(part: Part, value: str, message: str, hint: str | None = None) -> NoReturn:
    raise ScheduleError(message, field=part.value, value=value, hint=hint)


def read_field(part: Part, text: str, seed: str) -> Field:
    """Read second, minute, hour, month or year. Raises `ScheduleError`."""
    mask = 0
    resolved = []
    for item in _items(part, text):
        plain = _settle_hash(part, item, seed)
        resolved.append(plain)
        mask |= _numbers(part, plain)
    return Field(text=text, resolved=",".join(resolved), mask=mask)


def read_day(text: str, seed: str) -> DayField:
    """Read the day of month with `L`, `L-n`, `nW` and `LW`. Raises `ScheduleError`."""
    part = Part.DAY
    mask = from_end = nearest = 0
    last_weekday = False
    resolved = []
    for item in _items(part, text):
        plain = _settle_hash(part, item, seed)
        resolved.append(plain)
        if plain == "L":
            from_end |= 1
        elif plain == "LW":
            last_weekday = True
        elif found := _FROM_END.fullmatch(plain):
            from_end |= 1 << _bounded(part, found[1], item, Domain(1, 30), "days before the last")
        elif found := _NEAREST.fullmatch(plain):
            nearest |= 1 << _number(part, found[1], item)
        else:
            mask |= _numbers(part, plain)
    return DayField(
        text=text,
        resolved=",".join(resolved),
        mask=mask,
        from_end=from_end,
        nearest=nearest,
        last_weekday=last_weekday,
    )


def read_weekday(text: str, seed: str) -> WeekdayField:
    """Read the day of week with `L5`, `L1-5` and `5#3`. Raises `ScheduleError`."""
    part = Part.WEEKDAY
    mask = last = 0
    nth = [0, 0, 0, 0, 0]
    resolved = []
    for item in _items(part, text):
        plain = _settle_hash(part, item, seed)
        resolved.append(plain)
        if found := _NTH.fullmatch(plain):
            which = _bounded(part, found[2], item, Domain(1, 5), "count in")
            nth[which - 1] |= _sunday_is_zero(1 << _number(part, found[1], item))
        elif plain.startswith("L") and len(plain) > 1 and "/" not in plain and "*" not in plain:
            last |= _last_weekdays(plain)
        else:
            mask |= _numbers(part, plain)
    return WeekdayField(
        text=text,
        resolved=",".join(resolved),
        mask=mask,
        last=last,
        nth=(nth[0], nth[1], nth[2], nth[3], nth[4]),
    )


def _items(part: Part, text: str) -> list[str]:
    """The parts of a list, in capitals. A lone `?` is the `*` of the two day fields."""
    if not text:
        refuse(part, text, f"{part.value} is empty")
    for character in text:
        if not character.isascii() or not character.isprintable():
            refuse(part, text, f"{part.value} value {text!r} has a character that no schedule can have")
    if text == "?" and part in (Part.DAY, Part.WEEKDAY):
        return ["*"]
    items = text.upper().split(",")
    if "" in items:
        refuse(part, text, f"{part.value} value {text} has an empty place in its list")
    return items


def _settle_hash(part: Part, item: str, seed: str) -> str:
    """Replace `H` by a value that depends on nothing but the seed and the field."""
    if not item.startswith("H"):
        return item
    found = _HASH.fullmatch(item)
    if found is None:
        refuse(part, item, f"{part.value} value {item} is not known", "write H, H/n, H(a-b) or H(a-b)/n")
    if part is Part.YEAR:
        refuse(part, item, "H cannot be used for the year")
    within = HASHED[part]
    if found[1] is not None:
        if "-" not in found[1]:
            refuse(part, item, f"{part.value} value {item} needs a range in its brackets", "H(a-b)")
        within = _range(part, found[1], item)
    digest = blake2b(f"{part.value}\0{seed}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    width = within.high - within.low + 1
    if found[2] is None:
        return str(within.low + number % width)
    step = _bounded(part, found[2], item, Domain(1, width), "step in")
    return f"{within.low + number % step}-{within.high}/{step}"


def _numbers(part: Part, item: str) -> int:
    """The mask of `*`, `a`, `a-b`, and of each of them with a step; `a/n` runs from a to the end."""
    base, slash, step_text = item.partition("/")
    domain = DOMAINS[part]
    step = 1
    if slash and not base:
        hint = f"write *{item}" if step_text.isdigit() else None
        refuse(part, item, f"{part.value} value {item} has nothing before its step", hint)
    if slash:
        width = domain.high - domain.low + 1
        step = _bounded(part, step_text, item, Domain(1, width), "step in", _STEPS.get(part))
    if base == "*":
        low, high = domain
    elif "-" in base:
        low, high = _range(part, base, item)
    else:
        low = high = _number(part, base, item)
        if slash:
            # Both 0 and 7 are Sunday, so the end of the week is the Sunday after it.
            high = 7 if part is Part.WEEKDAY else domain.high
    shift = FIRST_YEAR if part is Part.YEAR else 0
    mask = 0
    for value in range(low, high + 1, step):
        mask |= 1 << (value - shift)
    return _sunday_is_zero(mask) if part is Part.WEEKDAY else mask


def _last_weekdays(item: str) -> int:
    low, high = (
        _range(Part.WEEKDAY, item[1:], item) if "-" in item else (_number(Part.WEEKDAY, item[1:], item),) * 2
    )
    return _sunday_is_zero((2 << high) - (1 << low))


def _sunday_is_zero(mask: int) -> int:
    return (mask | mask >> 7) & 0x7F


def _range(part: Part, text: str, item: str) -> Domain:
    start, _, end = text.partition("-")
    if not start or not end:
        refuse(part, item, f"{part.value} value {text} is not a range", "write a-b")
    low, high = _number(part, start, item), _number(part, end, item)
    if part is Part.WEEKDAY and high == 0 < low:
        high = 7
    if low > high:
        hint = f"write {start}-{_highest(part)},{_lowest(part)}-{end}" if part is not Part.YEAR else None
        refuse(part, item, f"{part.value} range {text} runs backwards", hint)
    return Domain(low, high)


def _highest(part: Part) -> str:
    return "7" if part is Part.WEEKDAY else str(DOMAINS[part].high)


def _lowest(part: Part) -> str:
    return "1" if part is Part.WEEKDAY else str(DOMAINS[part].low)


def _number(part: Part, token: str, item: str) -> int:
    """One value, as a number or as a name. `item` is what it stood in."""
    within = "" if token == item else f" (in {item})"
    if token.isdigit():  # the caller let only ASCII through
        domain = DOMAINS[part]
        high = 7 if part is Part.WEEKDAY else domain.high
        if len(token) > 9 or not domain.low <= int(token) <= high:
            message = f"{part.value} value {token} out of range {domain.low}-{high}{within}"
            refuse(part, item, message, _year_hint(part))
        return int(token)
    names = NAMES.get(part, {})
    if token in names:
        return names[token]
    refuse(part, item, f"{part.value} value {token or 'nothing'} is not known{within}", _hint(part, token))


def _bounded(part: Part, token: str, item: str, allowed: Domain, what: str, hint: str | None = None) -> int:
    if not token.isdigit():
        refuse(part, item, f"{part.value} {what} {item} must be a number {allowed.low}-{allowed.high}")
    if len(token) > 9 or not allowed.low <= int(token) <= allowed.high:
        refuse(part, item, f"{part.value} {what} {item} out of range {allowed.low}-{allowed.high}", hint)
    return int(token)


def _year_hint(part: Part) -> str | None:
    if part is not Part.YEAR:
        return None
    return "the last of six fields is the year; a schedule with seconds has seven fields and ends in the year"


def _hint(part: Part, token: str) -> str | None:
    """What the writer may have meant."""
    if "~" in token and part is not Part.YEAR:
        return "~ is a random value in other crons; here H, or H(a-b), is one that stays the same for the job"
    if "?" in token:
        return "? stands alone, in a day field" if part is not Part.YEAR else _year_hint(part)
    if part is Part.WEEKDAY and "L" in token.strip("ABCDEFGHIJKMNOPQRSTUVWXYZ0123456789"):
        day = token[:-1] if token[:-1] in {*NAMES[part], *"01234567"} else "5"
        return f"the last such day of the month is spelled L{day}, and takes no step"
    if part is Part.DAY and ("L" in token or "W" in token):
        return "known forms are L, L-n, nW and LW; they take no range and no step"
    if "L" in token and len(token) == 1:
        return "L belongs in a day field"
    from difflib import get_close_matches  # only for who mistypes

    near = get_close_matches(token[:12], NAMES.get(part, {}), n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]}?"
    return _year_hint(part)

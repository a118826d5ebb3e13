"""Instants and spans as people write and read them."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from typing import Final

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?(?:s|min|m|h|d))+|\d+(?:\.\d+)?", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)(s|min|m|h|d|)", re.ASCII)


def seconds_in(text: str) -> float:
    """Seconds of `90`, `1.5`, `90s`, `5m`, `2h` or `1h30m`. Raises ValueError."""
    if _SPAN.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a span of time: write seconds, or for example 90s, 5m, 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def instant_in(text: str) -> datetime:
    """An ISO 8601 instant; without an offset it is local time. Raises ValueError."""
    try:
        at = datetime.fromisoformat(text)
        return at if at.tzinfo is not None else at.astimezone()
    except (ValueError, OverflowError):
        example = "write for example 2026-03-29T02:30 or 2026-03-29T02:30+01:00"
        raise ValueError(f"{text!r} is not an instant: {example}") from None


def span(seconds: float) -> str:
    """At most two units, rounded down: `0.012 s`, `4.2 s`, `2 min 5 s`, `3 d 4 h`. Never negative."""
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{int(seconds * 1000 + 1e-6) / 1000:.3f}".rstrip("0").rstrip(".") + " s"
    if seconds < 60:
        return f"{int(seconds * 10) / 10:g} s"
    whole = int(seconds)
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // below
            return f"{whole // size} {unit}" + (f" {rest} {small}" if rest else "")
    raise AssertionError("unreachable")


def instant(at: datetime, zone: tzinfo | None = None, *, precise: bool = False) -> str:
    """Local time (or that of `zone`) with its offset: `2026-10-05 14:03:22 +02:00`."""
    local = at.astimezone(zone).isoformat(" ", "milliseconds" if precise else "seconds")
    return re.sub(r"([+-]\d\d:\d\d(?::\d\d)?)$", r" \1", local)


def distance(at: datetime, now: datetime) -> str:
    """`in 4 s` or `4 s ago`."""
    seconds = (at - now).total_seconds()
    return f"in {span(seconds)}" if seconds >= 0 else f"{span(-seconds)} ago"

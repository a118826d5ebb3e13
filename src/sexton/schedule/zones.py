"""A time zone as pieces of constant offset: what turns wall clock times into instants and back.

Seconds are whole and count from 1970-01-01, in UTC for instants and in local time for the wall clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import NamedTuple

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DAY = 86400
_ALWAYS = 1 << 40
_SPAN = 366 * DAY
# No zone has had two changes within six days since 1970 (Gaza in 2040 is to have them seven days apart),
# so a look every three days misses none.
_LOOK = 3 * DAY


class Piece(NamedTuple):
    """Instants from `start` to before `end`, on which the zone's offset is the same."""

    start: int
    end: int
    offset: int
    """Seconds to add to an instant to get the wall clock."""
    seen: int
    """Wall clock times below this came before `start`.

    Where the clocks go back this is the end of the repeated hour; where they go forward, the first wall clock
    time that is left out.
    """


class Zone:
    """The pieces of one zone. They are worked out for a year at a time, when first asked for."""

    def __init__(self, zone: tzinfo) -> None:
        self.tzinfo = zone
        self._years: dict[int, tuple[Piece, ...]] = {}
        self._fixed: Piece | None = None
        if isinstance(zone, timezone):
            offset = _offset(zone, 0)
            self._fixed = Piece(-_ALWAYS, _ALWAYS, offset, offset - _ALWAYS)

    def at(self, instant: int) -> Piece:
        """The piece that holds `instant`."""
        if self._fixed is not None:
            return self._fixed
        number = instant // _SPAN
        pieces = self._years.get(number)
        if pieces is None:
            pieces = self._years[number] = _survey(self.tzinfo, number * _SPAN)
        for piece in pieces:
            if instant < piece.end:
                return piece
        raise AssertionError("the pieces of a year leave no instant out")


@lru_cache(maxsize=1024)
def zone_of(zone: tzinfo) -> Zone:
    """The shared pieces of a zone."""
    return Zone(zone)


def _offset(zone: tzinfo, instant: int) -> int:
    local = (EPOCH + timedelta(seconds=instant)).astimezone(zone)
    offset = local.utcoffset()
    assert offset is not None, "astimezone always gives an aware time"
    return round(offset.total_seconds())


def _survey(zone: tzinfo, begin: int) -> tuple[Piece, ...]:
    """The pieces from `begin` for one span.

    It looks back one step, so that a repeated hour right before `begin` is known.
    """
    start = begin - _LOOK
    offset = _offset(zone, start)
    seen = start + offset
    pieces = []
    at = start
    while at < begin + _SPAN:
        ahead = min(at + _LOOK, begin + _SPAN)
        if _offset(zone, ahead) != offset:
            change = _first_change(zone, at, ahead, offset)
            if change > begin:
                pieces.append(_clip(Piece(start, change, offset, seen), begin))
            seen = max(seen, change + offset)
            start = at = change
            offset = _offset(zone, change)
        else:
            at = ahead
    if start < begin + _SPAN:
        pieces.append(_clip(Piece(start, begin + _SPAN, offset, seen), begin))
    return tuple(pieces)


def _clip(piece: Piece, begin: int) -> Piece:
    if piece.start >= begin:
        return piece
    return Piece(begin, piece.end, piece.offset, max(piece.seen, begin + piece.offset))


def _first_change(zone: tzinfo, low: int, high: int, offset: int) -> int:
    """The first instant after `low` whose offset is another one, known to be at `high` at the latest."""
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high

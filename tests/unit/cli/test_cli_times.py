"""Spans and instants, as they are typed and as they are shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from sexton.cli.times import distance, instant, instant_in, seconds_in, span

AT = datetime(2026, 10, 5, 12, 3, 22, 417_000, UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("0", 0), ("90s", 90), ("5m", 300), ("5min", 300), ("2h", 7200), ("1d", 86400),
     ("1h30m", 5400), ("1m1.5s", 61.5)],
)  # fmt: skip
def test_a_span_is_read(text: str, seconds: float) -> None:
    """Bare numbers are seconds; units may follow each other."""
    assert seconds_in(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1", "1w", "1 h", "nan", "inf", "1h30", "٣", "1e3", "1.s"])
def test_what_is_no_span_is_refused(text: str) -> None:
    """The refusal says how to write one."""
    with pytest.raises(ValueError, match="write seconds"):
        seconds_in(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.0004, "0 s"), (0.012, "0.012 s"), (0.9999, "0.999 s"), (1, "1 s"), (4.28, "4.2 s"),
     (59.99, "59.9 s"), (60, "1 min"), (125, "2 min 5 s"), (3600, "1 h"), (3659, "1 h"), (7260, "2 h 1 min"),
     (86400 * 3 + 4 * 3600 + 59, "3 d 4 h"), (-5, "0 s")],
)  # fmt: skip
def test_a_span_is_shown_rounded_down(seconds: float, text: str) -> None:
    """Two units at most, and never more time than there is."""
    assert span(seconds) == text


def test_an_instant_shows_the_time_there_and_the_offset() -> None:
    """Nobody has to guess whose time it is."""
    assert instant(AT, ZoneInfo("Europe/Berlin")) == "2026-10-05 14:03:22 +02:00"
    newfoundland = timezone(-timedelta(hours=3, minutes=30))
    assert instant(AT, newfoundland, precise=True) == "2026-10-05 08:33:22.417 -03:30"


def test_a_distance_has_a_direction() -> None:
    """Before and after are different words."""
    assert distance(AT + timedelta(seconds=4), AT) == "in 4 s"
    assert distance(AT - timedelta(hours=1), AT) == "1 h ago"


def test_an_instant_without_offset_is_local() -> None:
    """An offset that is written wins."""
    assert instant_in("2026-10-05T14:00") == datetime(2026, 10, 5, 14).astimezone()
    assert instant_in("2026-10-05T14:00+03:00") == datetime(2026, 10, 5, 11, tzinfo=UTC)
    assert instant_in("2026-10-05").tzinfo is not None


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01", "9999-99-99T00:00"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    """The refusal says how to write one."""
    with pytest.raises(ValueError, match="write for example"):
        instant_in(text)

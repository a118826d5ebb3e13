"""Byte ranges of a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.api.logs import parse_range
from sexton.api.routes import Refused


@pytest.mark.parametrize(("text", "found"), [
    (None, None), ("", None), ("bytes=-", None), ("bytes=1", None), ("items=0-1", None), ("bytes=0-1,2-3", None),
    ("bytes=0-0", (0, 1)), ("bytes=0-", (0, 10)), ("bytes=3-5", (3, 6)), ("bytes=3-99", (3, 10)), ("bytes=-4", (6, 10)),
    ("bytes=-99", (0, 10)), (" bytes=9-9 ", (9, 10)),
])
def test_ranges_of_ten_bytes(text: str | None, found: tuple[int, int] | None) -> None:
    """What is asked for, first and past the last; None means all."""
    assert parse_range(text, 10) == found


@pytest.mark.parametrize("text", ["bytes=10-", "bytes=5-4", "bytes=-0", "bytes=99-100"])
def test_impossible_ranges(text: str) -> None:
    """Nothing of it is there: 416."""
    with pytest.raises(Refused) as refused:
        parse_range(text, 10)
    assert refused.value.status == 416


@given(st.text(max_size=30) | st.from_regex(r"bytes=\d{0,25}-\d{0,25}", fullmatch=True), st.integers(0, 1000))
def test_any_header(text: str, size: int) -> None:
    """Any text is a range within the log, all of it, or refused."""
    try:
        found = parse_range(text, size)
    except Refused:
        return
    assert found is None or 0 <= found[0] < found[1] <= size

"""`${...}` in text."""

from __future__ import annotations

import pytest

from sexton.config.interpolate import InterpolationError, interpolate

VARIABLES = {"A": "1", "EMPTY": "", "DOLLAR": "${A}"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("${A}", "1"),
        ("x${A}y${A}", "x1y1"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b}", "a:-b"),
        ("$$", "$"),
        ("$${A}", "${A}"),
        ("$$${A}", "$1"),
        ("$A $ $1", "$A $ $1"),
        ("${DOLLAR}", "${A}"),
    ],
)
def test_replaced(text: str, result: str) -> None:
    """References are replaced once; values are not looked through again."""
    assert interpolate(text, VARIABLES) == result


@pytest.mark.parametrize(
    ("text", "part"), [("${NONE}", "NONE"), ("${", "'${'"), ("${a b}", "${a b}"), ("${}", "${}")]
)
def test_refused(text: str, part: str) -> None:
    """A variable without a value and a malformed reference are refused by name."""
    with pytest.raises(InterpolationError, match="not") as caught:
        interpolate(text, VARIABLES)
    assert part in str(caught.value)
    assert caught.value.hint

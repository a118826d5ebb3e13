"""What reaches a terminal, and what does not."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.cli.logs import event_lines, harmless
from sexton.cli.terminal import Cell, Tone, facts, table, visible, visible_lines, wants_colour, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain ünïcode ☃", "plain ünïcode ☃"), ("\x1b[31mred", "\\x1b[31mred"), ("a\nb\tc\r", "a\\nb\\tc\\r"),
     ("\x07\x7f\x9b", "\\x07\\x7f\\x9b"), ("\u202egnp", "\\u202egnp"),
     ("\u2028", "\\u2028"),
     ("\udc80", "\\udc80")],
)  # fmt: skip
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    """Escape sequences, C1 controls, direction overrides, line separators and lone surrogates do nothing."""
    assert visible(text) == shown


@given(st.text())
def test_nothing_a_terminal_acts_on_gets_through(text: str) -> None:
    """Whatever a job is called or says, only printable characters are shown; of output lines and tabs too."""
    assert visible(text).isprintable()
    assert visible_lines(text).replace("\n", "").replace("\t", "").isprintable()
    assert visible_lines(text).count("\n") == text.count("\n")


@given(st.binary(), st.integers(1, 5))
def test_output_is_harmless_however_it_is_cut(data: bytes, size: int) -> None:
    """Characters that are split between pieces are put together; bytes that are no UTF-8 are written out."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert "".join(harmless(pieces)) == visible_lines(data.decode("utf-8", "backslashreplace"))


def test_columns_are_aligned_by_what_the_terminal_shows() -> None:
    """Wide and combining characters take the columns they take; line ends have no blanks."""
    lines = table(("A", "B"), [[Cell("日本"), Cell("x")], [Cell("e\u0301"), Cell("")]], colour=False)
    assert lines == ["A     B", "日本  x", "e\u0301"]
    assert width("日本") == 4


def test_colour_does_not_move_columns() -> None:
    """Colours are put around a cell after it was measured, and only where they are wanted."""
    rows = [[Cell("ok", Tone.GOOD), Cell("1")], [Cell("failure", Tone.BAD), Cell("2")]]
    coloured = table(("A", "B"), rows, colour=True)
    assert coloured[1] == "\x1b[32mok\x1b[0m       1"
    plain = table(("A", "B"), rows, colour=False)
    assert not any("\x1b" in line for line in plain)
    assert plain[1].index("1") == plain[2].index("2")


def test_facts_stand_below_each_other() -> None:
    """The values begin in one column."""
    pairs = [("job", Cell("x")), ("outcome", Cell("success"))]
    assert facts(pairs, colour=False) == ["job      x", "outcome  success"]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "environ", "wanted"),
    [(True, {}, True), (False, {}, False), (True, {"NO_COLOR": "1"}, False), (True, {"NO_COLOR": ""}, True),
     (True, {"TERM": "dumb"}, False)],
)  # fmt: skip
def test_colour_needs_a_terminal_and_consent(terminal: bool, environ: dict[str, str], wanted: bool) -> None:
    """NO_COLOR and a dumb terminal say no; a pipe has none."""
    assert wants_colour(_Terminal() if terminal else io.StringIO(), environ) is wanted


def test_lines_are_taken_out_of_events() -> None:
    """Only `line` events carry output; pings, the end and the cuts between pieces do not show."""
    stream = b': ping\n\nevent: line\ndata: {"stream":"x","line":"a"}\n\nevent: end\ndata: {"line":"b"}\n\n'
    assert list(event_lines([stream[:30], stream[30:]])) == [b"a\n"]

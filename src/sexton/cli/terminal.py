"""What reaches a person's terminal: aligned tables, colours where they are wanted, and never a control
character that came from a job."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple, TextIO

from sexton.model.run import Outcome

GAP = "  "


class Tone(Enum):
    """What a text means; the value is its colour (SGR parameters), if any."""

    PLAIN = ""
    GOOD = "32"
    BAD = "31"
    WARN = "33"
    LIVE = "36"
    FAINT = "2"
    HEAD = "1"


class Cell(NamedTuple):
    text: str
    tone: Tone = Tone.PLAIN


def visible(text: str) -> str:
    """The text with everything a terminal would act on (control and format characters) written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """As `visible`, for output of several lines: line feeds and tabs stay."""
    return "\n".join("\t".join(visible(part) for part in line.split("\t")) for line in text.split("\n"))


def width(text: str) -> int:
    """Columns a terminal needs for a printable text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Only on a terminal that can, and only if nobody said no (https://no-color.org)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def tone_of(outcome: Outcome | None) -> Tone:
    match outcome:
        case None:
            return Tone.LIVE
        case Outcome.SUCCESS:
            return Tone.GOOD
        case Outcome.FAILURE:
            return Tone.BAD
        case Outcome.CANCELLED | Outcome.REPLACED | Outcome.SKIPPED | Outcome.UNKNOWN:
            return Tone.WARN


def painted(cell: Cell, colour: bool) -> str:
    """The cell's text made visible, in its colour where colour is wanted."""
    text = visible(cell.text)
    return f"\x1b[{cell.tone.value}m{text}\x1b[0m" if colour and cell.tone.value and text else text


def table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, colour: bool) -> list[str]:
    """Lines of a table with left-aligned columns; the last column has no limit."""
    cells = [[Cell(head, Tone.HEAD) for head in heads], *rows]
    sizes = [max(width(visible(row[column].text)) for row in cells) for column in range(len(heads))]
    return [_line(row, sizes, colour) for row in cells]


def facts(pairs: Sequence[tuple[str, Cell]], *, colour: bool) -> list[str]:
    """Lines of `name  value`, aligned."""
    size = max((width(visible(name)) for name, _ in pairs), default=0)
    return [_line((Cell(name, Tone.FAINT), cell), (size, 0), colour) for name, cell in pairs]


def _line(row: Sequence[Cell], sizes: Sequence[int], colour: bool) -> str:
    last = max((n for n, cell in enumerate(row) if cell.text), default=0)
    parts = []
    for number, (cell, size) in enumerate(zip(row[: last + 1], sizes, strict=False)):
        padding = " " * (size - width(visible(cell.text))) if number < last else ""
        parts.append(painted(cell, colour) + padding)
    return GAP.join(parts)


class Screen:
    """Standard output of one command."""

    def __init__(self) -> None:
        self._stream = sys.stdout
        self.colour = wants_colour(self._stream, os.environ)
        self.terminal = self._stream.isatty()

    def line(self, *cells: Cell | str) -> None:
        """One line, written at once: whoever reads it may wait for it."""
        text = "".join(painted(Cell(c) if isinstance(c, str) else c, self.colour) for c in cells)
        print(text, file=self._stream, flush=True)

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        print("\n".join(table(heads, rows, colour=self.colour)), file=self._stream)

    def facts(self, pairs: Sequence[tuple[str, Cell]]) -> None:
        print("\n".join(facts(pairs, colour=self.colour)), file=self._stream)

    def raw(self, data: bytes) -> None:
        """Bytes as they are: JSON for programs, and output of runs that does not go to a terminal."""
        self._stream.flush()
        self._stream.buffer.write(data)
        self._stream.buffer.flush()

    def json(self, data: bytes) -> None:
        self.raw(data + b"\n")


def complain(message: str) -> None:
    """One line on standard error."""
    print(visible(message), file=sys.stderr, flush=True)

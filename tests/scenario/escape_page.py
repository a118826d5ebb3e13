"""The table of docs/reference/containment.md: written from what a walk has seen, and read again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from escape_walk import Seen
from escapes import CASES, Level

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "containment.md"
BEGIN, END = "<!-- made by the test run: begin -->", "<!-- made by the test run: end -->"


def rendered(table: Mapping[Level, Mapping[str, Seen | Exception]]) -> str:
    """Raises the error of a case that went wrong: such a table is not written."""
    rows = [["what the job does", *(level.value for level in Level)], ["---"] * (len(Level) + 1)]
    for case in CASES:
        cells = [table[level][case.name] for level in Level]
        for cell in cells:
            if isinstance(cell, Exception):
                raise cell
        rows.append([case.title, *(cell.verdict for cell in cells if isinstance(cell, Seen))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def write(table: Mapping[Level, Mapping[str, Seen | Exception]]) -> None:
    text = PAGE.read_text()
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{rendered(table)}\n{END}{after}")


def read() -> dict[str, dict[str, str]]:
    """Title of the case -> name of the level -> cell."""
    lines = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {title: dict(zip(head[1:], cells, strict=True)) for title, *cells in rows}

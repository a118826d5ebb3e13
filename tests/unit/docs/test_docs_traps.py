"""The table of traps is whole, and names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "traps.md").read_text(encoding="utf-8")
LINES = [line for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES]
TEST = re.compile(r"`([^`]+\.py::[^`]+)`")
WITHOUT_TEST = re.compile(r"^not applicable( yet)?: \S")
NAMED = sorted({found for row in ROWS for found in TEST.findall(row[3])})
THE_FORTY = 40


@cache
def names_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def test_every_trap_has_a_row() -> None:
    """The forty and those in passing, four cells each, numbered without a gap."""
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, len(ROWS) + 1)] and len(ROWS) > THE_FORTY
    assert all(len(row) == 4 and row[1] and row[2] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[f"trap{row[0]}" for row in ROWS])
def test_a_trap_has_a_test_or_says_why_not(row: list[str]) -> None:
    """And where it says why not, it claims nothing of what Sexton does."""
    without = bool(WITHOUT_TEST.match(row[3]))
    assert bool(TEST.search(row[3])) != without and (row[2] == "-") is without


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_is_named_exists(name: str) -> None:
    """`file::test` below tests/."""
    file, _, test = name.partition("::")
    path = ROOT / "tests" / file
    assert path.is_file(), f"no such file: {file}"
    assert test in names_in(path), f"{file} has no {test}"


def test_every_trap_test_is_in_the_table() -> None:
    """A test that was written for a trap belongs to one."""
    written = {f"scenario/test_traps.py::{test}" for test in names_in(ROOT / "tests" / "scenario" / "test_traps.py")}
    assert written and written <= set(NAMED)

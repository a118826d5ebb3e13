"""The table of the page's rules names tests that exist, in order, and leaves no rule of one node without one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "page-coverage.md").read_text(encoding="utf-8")
LINES = [line for line in PAGE.splitlines() if re.match(r"\| \d+ \|", line)]
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES]
WITHOUT_TEST = re.compile(r"^(A later issue|Later issues|Not planned)")
NAMED = sorted({found for row in ROWS for found in re.findall(r"`([^`]+\.py::[^`]+)`", row[3])})


@cache
def names_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    )


def test_rows_are_whole_and_numbered_in_order() -> None:
    """Four cells each, numbers from 1 without a gap."""
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, len(ROWS) + 1)] and len(ROWS) > 100
    assert all(len(row) == 4 and row[1] and row[2] for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[f"row{row[0]}" for row in ROWS])
def test_every_rule_has_a_test_or_says_why_not(row: list[str]) -> None:
    """Only what belongs to a later issue or to another system has none."""
    assert bool(re.search(r"`[^`]+\.py::[^`]+`", row[3])) != bool(WITHOUT_TEST.match(row[2]))


@pytest.mark.parametrize("name", NAMED)
def test_every_named_test_exists(name: str) -> None:
    """`file::test` below tests/."""
    file, _, test = name.partition("::")
    path = ROOT / "tests" / file
    assert path.is_file(), f"no such file: {file}"
    assert test in names_in(path), f"{file} has no {test}"


def test_every_page_test_is_in_the_table() -> None:
    """A scenario test of the page that no row names would be a rule that the table forgets."""
    files = sorted((ROOT / "tests" / "scenario").glob("test_page_*.py"))
    written = {f"scenario/{file.name}::{test}" for file in files for test in names_in(file)}
    told_in_the_log = {"scenario/test_page_doors.py::test_a_run_that_is_started_and_cancelled_is_told_in_the_log"}
    assert files and written - set(NAMED) == told_in_the_log

"""The page of faults that were met elsewhere names tests that exist, and leaves none of its reports without one."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "public-reports.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines()
        if re.match(r"\| \d+ \|", line)]
NAMED = sorted(set(re.findall(r"`([^`]+\.py::[^`]+)`", PAGE)))


@cache
def names_in(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_rows_are_whole_and_in_order() -> None:
    """Four cells, numbers that rise, a test in each row."""
    numbers = [int(row[0]) for row in ROWS]
    assert numbers == sorted(set(numbers)) and len(numbers) > 35
    assert all(len(row) == 4 and all(row) and re.search(r"`[^`]+\.py::test_[^`]+`", row[3]) for row in ROWS)


@pytest.mark.parametrize("name", NAMED)
def test_every_named_test_exists(name: str) -> None:
    """`file::test` below tests/."""
    file, _, test = name.partition("::")
    path = ROOT / "tests" / file
    assert path.is_file(), f"no such file: {file}"
    assert test in names_in(path), f"{file} has no {test}"


def test_a_number_that_a_test_bears_has_a_row() -> None:
    """A scenario test that is named after a report is about one of these."""
    rows = {int(row[0]) for row in ROWS}
    for file in sorted((ROOT / "tests" / "scenario").glob("test_*.py")):
        for test in names_in(file):
            numbers = re.match(r"test((?:_\d+)+)_", test)
            assert numbers is None or rows.issuperset(map(int, numbers[1].split("_")[1:])), f"{file.name}::{test}"

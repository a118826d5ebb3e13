"""The page on containment against the matrix that it reports."""

from __future__ import annotations

import escape_page
from escapes import CASES, Level


def test_the_table_has_the_cases_of_the_matrix() -> None:
    """Its rows are the cases, its columns the levels, and each cell says proven, survivors, unknown or why not."""
    page = escape_page.read()
    assert list(page) == [case.title for case in CASES]
    for title, cells in page.items():
        assert list(cells) == [level.value for level in Level], title
        assert all(cell.startswith(("proven: ", "survivors: ", "unknown", "- (")) for cell in cells.values()), title


def test_what_cannot_be_ended_is_said_so() -> None:
    """Where a case outlives the run, or its end cannot be known, the cell claims no proof, and the other way round."""
    page = escape_page.read()
    for case in CASES:
        for level in Level:
            cell = page[case.title][level.value]
            if not cell.startswith("- "):
                assert cell.startswith("survivors") is (level in case.outlives), (case.name, level)
                assert cell.startswith("unknown") is (level in case.unproven), (case.name, level)

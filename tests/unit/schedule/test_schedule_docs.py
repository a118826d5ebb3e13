"""The example table of the page on schedules is what the engine does."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from sexton.model.job import DayRule
from sexton.schedule.expression import CronExpression, parse
from sexton.schedule.occurrences import occurrences_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "schedules.md"


def examples() -> list[list[str]]:
    section = PAGE.read_text(encoding="utf-8").partition("## Examples")[2].partition("\n## ")[0]
    rows = [line.strip("|\n ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip(" `") for cell in row] for row in rows]


def test_the_page_has_examples() -> None:
    """The table is found, so that the test below is not one of nothing."""
    assert len(examples()) > 10


@pytest.mark.parametrize(("text", "zone", "rule", "after", "fires"), examples())
def test_example(text: str, zone: str, rule: str, after: str, fires: str) -> None:
    """Each row's fires are the next ones after its local time."""
    where = ZoneInfo(zone)
    expression = parse(text, seed="job")
    assert isinstance(expression, CronExpression)
    occurrences = occurrences_of(expression, where, DayRule(rule))
    at: datetime | None = datetime.fromisoformat(after).replace(tzinfo=where)
    for expected in fires.split(", "):
        assert at is not None
        at = occurrences.next_after(at)
        shown = "never" if at is None else at.astimezone(where).isoformat(timespec="minutes")
        assert shown == expected

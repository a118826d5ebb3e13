"""Every way to get away, at every level: nothing is left and that is proven, or what is left is named."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import escape_page
import pytest
from escape_walk import Seen, not_here, walk_at
from escapes import CASES, Case, Level, unavailable

pytestmark = pytest.mark.storm

LEVELS_AT_A_TIME = 2
WRITE = "SEXTON_WRITE_DOCS"
"""Set it to write the page instead of comparing it."""

Table = dict[Level, dict[str, Seen | Exception]]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """All levels, each with a daemon of its own."""
    base = tmp_path_factory.mktemp("escapes")

    def go(level: Level) -> dict[str, Seen | Exception]:
        if why := unavailable(level):
            return {case.name: not_here(why) for case in CASES}
        with walk_at(level, base / level.name) as walk:
            return walk.run()

    with ThreadPoolExecutor(LEVELS_AT_A_TIME) as pool:
        return dict(zip(Level, pool.map(go, Level), strict=True))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", Level, ids=lambda level: level.name.lower())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_escape(table: Table, case: Case, level: Level) -> None:
    """After the end of the run nothing of it is left and that is proven; or survivors are named with user and state,
    its place is kept, and the proof comes when they have gone."""
    seen = table[level][case.name]
    if isinstance(seen, Exception):
        raise seen
    if seen.skipped:
        pytest.skip(seen.verdict)
    print(f"{seen.verdict} ({seen.seconds} s)")


def test_the_page_says_what_was_seen(table: Table) -> None:
    """Each cell of the table in the reference, as far as this machine can try it."""
    if os.environ.get(WRITE):
        escape_page.write(table)
    page = escape_page.read()
    for level in Level:
        for case in CASES:
            seen = table[level][case.name]
            if isinstance(seen, Seen) and not seen.missing:
                assert page[case.title][level.value] == seen.verdict, (case.name, level)

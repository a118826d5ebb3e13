"""Every way to get away, at every level: nothing is left and that is proven, or what is left is named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from escape_walk import Seen, not_here, walk_at
from escapes import CASES, Case, Level, unavailable

LEVELS_AT_A_TIME = 2

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
        found = dict(zip(Level, pool.map(go, Level), strict=True))
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("level", Level, ids=lambda level: level.name.lower())
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_escape(table: Table, case: Case, level: Level) -> None:
    """After the end of the run nothing of it is left and that is proven; or survivors are named with user and state, its
    place is kept, and the proof comes when they have gone."""
    seen = table[level][case.name]
    if isinstance(seen, Exception):
        raise seen
    if seen.skipped:
        pytest.skip(seen.verdict)
    print(f"{seen.verdict} ({seen.seconds} s)")

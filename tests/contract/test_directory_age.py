"""How the age of a file is decided, without any clock that two hosts would have to agree on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sexton.store.directory as package
from sexton.store.directory.age import COARSE, TICK, Sighting, age, grain, seen

S = 1_000_000_000
T0 = 1_700_000_000 * S + 123_456_789
"""Nanoseconds of a file system's clock; not a whole second."""


def first(at: float = 100.0) -> Sighting:
    return seen(None, 1, began=at, ended=at)


@pytest.mark.parametrize(
    ("what", "elapsed_by_stamps", "sighting", "expected"),
    [
        ("first look: the stamps decide", 40.0, first(), 40.0 - TICK),
        ("first look at what was just written", 0.0, first(), 0.0),
        ("stamps from the future, first look", -90.0, first(), 0.0),
        ("watched unchanged for longer than the stamps say (clock set back)", -90.0, Sighting(1, 100.0, 131.0), 31.0),
        ("seen to change after the stamps' time (clock set ahead)", 3600.0, Sighting(2, 105.0, 107.0, 99.0), 8.0),
        ("both witnesses agree", 5.0, Sighting(2, 103.0, 107.0, 99.0), 5.0 - TICK),
        ("stamps a little less than what was watched", 3.0, Sighting(2, 103.0, 107.0, 99.0), 4.0),
        ("seen to change long ago: the stamps decide", 50.0, Sighting(2, 3000.0, 3000.0, 0.0), 50.0 - TICK),
    ],
)
def test_the_age_of_a_file(what: str, elapsed_by_stamps: float, sighting: Sighting, expected: float) -> None:
    """The stamps of one clock, held within what this process has seen itself."""
    assert age(T0, T0 + int(elapsed_by_stamps * S), sighting) == pytest.approx(expected, abs=1e-6), what


def test_whole_seconds_are_taken_for_a_coarse_clock() -> None:
    """A file system that keeps whole seconds makes nothing look older than it may be."""
    assert grain(T0, T0 + S) == TICK and grain(T0 // S * S, T0) == TICK
    assert grain(T0 // S * S, T0 // S * S + S) == COARSE
    assert age(T0 // S * S, T0 // S * S + 3 * S, first()) == 1.0


def test_what_is_remembered_of_looks() -> None:
    """When this version was first seen for sure, and the last time that another one was."""
    one = seen(None, 7, began=1.0, ended=1.5)
    assert one == Sighting(7, 1.5, 1.0, None)
    again = seen(one, 7, began=2.0, ended=2.5)
    assert again == Sighting(7, 1.5, 2.0, None)
    changed = seen(again, 8, began=3.0, ended=3.5)
    assert changed == Sighting(8, 3.5, 3.0, 2.0)
    assert seen(changed, 8, began=4.0, ended=4.5) == Sighting(8, 3.5, 4.0, 2.0)


def test_no_wall_clock_of_a_host_is_read() -> None:
    """Nowhere in the package: what is never read cannot be compared."""
    wall = {"time", "time_ns", "now", "utcnow", "today", "CLOCK_REALTIME", "localtime", "gmtime"}
    for file in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                of_host = node.value.id in ("time", "datetime", "date") and node.attr in wall
                assert not of_host, (file.name, node.lineno)

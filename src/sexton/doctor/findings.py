"""What a diagnosis is made of, and when it is a good one. Pure."""

from __future__ import annotations

from enum import Enum

import msgspec


class Level(Enum):
    OK = "ok"
    WEAKER = "weaker"
    """The promise is kept by a fallback or under a condition, which the line names."""
    MISSING = "missing"
    """The promise cannot be kept here."""


class Area(Enum):
    CONTAINMENT = "containment"
    LIMITS = "limits"
    CLOCKS = "clocks"
    USERS = "users"
    ULIMITS = "ulimits"
    STATE = "state"
    JOBS = "jobs"


class Line(msgspec.Struct, frozen=True):
    """One thing that was tried. `change` is the one thing to do for a stronger level; None where there is none."""

    area: Area
    name: str
    level: Level
    found: str
    change: str | None = None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All lines, the containment that a daemon started here would have, and whether every promise can be kept."""

    version: str
    containment: str
    sound: bool
    lines: tuple[Line, ...]


def sound(lines: tuple[Line, ...]) -> bool:
    """A weaker level keeps the promise; only a missing one does not."""
    return all(line.level is not Level.MISSING for line in lines)

"""How many warm supervisors to have. Pure; the figures behind it are in docs/decisions/0002-supervisors.md."""

from __future__ import annotations

from math import ceil

MINIMUM = 8
IDLE_CEILING = 32
PREFILL_CEILING = 256
GROW_STEP = 16
GROW_PATIENCE = 0.004
"""Seconds without a completion before the pool grows: growing at once hurts bursts of short jobs."""
FIRST_RUN_SECONDS = 0.02
"""What a supervisor's first run may take more: its own preparation and memory that nobody has touched yet."""
TRIM_EVERY = 5.0
QUIET_BEFORE_TRIM = 60.0
PATIENCE_MS = 10
"""The start of a run is told so much later, with its own instant, or with its end: a short run is taken in once."""
LONG_SECONDS = 0.3
"""A run that lasts longer needs a supervisor of its own at its instant; short ones share a few, and start sooner that
way than with one for each of them."""
SHARE_AT_FIRST = 0.012
SHARE_WEIGHT = 0.02


class Sizing:
    """Learns from the runs that end how many of the coming ones will be long."""

    def __init__(self) -> None:
        self._long_share = SHARE_AT_FIRST

    def learn(self, seconds: float) -> None:
        """A run has given its supervisor back after so long."""
        self._long_share += SHARE_WEIGHT * ((seconds > LONG_SECONDS) - self._long_share)

    def missing(self, due: int, ready: int) -> int:
        """How many more to make for `due` runs that are about to start, with `ready` idle or on their way."""
        wanted = max(ceil(due * self._long_share), min(due, MINIMUM))
        return max(0, min(wanted, PREFILL_CEILING) - ready)


def surplus(idle: int, total: int, quiet: float) -> int:
    """How many idle ones to let go when nothing was made for `quiet` seconds: at once what is beyond the ceiling, later
    one by one down to the minimum."""
    one = int(quiet > QUIET_BEFORE_TRIM and total > MINIMUM and idle > 0)
    return one + (max(0, idle - one - IDLE_CEILING) if quiet > TRIM_EVERY else 0)

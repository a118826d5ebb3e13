"""Two kinds of time that are never mixed.

An aware UTC `datetime` is for identity and records. `Monotonic` (seconds of CLOCK_MONOTONIC) is for
every deadline and duration: a wall clock that is set must not lengthen a timeout or make a duration negative.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NewType

import msgspec

Monotonic = NewType("Monotonic", float)


class Clock(msgspec.Struct, frozen=True):
    """The clocks a room may read, handed to it so that tests can drive them."""

    now: Callable[[], datetime]
    """The wall clock, UTC."""
    monotonic: Callable[[], Monotonic]
    """Seconds of CLOCK_MONOTONIC, the clock that supervisors stamp their reports with."""

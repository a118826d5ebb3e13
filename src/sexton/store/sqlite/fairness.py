"""The event loop gives way to the store's threads when it is so busy that they would starve."""

from __future__ import annotations

import asyncio
import time
from typing import Final

LOOK_EVERY: Final = 0.002
GIVE_WAY_FOR: Final = 0.0001
"""Seconds. A loop that never idles lets go of the GIL for a microsecond in each iteration: too short for
another thread to take it, and too often for the interpreter's forced switch to be asked for. Without this,
3,000 writes beside a saturated loop waited for 17 s; with it, 0.1 s."""


class Fairness:
    """Counts what one thread was asked and has answered. For the event loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open = 0
        self._progress = False
        self._watching = False

    def asked(self) -> None:
        self._open += 1
        if not self._watching:
            self._watching = True
            self._loop.call_later(LOOK_EVERY, self._look)

    def answered(self, count: int) -> None:
        self._open -= count
        self._progress = True

    def _look(self) -> None:
        if self._open and not self._progress:
            time.sleep(GIVE_WAY_FOR)
        self._progress = False
        self._watching = self._open > 0
        if self._watching:
            self._loop.call_later(LOOK_EVERY, self._look)

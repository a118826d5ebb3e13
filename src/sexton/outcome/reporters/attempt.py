"""One attempt to deliver: how long it may take, how it is broken off, and how it fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class NotDelivered(Exception):
    """A report did not arrive. `again` says that the other side did not take it and may take it later."""

    def __init__(self, message: str, *, again: bool = False) -> None:
        super().__init__(message)
        self.again = again


class OutOfTime(NotDelivered):
    """The attempt took longer than it may. It may have arrived all the same: it is not tried again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not within {seconds:g} seconds")


class Attempt:
    """Shared by the thread that delivers and the one that watches the time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.aborted = False
        self._act: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def remaining(self) -> float:
        """Seconds that are left. Raises OutOfTime when there are none."""
        left = self.deadline - time.monotonic()
        if left <= 0 or self.aborted:
            raise OutOfTime(self.seconds)
        return left

    def on_abort(self, act: Callable[[], None]) -> None:
        """How to break off what is under way; at once when that was asked for already."""
        with self._lock:
            self._act = act
            if not self.aborted:
                return
        act()

    def abort(self) -> None:
        """From any thread, any number of times."""
        with self._lock:
            first, self.aborted = not self.aborted, True
            act = self._act if first else None
        if act is not None:
            act()

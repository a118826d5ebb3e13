"""An instant at which many runs start: they are made ready before it, and none is started before it."""

from __future__ import annotations

from sexton.execution.held import Held


class Gate:
    """Opened once, by the scheduler, when the instant has come."""

    __slots__ = ("open", "waiting")

    def __init__(self) -> None:
        self.open = False
        self.waiting: list[Held] = []

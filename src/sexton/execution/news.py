"""News from supervisors on its way to the runs: what runs do with it waits while other runs wait to be started.

The last start of a burst is what people wait for; that a run has ended can be told a moment later, because every report
carries its own instant. Nobody may decide on stale knowledge, though: before a decision about a run (another launch of
its job, a cancel, a deadline) `hear` passes on all that has come.
"""

from __future__ import annotations

import asyncio
from collections import deque

from sexton.execution.held import Held
from sexton.execution.messages import ExecutionMessage

DELAY_SECONDS = 0.5
"""How long news may wait while runs wait to be started."""
SLICE = 24
"""Messages between two looks of the event loop at freed supervisors."""


class News:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._messages: deque[tuple[Held, ExecutionMessage]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._urgent = False

    def add(self, held: Held, message: ExecutionMessage) -> None:
        self._messages.append((held, message))
        self._urgent = self._urgent or held.ordered  # somebody waits for it

    def look(self, *, starts_wait: bool) -> None:
        """To be called when reports have been read."""
        if self._urgent:
            self.hear()
        elif not starts_wait:
            self._pass_on()
        elif self._messages and self._timer is None:
            self._timer = self._loop.call_later(DELAY_SECONDS, self._pass_on)

    def hear(self) -> None:
        """Pass on everything now. Runs have taken it in when the event loop has gone round once."""
        self._urgent = False
        self._pass_on(len(self._messages))

    def _pass_on(self, count: int = SLICE) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _ in range(min(count, len(self._messages))):
            held, message = self._messages.popleft()
            held.post(message)
        if self._messages:
            self._timer = self._loop.call_later(0, self._pass_on)

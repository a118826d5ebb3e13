"""The one door through which everything reaches a run."""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import datetime

import msgspec

from sexton.execution.messages import ExecutionMessage
from sexton.model.clock import Monotonic
from sexton.model.run import StopCause


class StopRequested(msgspec.Struct, frozen=True):
    """Somebody wants the run ended. `force` skips what is left of the grace period."""

    cause: StopCause
    reason: str | None = None
    requested_by: str | None = None
    force: bool = False


class AbandonRequested(msgspec.Struct, frozen=True):
    """Somebody gives up waiting for the proof that the run is gone."""

    reason: str | None = None
    requested_by: str | None = None


class VictimEnded(msgspec.Struct, frozen=True):
    """A run that this one replaces has given up its place."""

    run_id: str


class SlotsGiven(msgspec.Struct, frozen=True):
    """The run has its slots. It starts when the runs that it is to replace have ended."""

    at: datetime
    victims: tuple[str, ...] = ()


Message = ExecutionMessage | StopRequested | AbandonRequested | VictimEnded | SlotsGiven


class Mailbox:
    """Messages in order of arrival, for one reader."""

    __slots__ = ("_loop", "_messages", "_reader", "instead")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._messages: deque[Message] = deque()
        self._reader: asyncio.Future[None] | None = None
        self.instead: Mailbox | None = None
        """Who is to be stopped instead: the check of the run, while it is there."""

    def post(self, message: Message) -> None:
        if self.instead is not None and isinstance(message, StopRequested | AbandonRequested):
            self.instead.post(message)
            return
        self._messages.append(message)
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    @property
    def waiting(self) -> bool:
        """Whether there is a message that has not been taken."""
        return bool(self._messages)

    async def take(self, until: Monotonic | None = None) -> Message | None:
        """The next message, or None when the monotonic instant `until` has come first."""
        while not self._messages:
            if until is not None and self._loop.time() >= until:
                return None
            self._reader = self._loop.create_future()
            timer = self._loop.call_at(until, self._wake) if until is not None else None
            try:
                await self._reader
            finally:
                self._reader = None
                if timer is not None:
                    timer.cancel()
        return self._messages.popleft()

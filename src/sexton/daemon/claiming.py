"""Claiming what is due in rounds: what comes together is asked for together, one round at a time.

Each node takes its own share at once and lets a moment pass before it takes what is left: else all runs that are due
at one instant would be those of the node whose clock is a few milliseconds ahead. Whose share is left is slow or gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from heapq import nsmallest
from math import ceil
from zlib import crc32

from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.store.coordination import Claimed, Fires, Occurrence, bounded

ROUND = 500
"""Occurrences that are asked for at once."""
GATHER_TURNS = 8
"""Of the event loop: so long a round waits while each turn brings more."""
COURTESY_SECONDS = 0.05
"""What is another node's share is left to it for so long: more than clocks that are kept right differ."""
GRAIN_SECONDS = 0.025
"""Such moments end together, so that what was asked for within one is one round."""


class Rounds:
    def __init__(self, store: Fires, me: NodeIdentity, living: Callable[[], Collection[str]]) -> None:
        self._store = store
        self._me = me
        self._living = living
        self._nodes = [me.id]
        self._asked: dict[Occurrence, _Asked] = {}
        self._more = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None

    async def claim(self, wanted: Occurrence, *, at_once: bool = False) -> bool:
        """Whether the occurrence is ours; `at_once` where it is no other node's share. Raises StoreError, also when its
        round, or one that it had to wait for, was not answered in time; a store that is slow and answers is waited for.
        Who stops waiting is not asked for any more, unless that is under way."""
        loop = asyncio.get_running_loop()
        if self._asking is None:
            self._nodes = sorted({self._me.id, *self._living()})
            self._asking = loop.create_task(self._ask(), name="claims")
        asked = self._asked.get(wanted)
        if asked is None:
            place, now = 0 if at_once else self._place(wanted), loop.time()
            begins = now if place == 0 else ceil((now + COURTESY_SECONDS) / GRAIN_SECONDS) * GRAIN_SECONDS
            asked = self._asked[wanted] = _Asked(place, begins)
            self._more.set()
        answer: asyncio.Future[bool | Exception] = loop.create_future()
        asked.waiting.append(answer)
        told = await answer
        if isinstance(told, StoreError):
            raise StoreError(str(told)) from told  # each its own: an exception that many raise grows
        if isinstance(told, Exception):
            raise told
        return told

    def _place(self, wanted: Occurrence) -> int:
        """Whose share it is, counted from ours (0). Nodes that see each other agree on it."""
        told = f"{wanted.job}\0{wanted.scheduled_for.timestamp()}".encode(errors="surrogatepass")
        return (crc32(told) - self._nodes.index(self._me.id)) % len(self._nodes)

    async def _ask(self) -> None:
        """Until everything has its answer."""
        foreign = 0
        try:
            while await self._gather():
                if not (wanted := self._next()):
                    continue
                ours = sum(self._asked[one].place == 0 for one in wanted)
                if ours < len(wanted):  # more in each round: who does not take its share will not come any more
                    foreign = max(2 * foreign, -(-len(self._asked) // len(self._nodes)))
                await self._ask_once(wanted, min(ours + foreign, ROUND))
        finally:
            self._asking = None

    async def _gather(self) -> bool:
        """Wait until there is something to ask for; False when nobody waits for anything any more."""
        loop = asyncio.get_running_loop()
        while self._asked and (left := min(asked.begins for asked in self._asked.values()) - loop.time()) > 0:
            self._more.clear()
            try:
                async with asyncio.timeout(left):
                    await self._more.wait()
            except TimeoutError:
                pass
        for _ in range(GATHER_TURNS):
            before = len(self._asked)
            await asyncio.sleep(0)
            if len(self._asked) == before or before >= ROUND:
                break
        return bool(self._asked)

    def _next(self) -> list[Occurrence]:
        """Our share first; others' when their time is over."""
        for one in [one for one, asked in self._asked.items() if all(answer.done() for answer in asked.waiting)]:
            del self._asked[one]  # nobody waits for it any more
        now = asyncio.get_running_loop().time()
        ripe = [one for one, asked in self._asked.items() if asked.begins <= now]
        return nsmallest(ROUND, ripe, key=lambda one: self._asked[one].place)

    async def _ask_once(self, wanted: list[Occurrence], most: int) -> None:
        waiting = list(self._asked)
        try:
            claimed = await bounded(self._store.claim_fires(wanted, self._me, most))
        except Exception as failure:  # whatever it is, nobody may wait for ever, nor for one such round after the other
            for one in waiting:
                self._answer(one, failure)
        else:
            self._tell(claimed)

    def _tell(self, claimed: Claimed) -> None:
        for one in claimed.ours:
            self._answer(one, True)
        for one in claimed.others:
            self._answer(one, False)
        for one in claimed.doubtful:
            self._answer(one, StoreError("the store may have forgotten another node's claim"))

    def _answer(self, one: Occurrence, answer: bool | Exception) -> None:
        asked = self._asked.pop(one, None)
        for waiting in asked.waiting if asked is not None else ():
            if not waiting.done():
                waiting.set_result(answer)


class _Asked:
    def __init__(self, place: int, begins: float) -> None:
        self.place = place
        self.begins = begins
        """On the clock of the loop: not earlier is it asked for."""
        self.waiting: list[asyncio.Future[bool | Exception]] = []

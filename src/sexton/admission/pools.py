"""Who is next at a pool: by priority, then by age, with bounded overtaking. Pure.

A run that needs more slots than are free does not bar the way at once: smaller ones behind it may go first, until they
have taken, together, as many slots as the pool has. From then on what becomes free is left for it. So neither can the
small ones keep a large one waiting for ever, nor does a large one leave slots idle for long.

A run whose own job does not let it start now (a Forbid job that is running) could not use the slots: it is passed
without being counted as overtaken.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec


class Waiting(msgspec.Struct, frozen=True):
    """A run in the queue."""

    id: str
    slots: int
    ready: bool
    """Whether its job lets it start now."""
    inherits: int = 0
    """Slots that it takes over from the runs that it replaces."""
    overtaken: int = 0
    """Slots that were given to runs behind it while it waited for slots."""

    @property
    def needs(self) -> int:
        """Slots that must be free for it."""
        return max(0, self.slots - self.inherits)


class Choice(msgspec.Struct, frozen=True):
    """Who gets its slots now, and whom it overtakes."""

    start: str
    takes: int
    """Of the free slots."""
    overtakes: tuple[str, ...] = ()


Order = tuple[int, datetime, str]


def order(priority: int, since: datetime, run_id: str) -> Order:
    """The key by which a queue is sorted: the highest priority, then the longest wait, comes first."""
    return (-priority, since, run_id)


def choose(capacity: int, used: int, queue: Iterable[Waiting], *, heirs: bool = True) -> Choice | None:
    """Decide who of a queue, sorted by `order`, gets slots now; None if nobody can. Ask again after each choice.

    `used` slots of `capacity` are taken; after a capacity was lowered that may be more than there are. Where
    nobody inherits slots (`heirs`), the queue is searched only as long as there is room.
    """
    room = capacity - used
    barred: list[str] = []
    for one in queue:
        if room <= 0 and not heirs:
            return None
        if not one.ready:
            continue
        if one.needs <= max(0, room):
            return Choice(one.id, one.needs, tuple(barred) if one.needs else ())
        barred.append(one.id)
        room = min(room, capacity - one.overtaken)
    return None

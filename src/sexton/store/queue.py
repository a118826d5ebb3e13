"""The queue of a store: runs that wait for a worker, whoever that will be, on whatever node.

An entry stands here from its enqueueing to its end. Its record goes into the ledger in the same transaction that takes
the entry away, so a run is in exactly one of the two. One suite, `tests/contract/test_queue.py`, runs on every
implementation. Every method raises StoreError when the store cannot answer. (docs/decisions/0019-the-queue.md)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Protocol

import msgspec

from sexton.model.node import NodeIdentity
from sexton.model.run import Launch, Outcome, Phase, RunRecord, Stop, StopCause

MOST_AT_ONCE = 1000
"""Entries that one step may claim."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A run that waits for a worker."""

    launch: Launch
    queue: str = "default"
    priority: int = 0
    """Higher first; -32768 to 32767. Among equals whichever may start first, then whichever was made first."""
    available_at: datetime | None = None
    """Not to be claimed before this instant of the store's clock; None for at once."""
    once: bool = False
    """Never given to a second worker: one that is lost with it may have begun it."""
    input: str = "null"
    """For the function: JSON, passed through unread."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that a worker has. It may have been begun; only `give_back` says that it was not."""

    entry: Entry
    by: str
    """`NodeIdentity.id` of the worker."""
    fence: int
    """Grows with every claim of the entry: whoever shows an older one has lost it."""


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a claimed run."""

    by: str
    fence: int
    record: RunRecord


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one round with the store came to."""

    claimed: tuple[Claim, ...] = ()
    stale: tuple[str, ...] = ()
    """Ids of finished runs that were somebody else's by then: their ends were not recorded."""


class Cancelling(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants a run cancelled, and why."""

    reason: str | None = None
    requested_by: str | None = None
    force: bool = False


class CancelAnswer(Enum):
    NEVER_STARTED = "never started"
    """It waited, and is recorded as cancelled."""
    ASKED = "asked"
    """A worker has it, and will hear of it."""
    UNKNOWN = "unknown"
    """It has ended, or never was."""


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """How full a queue is."""

    waiting: int = 0
    delayed: int = 0
    """Whose instant has not come."""
    active: int = 0
    oldest: float = 0.0
    """Seconds that the one which has waited longest has been claimable."""


class Reaped(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the claims of workers that have fallen silent."""

    again: tuple[str, ...] = ()
    """Ids of runs that wait again."""
    lost: tuple[RunRecord, ...] = ()
    """Recorded: what may run only once, and what somebody wanted cancelled."""


class Queue(Protocol):
    """Duties. `enqueue`, `step` and `cancel` are atomic and, where the ledger is, durable when they return. Of any
    number of workers exactly one gets an entry, until it finishes it, gives it back or is reaped. Instants are
    compared with the store's clock, and no other. What is asked twice, because an answer was lost, is done once.
    """

    async def enqueue(self, entries: Sequence[Entry]) -> None:
        """All of them or none. One whose id is known already, here or in the ledger, is left as it is."""

    async def step(
        self, by: NodeIdentity, queues: Sequence[str], want: int, finished: Sequence[Finish] = (),
    ) -> Step:
        """In one transaction record what this worker has finished and claim up to `want` entries of the queues. It is a
        sign of life, too."""
        ...

    async def give_back(self, claims: Sequence[Claim]) -> None:
        """What was claimed and not begun waits again, as if it had never been claimed."""

    async def held(self, by: str) -> Sequence[Claim]:
        """The claims of a worker (by `NodeIdentity.id`): for one that has not heard what its last step came to."""
        ...

    async def cancel(self, run_id: str, why: Cancelling) -> CancelAnswer: ...

    async def alive(self, by: NodeIdentity) -> Mapping[str, Cancelling]:
        """A sign of life. Returns which of this worker's runs are to be cancelled, by id."""
        ...

    async def leave(self, by: str) -> None:
        """A worker that has finished or given back all it had is forgotten."""

    async def reap(self, silent_for: float) -> Reaped:
        """Take from workers that gave no sign of life for so many seconds what they had."""
        ...

    async def entry(self, run_id: str) -> Entry | Claim | None:
        """A run that waits, or that a worker has."""
        ...

    async def depths(self) -> Mapping[str, Depth]:
        """By queue, of those that hold anything."""
        ...

    async def enqueued(self, queues: Sequence[str], within: float) -> None:
        """Return when there may be something to claim, at the latest after `within` seconds: a hint. Stepping is the
        truth."""


def checked(entry: Entry) -> Entry:
    """Raises ValueError for what no store could order or keep."""
    if not -32768 <= entry.priority <= 32767:
        raise ValueError(f"priority {entry.priority} is not between -32768 and 32767")
    if entry.available_at is not None and entry.available_at.tzinfo is None:
        raise ValueError("available_at without a time zone")
    if "\0" in entry.queue + entry.launch.id + entry.launch.job + entry.input:
        raise ValueError("a NUL character in the id, the job, the queue or the input")
    return entry


def never_started(entry: Entry, why: Cancelling, at: datetime) -> RunRecord:
    """The record of a run that was cancelled while it waited."""
    stop = Stop(cause=StopCause.CANCEL, reason=why.reason, requested_by=why.requested_by, requested_at=at,
                confirmed_at=at)
    return RunRecord(launch=entry.launch, phase=Phase.RECORDED, outcome=Outcome.CANCELLED, stop=stop, finished_at=at,
                     fail_reason="cancelled while it waited in its queue")


def lost_with_worker(entry: Entry, worker: str, why: Cancelling | None, at: datetime) -> RunRecord:
    """The record of a run whose worker fell silent, and that no other worker gets."""
    stop = None if why is None else Stop(cause=StopCause.CANCEL, reason=why.reason, requested_by=why.requested_by,
                                         requested_at=at)
    reason = "it may run only once" if why is None else "it was to be cancelled"
    return RunRecord(launch=entry.launch, phase=Phase.RECORDED, outcome=Outcome.UNKNOWN, stop=stop, finished_at=at,
                     fail_reason=f"its worker {worker} fell silent, and may have begun it; {reason}")

"""All that a store keeps, for backups, checks and moves to another store: read at one go, beside the daemons.

Live leases, signals and nodes are no part of it: they mean something only while daemons are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Protocol, assert_never

import msgspec

from sexton.model.errors import StoreError
from sexton.model.run import Outcome, Phase, RunRecord
from sexton.store.port import ended_at
from sexton.store.queue import Entry

_record = msgspec.json.Decoder(RunRecord).decode


class NoStore(StoreError):
    """There is nothing at the place where the store should be."""


class StoreKind(Enum):
    SQLITE = "sqlite"
    DIRECTORY = "directory"
    POSTGRES = "postgres"


class Recorded(msgspec.Struct, frozen=True, tag_field="kind", tag="recorded"):
    """A run with its final record."""

    record: RunRecord


class Unfinished(msgspec.Struct, frozen=True, tag_field="kind", tag="unfinished"):
    """A run with an intent and no record, as far as it is known."""

    record: RunRecord


class StateValue(msgspec.Struct, frozen=True, tag_field="kind", tag="state"):
    """A small fact about a job."""

    job: str
    key: str
    value: str


class Fence(msgspec.Struct, frozen=True, tag_field="kind", tag="fence"):
    """The highest fence that a lease of this name has had."""

    name: str
    fence: int


class Fired(msgspec.Struct, frozen=True, tag_field="kind", tag="fired"):
    """An occurrence that a node has claimed for the whole fleet."""

    job: str
    scheduled_for: datetime
    by: str
    """`NodeIdentity.id`."""


class Waiting(msgspec.Struct, frozen=True, tag_field="kind", tag="waiting"):
    """A run in a queue. One that a worker has waits again when it is put elsewhere: the worker is not there."""

    entry: Entry


Item = Recorded | Unfinished | StateValue | Fence | Fired | Waiting


class Counts(msgspec.Struct, kw_only=True):
    """How many there are of each."""

    recorded: int = 0
    unfinished: int = 0
    states: int = 0
    fences: int = 0
    fires: int = 0
    waiting: int = 0

    def add(self, item: Item) -> None:
        match item:
            case Recorded():
                self.recorded += 1
            case Unfinished():
                self.unfinished += 1
            case StateValue():
                self.states += 1
            case Fence():
                self.fences += 1
            case Fired():
                self.fires += 1
            case Waiting():
                self.waiting += 1
            case _:
                assert_never(item)

    @property
    def total(self) -> int:
        return self.recorded + self.unfinished + self.states + self.fences + self.fires + self.waiting

    def __str__(self) -> str:
        return (f"{self.recorded} recorded and {self.unfinished} unfinished runs, {self.states} job states, "
                f"{self.fences} fences, {self.fires} claimed occurrences"
                f"{f', {self.waiting} runs in queues' if self.waiting else ''}")


class Remark(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a check has found."""

    damage: bool
    """Something is lost, or cannot be relied on."""
    text: str


class Archive(Protocol):
    """A store that is open for reading only, by this process alone; daemons may go on with it. Blocking.

    Duties. `items` gives everything once: the recorded runs of each job in the order of its history, so that recording
    them again in that order makes the same history. Where `one_moment` is set all of it, and `counts`, is of one
    instant; else what is written meanwhile is in it or not, but no run that was there all the time is missing. What
    cannot be read is named in `damaged`, and hides nothing else. Nothing in the store is changed. Raises StoreError.
    """

    kind: StoreKind
    one_moment: bool
    schema_version: int
    damaged: list[str]

    def counts(self) -> Counts:
        """As the store has them, without reading every record."""

    def items(self) -> Iterator[Item]: ...

    def is_live(self, daemon: str) -> bool | None:
        """Whether the daemon process with this `NodeIdentity.id` is there; None where that cannot be told."""

    def examine(self) -> Sequence[Remark]:
        """What is to say about the store beside its items."""
        ...

    def close(self) -> None: ...


class Restorable(Protocol):
    """What a store can do beyond `Store` for contents that come from another one."""

    async def raise_fence(self, name: str, fence: int) -> None:
        """The next owner of the lease has a higher fence than this. A lease that somebody has now keeps its fence.
        Durable when it returns."""


def is_newer(record: RunRecord, there: RunRecord) -> bool:
    """Whether what a backup has of a run may take the place of what the store has of it: the record of an intent's
    place, the true record that of an `unknown` one; of two records the one that ended later."""
    if record.phase is not Phase.RECORDED:
        return False
    if there.phase is not Phase.RECORDED:
        return True
    if (record.outcome is Outcome.UNKNOWN) != (there.outcome is Outcome.UNKNOWN):
        return there.outcome is Outcome.UNKNOWN
    return ended_at(record) > ended_at(there)


def readable(rows: Iterable[tuple[Any, ...]], damaged: list[str]) -> Iterator[RunRecord]:
    """Of rows of id and body the records that can be read; the others are named in `damaged`."""
    for run_id, body in rows:
        try:
            yield _record(body)
        except msgspec.MsgspecError as error:
            damaged.append(f"run {run_id}: {error}")


def queued(bodies: Iterable[tuple[str, str]], damaged: list[str]) -> Iterator[Waiting]:
    """Entries of a queue by id and JSON; those that cannot be read are added to `damaged`."""
    for run_id, body in bodies:
        try:
            yield Waiting(msgspec.json.decode(body, type=Entry))
        except msgspec.MsgspecError as error:
            damaged.append(f"run {run_id}, which waits in a queue: {error}")

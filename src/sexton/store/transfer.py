"""Putting the contents of one store, or of a backup, into another store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Protocol, assert_never

from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.model.run import Phase, RunRecord, intent_of
from sexton.store.archive import (
    Counts,
    Fence,
    Fired,
    Item,
    Recorded,
    Restorable,
    StateValue,
    Unfinished,
    Waiting,
    is_newer,
)
from sexton.store.coordination import Store

AT_ONCE = 500
"""Items that are handed to the store together: it commits them as a group."""


class Target(Store, Restorable, Protocol):
    """A store that takes contents of another one."""


async def transfer(items: Iterable[Item], target: Target, *, merging: bool) -> Counts:
    """Returns how many were written. With `merging` nothing newer than an item is replaced: of a run what `is_newer`
    says, of job states what is there, of fences the higher, of occurrences the first claim.
    Raises StoreError; what was written until then stays, and all of it may be done once more with `merging`."""
    written = Counts()
    for batch in _batches(iter(items)):
        # Tasks begin in this order, and the store keeps the order of the calls: histories come out as they were.
        done = await asyncio.gather(*(_put(item, target, merging) for item in batch))
        for item, put in zip(batch, done, strict=True):
            if put:
                written.add(item)
    return written


def _batches(items: Iterator[Item]) -> Iterator[list[Item]]:
    """What belongs together: of one kind, so that no item waits for another of its batch."""
    batch: list[Item] = []
    for item in items:
        if batch and (type(item) is not type(batch[0]) or len(batch) >= AT_ONCE):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


async def _put(item: Item, target: Target, merging: bool) -> bool:
    match item:
        case Recorded(record):
            if merging and not await _gives_way(record, target):
                return False
            await target.record(record)
        case Unfinished(record):
            if merging and await target.get(record.launch.id) is not None:
                return False
            await _put_unfinished(record, target)
        case StateValue(job, key, value):
            if merging and await target.get_state(job, key) is not None:
                return False
            await target.put_state(job, key, value)
        case Fence(name, fence):
            await target.raise_fence(name, fence)
        case Fired(job, scheduled_for, by):
            claimant = NodeIdentity(id=by, name=by, pid=0, pid_started_ticks=0, boot_id="", pid_namespace=0)
            return await target.claim_fire(job, scheduled_for, claimant)
        case Waiting(entry):
            if target.queue is None:
                raise StoreError(f"run {entry.launch.id} of job {entry.launch.job} waits in queue {entry.queue}, and "
                                 "the store that it is to be put into has no queue")
            await target.queue.enqueue([entry])
        case _:
            assert_never(item)
    return True


async def _gives_way(record: RunRecord, target: Target) -> bool:
    there = await target.get(record.launch.id)
    return there is None or is_newer(record, there)


async def _put_unfinished(record: RunRecord, target: Target) -> None:
    await target.intend(record.launch)
    if record != intent_of(record.launch) and record.phase is not Phase.RECORDED:
        await target.keep(record)

"""What a daemon does beside its runs: keep its slots, hear the other nodes and be heard, forget what is old."""

from __future__ import annotations

import asyncio

from sexton.daemon.fleet import Fleet
from sexton.daemon.retention import Retention
from sexton.run.registry import Registry
from sexton.run.slots import Slots
from sexton.store.coordination import Store


def live_beside_runs(
    store: Store, fleet: Fleet, slots: Slots, registry: Registry, retention: Retention,
) -> list[asyncio.Task[None]]:
    """Tasks that never end; whoever gets them cancels them. A store that is one node's own has nobody to hear."""
    tasks = [asyncio.create_task(slots.keep_renewing(), name="slots"),
             asyncio.create_task(retention.run(), name="retention")]
    if retention.orphans is not None:
        tasks.append(asyncio.create_task(retention.orphans.run(), name="output of forgotten runs"))
    if store.capabilities.shared:
        from sexton.daemon.inbox import Inbox  # one node alone starts sooner without it

        inbox = Inbox(store, fleet.me.id, registry, slots)
        tasks += [asyncio.create_task(fleet.run(), name="nodes"), asyncio.create_task(inbox.run(), name="inbox")]
    return tasks

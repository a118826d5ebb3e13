"""A process of its own that fills and empties a queue for ever, for tests that end it.

`KIND PLACE`: prints `E <id>` once an enqueueing was acknowledged and `F <id>` once an end was.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import Any

from ledger_samples import launch, recorded

from sexton.model.node import NodeIdentity
from sexton.store.postgres import PostgresStore
from sexton.store.queue import Entry, Finish
from sexton.store.sqlite import SqliteStore

ME = NodeIdentity(id="child#1", name="child", pid=1, pid_started_ticks=0, boot_id="b", pid_namespace=0)


async def fill(queue: Any) -> None:
    for number in itertools.count(1):
        await queue.enqueue([Entry(launch=launch(number))])
        print("E", launch(number).id, flush=True)


async def empty(queue: Any) -> None:
    done: list[Finish] = []
    while True:
        step = await queue.step(ME, ["default"], 3, done)
        for one in done:
            print("F", one.record.launch.id, flush=True)
        done = [Finish(by=ME.id, fence=claim.fence, record=recorded(int(claim.entry.launch.id[-12:], 16)))
                for claim in step.claimed]


async def main() -> None:
    kind, place = sys.argv[1:]
    store: Any = PostgresStore(place) if kind == "postgres" else SqliteStore(place)
    await store.open()
    await asyncio.gather(fill(store.queue), empty(store.queue))


asyncio.run(main())

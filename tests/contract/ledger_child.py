"""A process of its own that uses a SqliteStore, for tests that end it or limit it.

`write DIR`: writes intents and records for ever; prints `I <id>` or `R <id>` once a write was acknowledged.
`full DIR`: meets a file size limit, and prints what it saw.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import sys

from ledger_samples import launch, recorded

from sexton.model.errors import StoreError
from sexton.store.sqlite import SqliteStore


async def write_for_ever(store: SqliteStore) -> None:
    numbers = itertools.count()

    async def worker() -> None:
        for number in numbers:
            await store.intend(launch(number))
            print("I", launch(number).id, flush=True)
            if number % 3:
                await store.record(recorded(number))
                print("R", launch(number).id, flush=True)

    await asyncio.gather(*(worker() for _ in range(20)))


async def meet_a_full_disk(store: SqliteStore) -> None:
    await store.record(recorded(1))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow beyond what the log has now: as good as a full disk.
    size = os.stat(store.directory / "ledger.sqlite3-wal").st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    answers = await asyncio.gather(*(store.record(recorded(n)) for n in range(2, 12)), return_exceptions=True)
    print("refused", sum(isinstance(answer, StoreError) for answer in answers))
    print("left", len(await store.runs(limit=99)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await store.record(recorded(50))
    print("later", len(await store.runs(limit=99)))


async def main() -> None:
    store = SqliteStore(sys.argv[2])
    await store.open()
    await {"write": write_for_ever, "full": meet_a_full_disk}[sys.argv[1]](store)
    await store.close()


asyncio.run(main())

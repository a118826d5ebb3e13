"""Everything that an open store consists of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from sexton.store.directory.files import Files
from sexton.store.directory.leases import LeaseFiles
from sexton.store.directory.post import Heartbeats, Letters, Occurrences
from sexton.store.directory.probe import examine
from sexton.store.directory.reading import Reading
from sexton.store.directory.root import Root
from sexton.store.directory.shelves import Shelves
from sexton.store.directory.threads import Threads
from sexton.store.directory.writer import Writer
from sexton.store.directory.writing import Writing

log = logging.getLogger(__name__)

READERS: Final = 4
LEASE_THREADS: Final = 4
"""Leases, signals, nodes and fires never queue behind reads and writes of the ledger."""

T = TypeVar("T")


class Opened:
    """From a folder that was taken up to the end of its threads."""

    def __init__(
        self, folder: Path, max_runs_per_job: int, on_pruned: Callable[[Sequence[str]], None] | None
    ) -> None:
        self.files = files = Files(str(folder))
        self._root = Root(files)
        self.leases = LeaseFiles(files)
        self.letters, self.heartbeats, self.occurrences = Letters(files), Heartbeats(files), Occurrences(files)
        shelves = Shelves(files)
        self.reading = Reading(files, shelves)
        self._readers = Threads("reader", READERS, files.root)
        self.coordinators = Threads("lease", LEASE_THREADS, files.root)
        self.writer = Writer(
            files, self._root, Writing(files, shelves, self.reading),
            max_runs_per_job=max_runs_per_job, on_pruned=on_pruned,
        )

    async def take_up(self) -> None:
        """Raises StoreError, and lets go of the threads, when the folder cannot be used."""
        try:
            await self.coordinators.ask(self._root.open)
            self.leases.untrusted = await self.coordinators.ask(lambda: examine(self.files))
        except BaseException:
            self.stop_asking()
            self.writer.abandon()
            raise
        if self.leases.untrusted is not None:
            log.error("state: the store's file locks cannot be trusted for cluster-wide concurrency (%s); "
                      "concurrencyScope: cluster claims degrade per onStoreUnavailable", self.leases.untrusted)

    async def coordinate(self, work: Callable[[], T]) -> T:
        """On the store that was opened and no other. Raises StoreError."""
        return await self.coordinators.ask(partial(self._checked, work))

    async def question(self, work: Callable[[], T]) -> T:
        """As `coordinate`, for what may take longer. A store that is gone is not an empty one: it raises StoreError."""
        return await self._readers.ask(partial(self._checked, work))

    def _checked(self, work: Callable[[], T]) -> T:
        self._root.check()
        return work()

    def stop_asking(self) -> None:
        self._readers.stop()
        self.coordinators.stop()

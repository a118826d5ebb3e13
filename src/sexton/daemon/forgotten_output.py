"""Output files whose runs the store has forgotten: another node pruned them, or a crash came between the two."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime

import msgspec

from sexton.execution.runlog import OutputFiles
from sexton.model.errors import StoreError
from sexton.run.identity import bound_at
from sexton.store.coordination import bounded
from sexton.store.port import Ledger

logger = logging.getLogger("sexton.store")

FIRST_SECONDS = 90.0
EVERY_SECONDS = 3600.0
QUIET_SECONDS = 3600.0
"""A file to which something was written within it is left alone."""
AT_ONCE = 500
REMOVED_AT_ONCE = 20
"""By the thread that writes output."""
BREATH_SECONDS = 0.05


MARK = "output.json"
"""Beside the folder of output files."""


class Mark(msgspec.Struct, frozen=True):
    """Whose runs the files are of, and since when. Those from before may be known to another store."""

    store: str
    since: datetime


class ForgottenOutput:
    """For nodes that share a database: their output files are their own, but any node may prune their runs."""

    def __init__(
        self, ledger: Ledger, files: OutputFiles, database: Callable[[], str | None],
        ours: Callable[[], Collection[str]],
    ) -> None:
        """`database` says which one is in use now; None: it is none. `ours` tells the ids of runs that live here, or
        whose records wait for the store."""
        self._ledger = ledger
        self._files = files
        self._database = database
        self._ours = ours
        self.removed = 0

    async def run(self) -> None:
        """For ever: soon after the start, then once an hour."""
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            try:
                await self.remove()
            except (StoreError, OSError) as failure:
                logger.warning("output files of runs that are forgotten could not be looked for: %s", failure)
            await asyncio.sleep(EVERY_SECONDS)

    async def remove(self) -> None:
        """One pass. A store that knows none of the runs is not believed: it may be another one, or begun anew. Raises
        StoreError and OSError; then nothing was removed."""
        if (database := self._database()) is None:
            return
        since = bound_at(await asyncio.to_thread(self._since, database))
        unknown: list[str] = []
        known = 0
        for folder in await asyncio.to_thread(self._files.folders):
            found = await asyncio.to_thread(self._quiet, folder)
            for first in range(0, len(found), AT_ONCE):
                living = set(self._ours())  # before the store: a record that waits for it now may be there by then
                some = [run_id for run_id in found[first:first + AT_ONCE] if run_id >= since and run_id not in living]
                present = await bounded(self._ledger.known(some))
                unknown += [run_id for run_id in some if run_id not in present]
                known += len(present)
                await asyncio.sleep(BREATH_SECONDS)
        if unknown and not known:
            logger.warning("the store knows none of the %d runs whose output lies in %s: the files are left there",
                           len(unknown), self._files.directory)
            return
        await self._forget(unknown)

    def _since(self, database: str) -> datetime:
        """When this database came into use here: it cannot know older runs, and does not mean that nobody does."""
        path = self._files.directory.parent / MARK
        try:
            mark = msgspec.json.decode(path.read_bytes(), type=Mark)
        except (OSError, msgspec.MsgspecError):
            mark = None
        if mark is None or mark.store != database:
            mark = Mark(store=database, since=datetime.now(UTC))
            path.write_bytes(msgspec.json.encode(mark))
        return mark.since

    def _quiet(self, folder: str) -> list[str]:
        try:
            return self._files.quiet(folder, time.time() - QUIET_SECONDS)
        except (FileNotFoundError, NotADirectoryError):
            return []  # gone with its last file, or nothing of ours

    async def _forget(self, run_ids: list[str]) -> None:
        for first in range(0, len(run_ids), REMOVED_AT_ONCE):
            self._files.forget(run_ids[first:first + REMOVED_AT_ONCE])
            await asyncio.sleep(BREATH_SECONDS)
        self.removed += len(run_ids)
        if run_ids:
            logger.info("output of %d runs that the store has forgotten was removed", len(run_ids))

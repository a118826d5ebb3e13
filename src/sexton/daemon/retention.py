"""Forgetting runs by age (`state.maxRunAgeSeconds`), a few at a time so that no writer has to wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from sexton.daemon.forgotten_output import ForgottenOutput
from sexton.model.clock import Clock
from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.model.run import Phase
from sexton.model.settings import StateSettings
from sexton.run.facilities import Facilities
from sexton.run.identity import bound_at
from sexton.store.coordination import Granted, Store, bounded
from sexton.store.port import ended_at

logger = logging.getLogger("sexton.store")

EVERY_SECONDS = 3600.0
FIRST_SECONDS = 60.0
AT_ONCE = 200
BREATH_SECONDS = 0.05
LEASE = "retention"


def retention_of(
    state: Callable[[], StateSettings | None], store: Store, me: NodeIdentity, facilities: Facilities,
    on_pruned: Callable[[Sequence[str]], None],
) -> Retention:
    """What this node does about what is old. `state` is the section in force: a reload may change it."""
    def age() -> float:
        now = state()
        return now.max_run_age_seconds if now is not None else 0.0

    def database() -> str | None:
        now = state()
        if now is None or now.url is None:
            return None
        from sexton.store.postgres.database import shown

        return f"{shown(now.url)}, deployment {now.deployment_id}"

    retention = Retention(store, me, facilities.clock, age, on_pruned)
    if (files := facilities.output_files) is not None and database() is not None:
        retention.forgotten_output = ForgottenOutput(store, files, database, lambda: {
            *(run.id for run in facilities.registry), *(it.launch.id for it in facilities.unwritten.of(None))})
    return retention


class Retention:
    def __init__(
        self, store: Store, me: NodeIdentity, clock: Clock, age: Callable[[], float],
        on_pruned: Callable[[Sequence[str]], None],
    ) -> None:
        """`age` in seconds, asked for at each pass; 0 or less keeps everything. `on_pruned` hears the ids of what was
        forgotten."""
        self._store = store
        self._me = me
        self._clock = clock
        self._age = age
        self._on_pruned = on_pruned
        self.forgotten = 0
        self.forgotten_output: ForgottenOutput | None = None
        """None where there are no output files, or where other nodes' are among them."""

    async def run(self) -> None:
        """For ever, once an hour."""
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            try:
                if self._age() > 0:
                    await self.forget_old()
            except StoreError as failure:
                logger.warning("old runs could not be forgotten: %s", failure)
            await asyncio.sleep(EVERY_SECONDS)

    async def forget_old(self) -> None:
        """One pass over all jobs; of several nodes one makes it. Raises StoreError."""
        lease = await bounded(self._store.claim(LEASE, self._me, EVERY_SECONDS))
        if not isinstance(lease, Granted):
            return
        for job in await self._store.recent(1):
            while gone := await self._forget_some(job):
                self.forgotten += len(gone)
                self._on_pruned(gone)
                await asyncio.sleep(BREATH_SECONDS)
        await bounded(self._store.release(lease.lease))

    async def _forget_some(self, job: str) -> Sequence[str]:
        """The oldest of those that ended too long ago. A run's id tells when it was launched, which bounds the search;
        when it ended decides."""
        since = self._clock.now() - timedelta(seconds=self._age())
        page = await bounded(self._store.runs(job=job, before=bound_at(since), limit=AT_ONCE))
        old = sum(record.phase is Phase.RECORDED and ended_at(record) < since for record in page)
        if not old:
            return []
        kept = sum((await bounded(self._store.history(job, 0))).totals.values())
        return await self._store.prune(job, max(0, kept - old))

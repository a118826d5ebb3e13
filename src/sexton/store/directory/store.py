"""`DirectoryStore`: ledger, job state and coordination of several nodes on a shared mount."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from sexton.model.errors import StoreError
from sexton.model.node import NodeFacts, NodeIdentity
from sexton.model.run import Launch, Outcome, RunRecord
from sexton.store.batch import Intend, Note, Prune, PutState, Record
from sexton.store.coordination import Claimed, Denied, Fire, Granted, Lease, Occurrence, Presence, Signal
from sexton.store.directory.cleaning import clean
from sexton.store.directory.opened import LEASE_THREADS, READERS, Opened
from sexton.store.directory.reading import Wanted
from sexton.store.directory.root import deployment_folder
from sexton.store.port import Capabilities, JobHistory

log = logging.getLogger(__name__)

LOOK_FOR_SIGNALS_EVERY: Final = 0.25
"""Seconds."""


class DirectoryStore:
    """Implements `Ledger`, `JobState` and `Coordination`. Several daemons have it open at once, on one machine or many.

    `path` and `deployment_id` say where. Of each job the newest `max_runs_per_job` recorded runs are kept (0 or less:
    all), and up to a sixteenth more; `on_pruned` then hears on the event loop the ids that this opening has removed.
    `close_timeout` (seconds) bounds `close`. Every call answers within ten seconds, or raises StoreError: a mount that
    hangs costs a few threads, and is used again as soon as it answers.
    """

    capabilities = Capabilities(durable=True, shared=True)
    queue: None = None
    """A folder has none: an order that all nodes agree on takes more than files can give at a bearable price."""

    def __init__(
        self,
        path: str | Path,
        deployment_id: str = "default",
        *,
        max_runs_per_job: int = 1000,
        on_pruned: Callable[[Sequence[str]], None] | None = None,
        close_timeout: float = 10.0,
    ) -> None:
        self._directory = deployment_folder(path, deployment_id)
        self._max_runs_per_job = max_runs_per_job
        self._on_pruned = on_pruned
        self._close_timeout = close_timeout
        self._opening = False
        self._opened: Opened | None = None
        self._background: asyncio.Task[None] | None = None

    @property
    def directory(self) -> Path:
        """Where this deployment's files are."""
        return self._directory

    @property
    def problem(self) -> str | None:
        return None if self._opened is None else self._opened.writer.problem

    @property
    def lock_problem(self) -> str | None:
        """Why claims raise UntrustedLocks; None while nothing speaks against the mount. Found out once, by `open`."""
        return None if self._opened is None else self._opened.leases.untrusted

    @property
    def quarantined(self) -> int:
        """Damaged files that this opening has put aside."""
        return 0 if self._opened is None else self._opened.files.quarantined

    async def open(self) -> None:
        if self._opened is not None or self._opening:
            raise StoreError("the store is open already")
        self._opening = True
        try:
            opened = Opened(self._directory, self._max_runs_per_job, self._on_pruned)
            await opened.take_up()
        finally:
            self._opening = False
        self._opened = opened
        self._background = asyncio.create_task(self._clean(opened), name="store cleaning")

    async def close(self) -> None:
        """Raises StoreError when the queue could not be written within `close_timeout`."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        if self._background is not None:
            self._background.cancel()
        opened.stop_asking()
        await opened.writer.stop(within=self._close_timeout)

    async def intend(self, launch: Launch) -> None:
        await self._now().writer.submit(Intend(launch))

    def note(self, record: RunRecord) -> None:
        self._now().writer.post(Note(record))

    async def keep(self, record: RunRecord) -> None:
        await self._now().writer.submit(Note(record))

    async def record(self, record: RunRecord) -> None:
        await self._now().writer.submit(Record(record))

    async def unfinished(self) -> Sequence[RunRecord]:
        return await self._now().question(self._now().reading.unfinished)

    async def unfinished_of(self, node: str) -> Sequence[RunRecord]:
        return [record for record in await self.unfinished() if record.launch.daemon == node]

    async def get(self, run_id: str) -> RunRecord | None:
        return await self._now().question(partial(self._now().reading.get, run_id))

    async def known(self, run_ids: Sequence[str]) -> frozenset[str]:
        return await self._now().question(partial(self._now().reading.present, run_ids))

    async def history(self, job: str, limit: int) -> JobHistory:
        return await self._now().question(partial(self._now().reading.history, job, limit))

    async def recent(self, per_job: int) -> Mapping[str, JobHistory]:
        """The ten seconds are for each job: a server that is slow with very many is not one that hangs."""
        return await self._recent_of(await self._now().question(self._now().reading.recorded_jobs), per_job)

    async def news(self, per_job: int) -> Mapping[str, JobHistory]:
        return await self._recent_of(await self._now().question(self._now().reading.changed_jobs), per_job)

    async def _recent_of(self, folders: Sequence[str], per_job: int) -> dict[str, JobHistory]:
        opened = self._now()
        turns = asyncio.Semaphore(READERS)

        async def one(folder: str) -> tuple[str, JobHistory] | None:
            async with turns:
                return await opened.question(partial(opened.reading.recent, folder, per_job))

        found = await asyncio.gather(*map(one, folders))
        return dict(history for history in found if history is not None)

    async def runs(
        self, *, job: str | None = None, outcome: Outcome | None = None, node: str | None = None, limit: int,
        before: str | None = None, after: str | None = None,
    ) -> Sequence[RunRecord]:
        wanted = Wanted(job=job, outcome=outcome, node=node, before=before, after=after)
        return await self._now().question(partial(self._now().reading.runs, wanted, limit))

    async def prune(self, job: str, keep: int) -> Sequence[str]:
        return await self._now().writer.submit(Prune(job, keep)) or []

    async def get_state(self, job: str, key: str) -> str | None:
        return await self._now().question(partial(self._now().reading.get_state, job, key))

    async def states(self, key: str) -> Mapping[str, str]:
        return await self._now().question(partial(self._now().reading.states, key))

    async def put_state(self, job: str, key: str, value: str) -> None:
        await self._now().writer.submit(PutState(job, key, value))

    async def claim(
        self, name: str, by: NodeIdentity, ttl: float, *, heir_of: str | None = None,
    ) -> Granted | Denied:
        """Raises UntrustedLocks where `lock_problem` says why."""
        return await self._now().coordinate(partial(self._now().leases.claim, name, by, ttl, heir_of))

    async def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        """Raises UntrustedLocks as `claim` does."""
        return await self._now().coordinate(partial(self._now().leases.renew, lease, ttl))

    async def release(self, lease: Lease) -> bool:
        return await self._now().coordinate(partial(self._now().leases.release, lease))

    async def raise_fence(self, name: str, fence: int) -> None:
        """Of `Restorable`."""
        await self._now().coordinate(partial(self._now().leases.raise_fence, name, fence))

    async def read(self, name: str) -> Denied | None:
        return await self._now().coordinate(partial(self._now().leases.read, name))

    async def send(self, signal: Signal) -> None:
        await self._now().coordinate(partial(self._now().letters.send, signal))

    async def take(self, me: str) -> Sequence[Signal]:
        return await self._now().coordinate(partial(self._now().letters.take, me))

    async def signalled(self, me: str, within: float) -> None:
        end = time.monotonic() + within
        while not await self._now().coordinators.ask(partial(self._now().letters.any_for, me)):
            left = end - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(min(left, LOOK_FOR_SIGNALS_EVERY))

    async def announce(self, facts: NodeFacts) -> None:
        await self._now().coordinate(partial(self._now().heartbeats.announce, facts))

    async def leave(self, node: str) -> None:
        await self._now().coordinate(partial(self._now().heartbeats.leave, node))
        await self._now().coordinate(partial(self._now().letters.drop, node))

    async def nodes(self) -> Sequence[Presence]:
        return await self._now().coordinate(self._now().heartbeats.all)

    async def claim_fire(self, job: str, scheduled_for: datetime, by: NodeIdentity) -> bool:
        return await self._now().coordinate(partial(self._now().occurrences.claim, job, scheduled_for, by))

    async def claim_fires(self, wanted: Sequence[Occurrence], by: NodeIdentity, most: int) -> Claimed:
        """Side by side, and one thread stays for the leases. Raises StoreError when nothing was decided."""
        opened, threads = self._now(), LEASE_THREADS - 1
        rounds = (partial(opened.occurrences.claim_some, wanted[number::threads], by, -((number - most) // threads))
                  for number in range(threads))
        told = await asyncio.gather(*map(opened.coordinate, rounds), return_exceptions=True)
        ours, others = set[Occurrence](), set[Occurrence]()
        for one in told:
            if isinstance(one, Claimed):
                ours |= one.ours
                others |= one.others
        for failure in told:
            if isinstance(failure, BaseException):
                log.debug("a part of a round of claims failed: %s", failure)
                if not (ours or others):
                    raise failure
        return Claimed(frozenset(ours), frozenset(others))

    async def fired(self, job: str, since: datetime) -> Sequence[Fire]:
        return await self._now().coordinate(partial(self._now().occurrences.claimed, job, since))

    async def forget_fires(self, before: datetime) -> None:
        await self._now().question(partial(self._now().occurrences.forget, before))

    def _now(self) -> Opened:
        if self._opened is None:
            raise StoreError("the store is not open")
        return self._opened

    async def _clean(self, opened: Opened) -> None:
        try:
            await opened.question(partial(clean, opened.files, opened.reading, opened.occurrences))
        except StoreError as error:
            log.warning("leftovers in the store could not be removed: %s", error)

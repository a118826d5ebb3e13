"""Telling a store what a daemon has, before it takes the place of the one in use and while runs begin and end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine
from typing import Any

import msgspec

from sexton.daemon import boot, catchup, pauses
from sexton.daemon.nodestate import own_key
from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.model.retry import RetryState
from sexton.model.run import Outcome, Phase, RunRecord
from sexton.run import retries
from sexton.run.live import Run
from sexton.run.registry import Registry
from sexton.store.coordination import Store, bounded
from sexton.store.inuse import StoreInUse

logger = logging.getLogger("sexton.store")

AT_ONCE = 50
"""So many writes are asked for side by side."""
PATIENCE_SECONDS = 10.0
"""How long an instant is looked for at which the new store knows everything; where runs come and go without a pause
there may be none. Then it is told of the last ones after the move."""
FLEET_WIDE = (pauses.KEY,)
NODES_OWN = (boot.KEY, retries.KEY, catchup.OWED, catchup.DECIDED)
"""Keys of job states."""
MOVED = {retries.KEY: msgspec.json.encode(RetryState(settled="the store was moved")).decode(), catchup.OWED: "[]"}
"""By key: what takes the place of something that waits."""
WAITS_ON = "the daemon's configuration names another store; the run waits on there"
STAYED = "the store was not moved here after all; the run waits on in the other one"


class Bringing:
    """From the store in use to the one that `new` is. Raises StoreError, all of it."""

    def __init__(self, store: StoreInUse, new: Store, registry: Registry, me: NodeIdentity) -> None:
        self._store = store
        self._new = new
        self._registry = registry
        self._me = me
        self.known: dict[str, Run] = {}
        """By id: every run that the new store has been told of, or is about to be."""
        self._told: dict[str, object] = {}
        """By id: at which stage the run was when the new store was told of it."""

    async def bring(self) -> None:
        """Tell everything. Between the last look at what there is and the return nothing is waited for."""
        self._store.take_put()  # what is written from here on is told after what we are about to read
        for key in FLEET_WIDE:
            await self._bring_states(key, nodes_own=False)
        for key in NODES_OWN:
            await self._bring_states(self._own(key), nodes_own=True)
        limit = time.monotonic() + PATIENCE_SECONDS
        while await self.bring_late() and time.monotonic() < limit:
            pass
        self._look()

    async def bring_late(self) -> bool:
        """Tell what has changed since it was told last; whether there was anything."""
        put, late = self._store.take_put(), self._look()
        await together([self._new.put_state(job, key, value) for (job, key), value in put.items()])
        await together([self._bring_run(run) for run in late])
        return bool(put or late)

    def _look(self) -> list[Run]:
        """The runs whose stage the new store does not know, those last that a later daemon would start."""
        for run in self._registry:
            if run.intended.is_set() or run.recorded.is_set() or run.id in self._store.intending:
                self.known[run.id] = run  # any other may yet be turned away, and then it was never there
        late = [run for run in self.known.values() if self._told.get(run.id) != _stage(run)]
        return sorted(late, key=lambda run: run.waits_for_slots)

    async def _bring_states(self, key: str, nodes_own: bool) -> None:
        """What is told there already may be newer where other nodes say such things, too: one may have moved before
        us, or never have left."""
        told = await bounded(self._new.states(key))
        try:
            ours = await bounded(self._store.states(key))
        except StoreError as failure:
            raise StoreError(f"what the store in use knows cannot be read: {failure}") from failure
        await together([
            self._new.put_state(job, key, value) for job, value in ours.items()
            if job not in told or (told[job] != value and (nodes_own or not pauses.is_newer(told[job], value)))
        ])

    async def _bring_run(self, run: Run) -> None:
        self._told[run.id] = _stage(run)
        if run.recorded.is_set():
            await self._new.record(run.record())
            return
        await self._new.intend(run.launch)
        await self._new.keep(run.record())
        there = await self._new.get(run.id) if run.waits_for_slots else None
        if there is not None and there.phase is Phase.RECORDED:
            logger.warning("Job %s: run %s waits on, but the store that it comes back to has it as skipped: should the "
                           "daemon crash before its turn, it is not started", run.job.name, run.id)

    async def settle_unfinished(self) -> list[str]:
        """What the new store has of runs that are not here: what this process has left there, in a move that was given
        up or a record that could not be written, gets its end. Returns the ids of those that an earlier daemon has
        left and that only a start deals with."""
        strange: list[str] = []
        shared = self._new.capabilities.shared
        left = await bounded(self._new.unfinished_of(self._me.id) if shared else self._new.unfinished())
        for record in left:
            if self._registry.get(record.launch.id) is not None:
                continue
            if record.launch.daemon != self._me.id:
                strange.append(record.launch.id)
            elif (ended := await bounded(self._store.get(record.launch.id))) and ended.phase is Phase.RECORDED:
                await bounded(self._new.record(ended))
        return strange

    async def take_leave(self, left: Store, waiting: Collection[Run]) -> None:
        """The move is made: what waits (for a pool: `waiting`, as a retry, as an occurrence that was missed) waits in
        the new store only. Started on the one that was left, a daemon would start it a second time."""
        await together([left.record(skipped(run, WAITS_ON)) for run in waiting])
        for key, moved in MOVED.items():
            own = self._own(key)
            told = await bounded(left.states(own))
            await together([left.put_state(job, own, moved) for job, value in told.items() if value != moved])

    def _own(self, key: str) -> str:
        return own_key(key, self._me.name) if self._new.capabilities.shared else key

    async def take_back(self) -> None:
        """The move is given up: a daemon that is started on that store must not start what waits here."""
        await together([self._new.record(skipped(run, STAYED)) for run in self.known.values()
                        if run.id in self._told and run.waits_for_slots])


def _stage(run: Run) -> object:
    """What a later daemon must know of it, or would start it again or not find it."""
    return run.phase, run.granted, run.pid, run.recorded.is_set(), run.unconfirmed


def skipped(run: Run, why: str) -> RunRecord:
    """The record of a run that is not this store's to start."""
    return msgspec.structs.replace(run.record(), phase=Phase.RECORDED, outcome=Outcome.SKIPPED, fail_reason=why)


async def together(operations: Collection[Coroutine[Any, Any, Any]]) -> None:
    """Some at a time, each bounded. Raises the first StoreError when those that were begun with it are over."""
    waiting = list(operations)
    failures: list[BaseException] = []
    while waiting and not failures:
        now, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
        answers = await asyncio.gather(*map(bounded, now), return_exceptions=True)
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
    for operation in waiting:
        operation.close()
    if failures:
        raise failures[0]

"""What other nodes ask of this one: to end a run, to give up a slot, to abandon a run that could not be terminated."""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never

from sexton.model.errors import StoreError
from sexton.model.run import StopCause
from sexton.run.mailbox import AbandonRequested, StopRequested
from sexton.run.pools import withdraw
from sexton.run.registry import Registry
from sexton.run.slots import Slots
from sexton.store.coordination import Signal, SignalKind, Signals, bounded

logger = logging.getLogger("sexton.nodes")

WAIT_SECONDS = 5.0
IDLE_SECONDS = 0.5
"""Nothing runs here that anybody could ask about: how long until we look whether that is still so."""
AGAIN_SECONDS = 1.0


class Inbox:
    def __init__(self, signals: Signals, me: str, registry: Registry, slots: Slots) -> None:
        self._signals = signals
        self._me = me
        self._registry = registry
        self._slots = slots
        self.problem: str | None = None

    async def run(self) -> None:
        """For ever: take what comes, as soon as it comes. A request that must first ask the store does not hold up
        those behind it."""
        async with asyncio.TaskGroup() as obeying:
            while True:
                await self._take(obeying)

    async def _take(self, obeying: asyncio.TaskGroup) -> None:
        if not len(self._registry):
            await asyncio.sleep(IDLE_SECONDS)
            return
        try:
            for signal in await bounded(self._signals.take(self._me)):
                obeying.create_task(self.obey(signal))
            self.problem = None
            await bounded(self._signals.signalled(self._me, WAIT_SECONDS))
        except StoreError as failure:
            if self.problem is None:
                logger.warning("requests of other nodes cannot be heard now: %s", failure)
            self.problem = str(failure)
            await asyncio.sleep(AGAIN_SECONDS)

    async def obey(self, signal: Signal) -> None:
        """A request about something that is not here (any more) does nothing, and that is logged."""
        match signal.kind:
            case SignalKind.CANCEL:
                self._cancel(signal)
            case SignalKind.YIELD:
                await self._yield(signal)
            case SignalKind.ABANDON:
                self._abandon(signal)
            case _:
                assert_never(signal.kind)

    def _cancel(self, signal: Signal) -> None:
        run = self._registry.get(signal.run or "")
        if run is None or run.over:
            logger.info("node %s asked to cancel run %s, which has ended", signal.sender, signal.run)
            return
        logger.info("Job %s: cancel of run %s requested on node %s%s%s", run.job.name, run.id, signal.sender,
                    f" by {signal.requested_by}" if signal.requested_by else "",
                    f": {signal.reason}" if signal.reason else "")
        withdraw(run, StopRequested(StopCause.CANCEL, signal.reason, signal.requested_by, signal.force))

    def _abandon(self, signal: Signal) -> None:
        run = self._registry.get(signal.run or "")
        if run is None or not run.unconfirmed:
            logger.info("node %s asked to abandon run %s, which keeps no place", signal.sender, signal.run)
            return
        run.mailbox.post(AbandonRequested(signal.reason, signal.requested_by))

    async def _yield(self, signal: Signal) -> None:
        """The exact fence counts: a request to an earlier holder concerns nobody. That we are the earlier one we may
        not know yet, if we were stopped or cut off for as long as a slot lives."""
        found = [(job, held) for job, held in self._slots.held()
                 if held.lease.name == signal.lease and held.lease.fence == signal.fence]
        if not found or not await self._slots.is_ours(found[0][0]):
            logger.info("node %s asked for slot %s as it was before (fence %s)", signal.sender, signal.lease,
                        signal.fence)
            return
        ((job, held),) = found
        logger.info("Job %s: node %s requested this instance be replaced (concurrencyPolicy: Replace, concurrencyScope:"
                    " cluster); cancelling", job, signal.sender)
        for run in self._registry.of(job):
            if not run.over and run.id in held.runs:
                withdraw(run, StopRequested(StopCause.REPLACED, signal.reason, signal.requested_by))

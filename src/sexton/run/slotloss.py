"""What becomes of runs whose slot in the cluster is another node's, or may soon be (`slotLost`)."""

from __future__ import annotations

import logging
from collections.abc import Collection

from sexton.model.job import SlotLost
from sexton.model.run import StopCause
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.run.pools import withdraw
from sexton.run.registry import Registry
from sexton.run.slots import Slots

logger = logging.getLogger("sexton.run")


class SlotLoss:
    """`continue` lets them go on. `cancel` ends them before another node may begin: asked while there is still time
    for a graceful step, which the end of the trust in the lease then cuts short, whatever `killTimeout` says."""

    def __init__(self, registry: Registry, slots: Slots) -> None:
        self._registry = registry
        slots.on_endangered, slots.on_distrusted, slots.on_lost = self._endangered, self._distrusted, self._lost

    def _endangered(self, job: str, ids: Collection[str]) -> None:
        for run in self._to_end(job, ids):
            logger.warning("Job %s: its cluster concurrency slot cannot be renewed, and may be another node's soon; "
                           "run %s is cancelled (slotLost: cancel)", job, run.id)
            self._stop(run, "its slot could not be renewed", force=False)

    def _distrusted(self, job: str, ids: Collection[str]) -> None:
        for run in self._to_end(job, ids):
            self._stop(run, "its slot could not be renewed", force=True)

    def _lost(self, job: str, ids: Collection[str]) -> None:
        for run in self._to_end(job, ids):
            logger.warning("Job %s: run %s is cancelled (slotLost: cancel)", job, run.id)
            self._stop(run, "its slot was taken over by another node", force=True)

    def _to_end(self, job: str, ids: Collection[str]) -> list[Run]:
        return [run for run in self._registry.of(job)
                if run.id in ids and not run.over and run.job.slot_lost is SlotLost.CANCEL]

    @staticmethod
    def _stop(run: Run, reason: str, *, force: bool) -> None:
        withdraw(run, StopRequested(StopCause.LOST_LEASE, reason, force=force))

"""Runs of a node that fell silent: recorded once, as `unknown`. Nobody can look at their processes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from sexton.model.errors import StoreError
from sexton.model.run import Gone, GoneState, Outcome, Phase, RunRecord
from sexton.run.recovery import as_interrupted
from sexton.store.coordination import Interrupted
from sexton.store.port import Ledger

logger = logging.getLogger("sexton.recovery")


class Records(Ledger, Interrupted, Protocol):
    """The ledger of a store that nodes share."""


async def settle_silent(
    store: Records, node: str, now: datetime, *, job: str | None = None, spare_kept: bool = False,
) -> Sequence[RunRecord]:
    """Record what the node (by its identity) has left without a record; with `job`, only that job's runs; not those
    that outlive their daemon where `spare_kept`: the next daemon may be about to take them over. Returns the records
    written. Should the node wake, its own record takes the place of ours: it knows better. Raises StoreError
    when the store cannot say what there is."""
    written = []
    for run in await store.unfinished_of(node):
        if (job is not None and run.launch.job != job) or (spare_kept and run.launch.keep):
            continue
        record = settled(run, now)
        try:
            await store.record(record)
        except StoreError as failure:
            logger.error("Job %s: run %s of a silent node could not be recorded: %s", run.launch.job, run.launch.id,
                         failure)
            continue
        logger.warning("Job %s: run %s: %s", run.launch.job, run.launch.id, record.fail_reason)
        written.append(record)
    return written


def settled(run: RunRecord, now: datetime) -> RunRecord:
    """A run that only waited was not started; of any other it is not known whether it lives."""
    if run.phase is Phase.QUEUED:
        return replace(
            run, phase=Phase.RECORDED, outcome=Outcome.SKIPPED, finished_at=now,
            fail_reason=f"it waited for a pool on {run.launch.node}, which has fallen silent",
        )
    return as_interrupted(run, Gone(state=GoneState.UNKNOWN), by=f"{run.launch.node} fell silent before the run ended",
                          unknown=", and whether it still lives there is not known")

"""What the ledger must know of a run before a process of it exists: that it is, and that it has left the queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from sexton.execution.messages import StartFailed
from sexton.model.errors import StoreError
from sexton.run.facilities import Facilities
from sexton.run.live import Run

logger = logging.getLogger("sexton.run")

INTENT_SECONDS = 1.0
"""How long a start waits for a disk that hangs; the write stays queued and lands when the disk is back."""
REQUIRED_INTENT_SECONDS = 10.0


async def write_intent(run: Run, daemon: Facilities) -> bool:
    """Make the run known. Returns whether it may start."""
    return await _written(run, daemon, lambda: daemon.ledger.intend(run.launch), "intent", "would lose it")


async def write_claim(run: Run, daemon: Facilities) -> bool:
    """Make it known that the run waits no longer: a later daemon must not start it again. Returns whether it may
    start."""
    return await _written(run, daemon, lambda: daemon.ledger.keep(run.record()), "turn", "would have it started again")


async def _written(
    run: Run, daemon: Facilities, write: Callable[[], Coroutine[Any, Any, None]], what: str, danger: str,
) -> bool:
    """A store that fails or hangs is waited for within a bound, then `state.onStoreUnavailable` decides: degrade starts
    all the same (True), fail-closed does not."""
    if not daemon.ledger.capabilities.durable:
        await write()
        return True
    bound = REQUIRED_INTENT_SECONDS if daemon.intent_required else INTENT_SECONDS
    try:
        async with asyncio.timeout(bound):
            await write()
        return True
    except (StoreError, TimeoutError) as failure:
        daemon.counters.store_failures += 1
        why = str(failure) or f"the store did not answer within {bound:g} seconds"
    if daemon.intent_required:
        run.fail_reason = f"could not be started: its {what} could not be written ({why}, fail-closed)"
        run.learn(StartFailed(0, why, daemon.clock.monotonic()))
        return False
    logger.error(
        "Job %s: the %s of run %s could not be written (%s); it starts all the same (onStoreUnavailable: degrade), "
        "and a crash of the daemon now %s", run.job.name, what, run.id, why, danger,
    )
    return True

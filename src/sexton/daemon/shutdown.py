"""The end of the daemon: no new starts, a bounded time for what runs, then the same ladder as any cancel."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from sexton.model.run import Phase, StopCause
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.run.registry import Registry

logger = logging.getLogger("sexton.daemon")

SLACK_SECONDS = 75.0
"""Beyond the longest killTimeout: the bounds for proof and for held output, and the records."""


async def drain(registry: Registry, seconds: float, at_once: asyncio.Event) -> None:
    """Wait up to `seconds` for running runs to end by themselves (not at all once `at_once` is set), then cancel them
    with cause `shutdown` and wait for their ends and records."""
    if len(registry):
        logger.info("Shutting down: %d run(s) have %g seconds to end by themselves", len(registry), seconds)
        _stop([run for run in registry if run.phase is Phase.CLAIMED])  # replacements that wait: no new starts
        await _all_recorded(registry, seconds, at_once)
    else:
        logger.info("Shutting down: nothing runs")
    runs = [run for run in registry if run.counts_as_running]
    _stop(runs)
    if _all_are_recorded(registry):
        return
    logger.info("Shutting down: cancelling %d run(s)", len(runs))
    bound = max((run.job.kill_timeout for run in registry), default=0.0) + SLACK_SECONDS
    if not await _all_recorded(registry, bound, None):
        left = sum(not run.recorded.is_set() for run in registry)
        logger.error("Shutting down: %d run(s) are not recorded yet and are left to the next start", left)


def _stop(runs: Iterable[Run]) -> None:
    for run in runs:
        run.mailbox.post(StopRequested(StopCause.SHUTDOWN, reason="the daemon is shutting down"))


async def _all_recorded(registry: Registry, seconds: float, at_once: asyncio.Event | None) -> bool:
    async def everything() -> None:
        for run in registry:
            await run.recorded.wait()

    waiters: list[asyncio.Future[object]] = [asyncio.ensure_future(everything())]
    if at_once is not None:
        waiters.append(asyncio.ensure_future(at_once.wait()))
    await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for waiter in waiters:
        waiter.cancel()
    return _all_are_recorded(registry)


def _all_are_recorded(registry: Registry) -> bool:
    """Those that keep their place beyond their record need not be waited for: nobody knows how long that takes."""
    return all(run.recorded.is_set() for run in registry)

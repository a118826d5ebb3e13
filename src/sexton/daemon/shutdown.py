"""The end of the daemon: no new starts, a bounded time for what runs, then the same ladder as any cancel."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from sexton.model.run import Phase, StopCause
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.run.pools import withdraw
from sexton.run.registry import Registry

logger = logging.getLogger("sexton.daemon")

LOOK_SECONDS = 0.25
START_SECONDS = 2.0
START_LOOK_SECONDS = 0.005
SLACK_SECONDS = 75.0
"""Beyond the longest killTimeout: the bounds for proof and for held output, and the records."""


async def drain(registry: Registry, seconds: float, at_once: asyncio.Event, *, durable: bool) -> None:
    """Wait up to `seconds` for running runs to end by themselves (not at all once `at_once` is set), then cancel them
    with cause `shutdown` and wait for their ends and records. Runs that outlive the daemon are left to the next one,
    and so are those that wait for pools, where the queue is `durable`."""
    waiting = [run for run in registry if run.waits_for_slots]
    if durable and waiting:
        logger.info("Shutting down: %d run(s) wait for pools; they wait on for the next daemon", len(waiting))
    elif waiting:
        logger.warning("Shutting down: %d run(s) that wait for pools are cancelled: without `state` the queue ends "
                       "with the daemon", len(waiting))
        for run in waiting:
            withdraw(run, StopRequested(StopCause.SHUTDOWN, reason="the daemon is shutting down"))
    ending = _ending(registry)
    if ending:
        logger.info("Shutting down: %d run(s) have %g seconds to end by themselves", len(ending), seconds)
        _stop([run for run in registry if run.phase is Phase.CLAIMED])  # replacements that wait: no new starts
        await _all_recorded(registry, seconds, at_once)
    else:
        logger.info("Shutting down: nothing runs that would end with the daemon")
    await _starts_known(registry)
    _stop([run for run in registry if run.counts_as_running and not _stays(run)])
    ending = _ending(registry)
    if ending:
        logger.info("Shutting down: cancelling %d run(s)", len(ending))
        bound = max(run.job.kill_timeout for run in ending) + SLACK_SECONDS
        if not await _all_recorded(registry, bound, None):
            logger.error("Shutting down: %d run(s) are not recorded yet and are left to the next start",
                         len(_ending(registry)))
    for run in registry:
        if _stays(run):
            logger.warning("Job %s: run %s (pid %s) goes on without the daemon (onDaemonLoss: keep); the next one on "
                           "this state takes it over", run.job.name, run.id, run.pid)


def _ending(registry: Registry) -> list[Run]:
    """What is waited for. Not those that keep their place beyond their record: nobody knows how long that takes."""
    return [run for run in registry if not _stays(run) and not run.waits_for_slots and not run.recorded.is_set()]


def _stays(run: Run) -> bool:
    """One that is being stopped is brought to its end first."""
    return run.launch.keep and run.stop is None and run.started is not None and run.counts_as_running


async def _starts_known(registry: Registry) -> None:
    """A run that outlives the daemon and is in the hands of its supervisor: whether it stays is known when it has
    started."""
    limit = asyncio.get_running_loop().time() + START_SECONDS
    while any(map(_is_starting, registry)):
        if asyncio.get_running_loop().time() >= limit:
            return
        await asyncio.sleep(START_LOOK_SECONDS)


def _is_starting(run: Run) -> bool:
    may_start = run.held is not None and run.stop is None and (run.gate is None or run.gate.open)
    return run.launch.keep and run.phase is Phase.STARTING and may_start


def _stop(runs: Iterable[Run]) -> None:
    for run in runs:
        run.mailbox.post(StopRequested(StopCause.SHUTDOWN, reason="the daemon is shutting down"))


async def _all_recorded(registry: Registry, seconds: float, at_once: asyncio.Event | None) -> bool:
    """Those that stay do not count; one that is only being started may turn out to be one of them."""
    limit = asyncio.get_running_loop().time() + seconds
    while pending := _ending(registry):
        left = limit - asyncio.get_running_loop().time()
        if left <= 0 or (at_once is not None and at_once.is_set()):
            return False
        waiters = [asyncio.ensure_future(pending[0].recorded.wait())]
        if at_once is not None:
            waiters.append(asyncio.ensure_future(at_once.wait()))
        await asyncio.wait(waiters, timeout=min(left, LOOK_SECONDS), return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiters:
            waiter.cancel()
    return True

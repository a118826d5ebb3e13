"""Runs that an earlier daemon has left in the queues of pools: they wait on, or it is said why not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec.structs import replace

from sexton.model.errors import StoreError
from sexton.model.job import JobSpec
from sexton.model.run import Gone, GoneState, Outcome, Phase, RunRecord, Stop, StopCause, Witness
from sexton.run.identity import definition_of
from sexton.run.launch import Launcher
from sexton.store.port import Ledger

logger = logging.getLogger("sexton.pools")


async def requeue(
    ledger: Ledger, launcher: Launcher, jobs: Mapping[str, JobSpec], on_settled: Callable[[RunRecord], None],
    is_ours: Callable[[RunRecord], bool] = lambda run: True,
) -> None:
    """Let each of them wait on in its turn, under its id; the time that it may wait goes on, too. One whose job was
    changed, disabled or removed is cancelled, one whose time is over is skipped. What cannot be recorded stays in the
    ledger for the next start, and that is logged.
    """
    try:
        left = [run for run in await ledger.unfinished() if run.phase is Phase.QUEUED and is_ours(run)]
    except StoreError as failure:
        logger.error("what waited for pools before the restart cannot be read: %s", failure)
        return
    now = launcher.facilities.clock.now()
    for record in sorted(left, key=lambda run: run.launch.id):
        if launcher.facilities.registry.get(record.launch.id) is not None:
            continue  # it goes on here already
        job = jobs.get(record.launch.job)
        settled = settle(record, job, now)
        if settled is None and job is not None:
            launcher.wait_in_queue(job, launcher.here(job, record.launch))
            continue
        settled = settled or record
        logger.warning("Job %s: run %s, which waited for a pool before the restart, is not started: %s",
                       record.launch.job, record.launch.id, settled.fail_reason)
        try:
            await ledger.record(settled)
        except StoreError as failure:
            logger.error("Job %s: that cannot be recorded (%s)", record.launch.job, failure)
            continue
        on_settled(settled)


def settle(record: RunRecord, job: JobSpec | None, now: datetime) -> RunRecord | None:
    """The record of a run that is not started any more; None for one that waits on."""
    ticket = record.launch.ticket
    over = replace(record, phase=Phase.RECORDED, finished_at=now,
                   gone=Gone(state=GoneState.PROVEN, witnesses=(Witness.NEVER_STARTED,)))
    why = None
    if job is None or not job.enabled:
        why = "its job is not there any more" if job is None else "its job is disabled"
    elif ticket is None or ticket.definition != definition_of(job):
        why = "its job was changed"
    if why is not None:
        stop = Stop(cause=StopCause.CANCEL, reason=why, requested_at=now, confirmed_at=now)
        return replace(over, outcome=Outcome.CANCELLED, stop=stop, fail_reason=f"cancelled: {why}")
    if ticket is not None and now >= ticket.expires_at:
        reason = f"its time to wait for pool {ticket.pool!r} was over before the daemon was back (queueTimeout)"
        return replace(over, outcome=Outcome.SKIPPED, fail_reason=reason)
    return None

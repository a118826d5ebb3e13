"""What a dead daemon left: end it, prove it gone, and record each interrupted run once, with what is known."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Collection
from datetime import datetime

from msgspec.structs import replace

from sexton.execution import cgroup, controllers, marks, processes
from sexton.execution.birth import kernel
from sexton.execution.lastwords import LastWords
from sexton.model.errors import StoreError
from sexton.model.run import Containment, Gone, GoneState, Outcome, Phase, RunRecord, Survivor, Witness
from sexton.store.port import Ledger

logger = logging.getLogger("sexton.recovery")

KILL_SECONDS = 5.0


async def recover(ledger: Ledger, now: datetime, living: Collection[str] = (), words: LastWords | None = None,
                  is_ours: Callable[[RunRecord], bool] = lambda run: True) -> list[RunRecord]:
    """Deal with every run that has an intent and no record, except the `living`, which outlived their daemon, and
    those of other nodes. Returns the records written.

    The supervisors of a dead daemon end their runs by themselves; this asks its zygote whether they have, looks into
    their cgroups and for their own processes (boot id, pid, start time), and ends what is left. Nothing is started and
    nothing is reported for these runs.
    """
    heard = words is not None and await asyncio.to_thread(words.hear)
    left = [run for run in await ledger.unfinished() if run.launch.id not in living and is_ours(run)]
    interrupted = [run for run in left if run.phase is not Phase.QUEUED]  # those never started, and wait on (`requeue`)
    swept, cgroup_survivors = await asyncio.get_running_loop().run_in_executor(None, cgroup.sweep)
    capped, capped_survivors = await asyncio.get_running_loop().run_in_executor(None, controllers.sweep)
    swept, cgroup_survivors = swept + capped, [*cgroup_survivors, *capped_survivors]
    if swept:
        logger.info("removed %d cgroups that an earlier daemon had left", swept)
    boot = processes.boot_id()
    records = []
    for run in interrupted:
        gone = await _bury(run, boot, cgroup_survivors, heard)
        record = as_interrupted(run, gone, by=f"the daemon on {run.launch.node} ended before the run did",
                                unknown=" and its end was not seen")
        try:
            await ledger.record(record)
        except StoreError as failure:
            logger.error("Job %s: interrupted run %s could not be recorded: %s", run.launch.job, run.launch.id, failure)
            continue
        logger.warning("Job %s: run %s was interrupted: %s", run.launch.job, run.launch.id, record.fail_reason)
        records.append(record)
    if words is not None and len(records) == len(interrupted):
        await asyncio.to_thread(words.forget)
    return records


async def _bury(run: RunRecord, boot: str, cgroup_survivors: list[int], heard: bool) -> Gone:
    """End the run's own process if it is still that process; everything else was its supervisor's to end, or its
    zygote's. Where both were killed, too, an empty cgroup is the proof; without one there is none, and what can be
    found of the run is ended, before its own process is: the others may be known by nothing but being below it."""
    if run.launch.boot_id and run.launch.boot_id != boot:
        return Gone(state=GoneState.PROVEN, witnesses=(Witness.CRASH_SWEEP,))
    witnessed = heard or run.containment is Containment.SUPERVISOR_CGROUP
    left: list[int] = []
    if not witnessed:
        since = (run.pid_started_ticks or 0) - processes.START_TOLERANCE_TICKS
        left = await asyncio.to_thread(marks.end_marked, run.launch.id, run.pid, since)
    if run.pid is not None and _is_that_process(run.pid, run.pid_started_ticks):
        deadline = time.monotonic() + KILL_SECONDS
        while _is_that_process(run.pid, run.pid_started_ticks) and time.monotonic() < deadline:
            for end in (os.killpg, os.kill):
                try:
                    end(run.pid, signal.SIGKILL)
                except OSError:
                    pass  # refused or gone: the loop looks again
            await asyncio.sleep(0.01)
        if _is_that_process(run.pid, run.pid_started_ticks):
            return Gone(state=GoneState.SURVIVORS, survivors=(_survivor(run.pid, "outlived the daemon"),))
    if cgroup_survivors:
        survivors = tuple(_survivor(pid) for pid in cgroup_survivors)
        return Gone(state=GoneState.UNKNOWN, survivors=survivors)
    if witnessed:
        return Gone(state=GoneState.PROVEN, witnesses=(Witness.CRASH_SWEEP,))
    state = GoneState.SURVIVORS if left else GoneState.UNKNOWN
    return Gone(state=state, survivors=tuple(_survivor(pid, "outlived the daemon") for pid in left))


def _survivor(pid: int, reason: str | None = None) -> Survivor:
    return Survivor(pid=pid, started_ticks=processes.start_ticks(pid), reason=reason)


def _is_that_process(pid: int, noted_ticks: int | None) -> bool:
    return processes.started_then(pid, noted_ticks) and kernel.is_alive(pid)


def as_interrupted(run: RunRecord, gone: Gone, *, by: str, unknown: str) -> RunRecord:
    """The record of a run whose end nobody saw: what came before it (`by`), and what is not known."""
    since = run.started_at or run.launch.created_at
    began = "had started" if run.started_at is not None else "may or may not have started"
    return replace(
        run, phase=Phase.RECORDED, outcome=Outcome.UNKNOWN, finished_at=since, gone=gone,
        fail_reason=f"interrupted: {by}; the command {began} at {since.isoformat()}{unknown}",
    )

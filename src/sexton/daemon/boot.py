"""`@reboot` jobs: once at the start of the daemon, and with a store once for each boot of the machine."""

from __future__ import annotations

import logging

from sexton.admission.decide import Refuse
from sexton.daemon.jobs import Jobs
from sexton.daemon.timetable import expression_of
from sexton.model.errors import StoreError
from sexton.model.job import JobSpec
from sexton.model.run import Trigger
from sexton.run.identity import definition_of
from sexton.run.launch import Launcher
from sexton.schedule.expression import Reboot
from sexton.store.port import JobState

logger = logging.getLogger("sexton.schedule")

KEY = "reboot"


def is_boot_job(spec: JobSpec) -> bool:
    return spec.enabled and isinstance(expression_of(spec), Reboot)


def marker_of(spec: JobSpec, boot_id: str) -> str:
    """Names the boot and the definition: a changed job runs again."""
    return f"{boot_id} {definition_of(spec)}"


async def run_boot_jobs(jobs: Jobs, launcher: Launcher, state: JobState, *, durable: bool) -> None:
    """Launch each `@reboot` job unless this boot has had it. The marker is written first: at most once."""
    for entry in list(jobs):
        if not is_boot_job(entry.spec):
            continue
        name = entry.spec.name
        if durable and launcher.boot_id:
            marker = marker_of(entry.spec, launcher.boot_id)
            try:
                if await state.get_state(name, KEY) == marker:
                    logger.info("Job %s: @reboot has had its run in this boot of the machine", name)
                    continue
                await state.put_state(name, KEY, marker)
            except StoreError as failure:
                logger.error("Job %s: its @reboot marker cannot be kept (%s); it may run again", name, failure)
        answer = launcher.launch(entry.spec, Trigger.REBOOT)
        if isinstance(answer, Refuse):
            logger.warning("Job %s: the @reboot run is skipped: %s", name, answer.message)

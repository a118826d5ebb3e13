"""`@reboot` jobs: once at the start of the daemon, and with a store once for each boot of the machine.

The run of a paused job is held back until the pause ends. Its marker is not written before the launch, so a daemon that
is started meanwhile holds it back, too, and loses nothing.
"""

from __future__ import annotations

import asyncio
import logging

from sexton.admission.decide import Refuse
from sexton.daemon.jobs import Jobs
from sexton.daemon.pauses import Pauses
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
LOOK_SECONDS = 60.0
"""The longest sleep of a run that is held back: a clock that was set is noticed within it."""


def is_boot_job(spec: JobSpec) -> bool:
    return spec.enabled and isinstance(expression_of(spec), Reboot)


def marker_of(spec: JobSpec, boot_id: str) -> str:
    """Names the boot and the definition: a changed job runs again."""
    return f"{boot_id} {definition_of(spec)}"


class BootRuns:
    """The run that each `@reboot` job gets, and those that wait for the end of a pause."""

    def __init__(self, jobs: Jobs, launcher: Launcher, pauses: Pauses, state: JobState, *, durable: bool) -> None:
        self._jobs = jobs
        self._launcher = launcher
        self._pauses = pauses
        self._state = state
        self._marks = durable and bool(launcher.boot_id)
        self._held: dict[str, asyncio.Task[None]] = {}
        self._resumed = asyncio.Event()

    def pending(self, job: str) -> bool:
        """Whether the job's run waits for the end of a pause."""
        return job in self._held

    async def run(self) -> None:
        """Launch each `@reboot` job unless this boot has had it, or a pause holds it back."""
        for entry in list(self._jobs):
            if not is_boot_job(entry.spec) or await self._has_had(entry.spec):
                continue
            name = entry.spec.name
            if (pause := self._pauses.of(name)) is None:
                await self._launch(entry.spec)
                continue
            logger.info("Job %s: the @reboot run is held back: paused until %s", name,
                        pause.until.isoformat(timespec="seconds"))
            self._held[name] = asyncio.get_running_loop().create_task(self._when_resumed(name))

    def look(self) -> None:
        """A pause may have ended."""
        self._resumed.set()
        self._resumed = asyncio.Event()

    async def started_by_hand(self, spec: JobSpec) -> None:
        """Somebody who starts a job whose run is held back has given it the run of this boot."""
        if (task := self._held.pop(spec.name, None)) is not None:
            task.cancel()
            logger.info("Job %s: started by hand, which counts as its @reboot run", spec.name)
            await self._mark(spec)

    def close(self) -> None:
        """What is held back is the next daemon's."""
        for task in self._held.values():
            task.cancel()

    async def _when_resumed(self, name: str) -> None:
        while (left := self._pauses.seconds_left(name)) > 0:
            resumed = self._resumed
            try:
                async with asyncio.timeout(min(left, LOOK_SECONDS)):
                    await resumed.wait()
            except TimeoutError:
                pass
        del self._held[name]
        spec = self._jobs.spec_of(name)
        if spec is None or not is_boot_job(spec):
            logger.warning("Job %s: the @reboot run that was held back is given up: the job is not there any more, is "
                           "disabled, or has another schedule", name)
        elif not self._launcher.shutting_down:
            await self._launch(spec)

    async def _launch(self, spec: JobSpec) -> None:
        """The marker is written first: at most once."""
        await self._mark(spec)
        answer = self._launcher.launch(spec, Trigger.REBOOT)
        if isinstance(answer, Refuse):
            logger.warning("Job %s: the @reboot run is skipped: %s", spec.name, answer.message)

    async def _has_had(self, spec: JobSpec) -> bool:
        if not self._marks:
            return False
        try:
            had = await self._state.get_state(spec.name, KEY) == marker_of(spec, self._launcher.boot_id)
        except StoreError as failure:
            logger.error("Job %s: its @reboot marker cannot be read (%s); it may run again", spec.name, failure)
            return False
        if had:
            logger.info("Job %s: @reboot has had its run in this boot of the machine", spec.name)
        return had

    async def _mark(self, spec: JobSpec) -> None:
        if not self._marks:
            return
        try:
            await self._state.put_state(spec.name, KEY, marker_of(spec, self._launcher.boot_id))
        except StoreError as failure:
            logger.error("Job %s: its @reboot marker cannot be kept (%s); it may run again", spec.name, failure)

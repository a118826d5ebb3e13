"""One door for every launch: schedule, manual start, boot. Decide, register, and let the run live in its own task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from sexton.admission.decide import Admission, Refusal, Refuse, Replace, Start, decide
from sexton.execution.gate import Gate
from sexton.model.job import JobSpec, OnDaemonLoss
from sexton.model.run import Launch, StopCause, Trigger
from sexton.run.conduct import conduct, outlast
from sexton.run.facilities import Facilities
from sexton.run.identity import RunIds
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested, VictimEnded
from sexton.run.remnant import Remnant

logger = logging.getLogger("sexton.run")


def _tell_overlap(job: JobSpec, admission: Admission, scheduled_for: datetime | None) -> None:
    """The one line for a launch that meets a running instance: an overlap that is wanted is no warning."""
    level, what = logging.WARNING, ""
    match admission:
        case Start():
            level = logging.INFO
        case Refuse(refusal=Refusal.STILL_RUNNING | Refusal.UNCONFIRMED):
            what = f"; the run due at {scheduled_for.isoformat()} is skipped" if scheduled_for else "; not started"
        case Refuse():
            return  # disabled or shutting down: not for the overlap's sake
    policy = job.concurrency_policy.value
    logger.log(level, "Job %s: still running and concurrencyPolicy is %s%s", job.name, policy, what)


class Launcher:
    """Launches runs. Nothing here waits: decision and registration are one step, so no two launches can race."""

    def __init__(self, facilities: Facilities, node: str, boot_id: str) -> None:
        self.facilities = facilities
        self.node = node
        self.boot_id = boot_id
        self.shutting_down = False
        self.refused_count = 0
        self.on_launched: Callable[[Run], None] = lambda run: None
        """Told of each run that was let in, before anything happens to it."""
        self._ids = RunIds()
        self._tasks: set[asyncio.Task[None]] = set()

    def launch(self, job: JobSpec, trigger: Trigger, *, scheduled_for: datetime | None = None,
               requested_by: str | None = None, attempt: int = 1) -> Run | Refuse:
        """Start a run of the job now, or say why not. A Replace marks its victims before anything else happens."""
        registry = self.facilities.registry
        running, unconfirmed = registry.running(job.name), registry.unconfirmed(job.name)
        admission = decide(
            job, trigger, [run.id for run in running], [run.id for run in unconfirmed], shutting_down=self.shutting_down
        )
        if running or unconfirmed:
            _tell_overlap(job, admission, scheduled_for)
        if isinstance(admission, Refuse):
            self.refused_count += 1
            return admission
        return self._begin(job, trigger, admission, scheduled_for, requested_by, attempt=attempt)

    def launch_ahead(self, job: JobSpec, scheduled_for: datetime, gate: Gate) -> Run | None:
        """Claim a run for an instant that is about to come; it starts when the gate opens. None where the decision must
        wait for the instant."""
        if self.facilities.registry.of(job.name):
            return None
        admission = decide(job, Trigger.SCHEDULE, [], [], shutting_down=self.shutting_down)
        return self._begin(job, Trigger.SCHEDULE, admission, scheduled_for, None, gate) if isinstance(
            admission, Start) else None

    def _begin(self, job: JobSpec, trigger: Trigger, admission: Admission, scheduled_for: datetime | None,
               requested_by: str | None, gate: Gate | None = None, *, attempt: int = 1) -> Run:
        registry, clock = self.facilities.registry, self.facilities.clock
        launch = Launch(
            id=self._ids.next(), job=job.name, trigger=trigger, node=self.node, scheduled_for=scheduled_for,
            requested_by=requested_by, created_at=clock.now(), boot_id=self.boot_id, attempt=attempt,
            keep=self._keeps(job),
        )
        victims = frozenset(admission.victims) if isinstance(admission, Replace) else frozenset()
        run = Run(job, launch, clock, victims, gate)
        registry.add(run)
        self.on_launched(run)
        for victim_id in victims:
            victim = registry.get(victim_id)
            if victim is not None:
                victim.mailbox.post(StopRequested(StopCause.REPLACED, reason=f"run {run.id} takes its place"))
                self.keep(self._tell_when_ended(victim, run))
        self.keep(conduct(run, self.facilities))
        return run

    def _keeps(self, job: JobSpec) -> bool:
        if job.on_daemon_loss is not OnDaemonLoss.KEEP:
            return False
        if self.facilities.kept is None:  # a reload brought the option; what is durable is settled at the start
            logger.warning("Job %s: onDaemonLoss keep needs a daemon that was started with a `state` section; this run "
                           "ends with the daemon", job.name)
        return self.facilities.kept is not None

    def go_on(self, run: Run) -> None:
        """Live on with a run that an earlier daemon has started."""
        self.facilities.registry.add(run)
        run.intended.set()
        self.on_launched(run)
        self.keep(conduct(run, self.facilities))

    def keep_place_of(self, remnant: Remnant) -> None:
        """Hold the place of what an earlier daemon could not terminate."""
        self.facilities.registry.add(remnant)
        self.keep(outlast(remnant, self.facilities))

    @staticmethod
    async def _tell_when_ended(victim: Run, successor: Run) -> None:
        await victim.freed.wait()
        successor.mailbox.post(VictimEnded(victim.id))

    def keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it as a task, and hold on to it until it is done."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

"""The scheduler loop: sleeps until something is due, launches it, and waits for nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sexton.admission.decide import Refusal, Refuse
from sexton.daemon.ahead import BREATH, Ahead
from sexton.daemon.jitter import jitter_of
from sexton.daemon.jobs import JobEntry, Jobs
from sexton.daemon.pauses import Pauses
from sexton.execution.supervisors import Supervisors
from sexton.model.clock import Clock
from sexton.model.job import RunOn
from sexton.model.run import Outcome, Trigger
from sexton.run.launch import Launcher
from sexton.schedule.agenda import Agenda, Due, Skipped

if TYPE_CHECKING:
    from sexton.daemon.onefire import OneFire

logger = logging.getLogger("sexton.schedule")

LOOK_SECONDS = 60.0
"""The longest sleep: a clock that was set unheard is noticed within it."""
PREPARE_SECONDS = 3.0
"""How long before an instant the supervisors for its runs are made."""
MANY = 50
AHEAD_SECONDS, AHEAD_EACH, AHEAD_MOST = 0.05, 0.0004, 0.9
"""How long before an instant at which many jobs are due their runs are made ready: so long, and so long for each."""
AWAKE_SECONDS = 0.008
"""An idle machine wakes a sleeping process late by some milliseconds: before such an instant it does not sleep."""


class Scheduler:
    def __init__(self, agenda: Agenda, jobs: Jobs, launcher: Launcher, supervisors: Supervisors, clock: Clock,
                 pauses: Pauses) -> None:
        self._pauses = pauses
        self.agenda = agenda
        self._jobs = jobs
        self._launcher = launcher
        self._supervisors = supervisors
        self._ahead = Ahead(agenda, jobs, launcher, supervisors, self._may_be_ready)
        self._clock = clock
        self._wake = asyncio.Event()
        self.stopped = False
        self.skipped_late = 0
        self.made_up_for: Callable[[Skipped], bool] = lambda skipped: False
        """Asked for occurrences that a pass came too late for."""
        self.one_fire: OneFire | None = None
        """Who fires what only one of the nodes fires; None where there is only one."""

    def wake(self) -> None:
        """Look again now: the agenda changed, or the clock was set."""
        self._wake.set()

    def stop(self) -> None:
        self.stopped = True
        self._wake.set()

    async def run(self) -> None:
        """Until `stop`. An exception here is the end of the daemon, and must be: a scheduler that has silently died is
        the worst of all schedulers."""
        while not self.stopped:
            if self._wake.is_set():
                await self._ahead.look_again()
            self._wake.clear()  # before looking: what comes from here on ends the sleep below at once
            now = self._clock.now()
            self._ahead.open(now)
            decided = self.agenda.pop_due(now)
            for skipped in decided.skipped:
                self._tell_skipped(skipped, now)
            if decided.due:
                await self._supervisors.settle()
                left = [due for due in decided.due if not self._ahead.has_begun(due)]
                for number, due in enumerate(left, 1):
                    self._launch(due)
                    if number % BREATH == 0:
                        await asyncio.sleep(0)
            await self._sleep()

    def _launch(self, due: Due) -> None:
        entry = self._jobs.get(due.job)
        if entry is None:
            return
        if (late := jitter_of(entry.spec, due.scheduled_for)) > 0:
            asyncio.get_running_loop().call_later(late, self._launch_now, due)
        else:
            self._launch_now(due)

    def _launch_now(self, due: Due) -> None:
        entry = self._jobs.get(due.job)
        if entry is None:
            return
        if self.one_fire is not None and entry.spec.run_on is RunOn.ONE_NODE:
            self._launcher.background.begin(self._launch_if_ours(self.one_fire, entry, due))
        else:
            self._launch_here(entry, due)

    async def _launch_if_ours(self, one_fire: OneFire, entry: JobEntry, due: Due) -> None:
        if not await one_fire.is_ours(entry, due.scheduled_for):
            return
        await self._supervisors.settle()
        if not self.stopped and self._launch_here(entry, due):
            return
        if self.stopped or self._launcher.shutting_down:
            one_fire.owes = True
        else:
            await one_fire.decline(due.job, due.scheduled_for)

    def launch_late(self, entry: JobEntry, scheduled_for: datetime) -> None:
        """An occurrence that is past, and that is ours all the same."""
        self._launch_here(entry, Due(entry.spec.name, scheduled_for))

    def _launch_here(self, entry: JobEntry, due: Due) -> bool:
        """Whether there is a run now."""
        if (why := self._held_back(entry)) is not None:
            entry.skip(self._clock.now(), why, due.scheduled_for)
            logger.info("Job %s: the run due at %s is skipped: %s", due.job, due.scheduled_for.isoformat(), why)
            return False
        answer = self._launcher.launch(entry.spec, Trigger.SCHEDULE, scheduled_for=due.scheduled_for)
        if isinstance(answer, Refuse):
            entry.skip(self._clock.now(), answer.message, due.scheduled_for)
            if answer.refusal is not Refusal.STILL_RUNNING:  # the launcher has told of that
                logger.warning("Job %s: the run due at %s is skipped: %s", due.job, due.scheduled_for.isoformat(),
                               answer.message)
        return not isinstance(answer, Refuse)

    def _held_back(self, entry: JobEntry) -> str | None:
        """Why a scheduled launch, and only such a one, must not happen now."""
        pause = self._pauses.of(entry.spec.name)
        if pause is not None:
            return f"paused until {pause.until.isoformat(timespec='seconds')}" + (f" by {pause.by}" if pause.by else "")
        last = entry.last_launched
        if entry.spec.only_if_last_succeeded and last is not None and last.outcome is not Outcome.SUCCESS:
            what = last.outcome.value if last.outcome is not None else "unknown"
            return f"the last run ended as {what} (onlyIfLastSucceeded)"
        return None

    def _may_be_ready(self, entry: JobEntry) -> bool:
        alone = self.one_fire is None or entry.spec.run_on is RunOn.EVERY_NODE
        return alone and not entry.spec.jitter and self._held_back(entry) is None

    def _tell_skipped(self, skipped: Skipped, now: datetime) -> None:
        self.skipped_late += skipped.count
        count = f"{skipped.count}" if skipped.exact else f"at least {skipped.count}"
        reason = f"the scheduler fell behind by {skipped.late_by:.0f}s"
        logger.warning(
            "Job %s: %s occurrence(s) from %s to %s are skipped: %s (a suspended machine or a clock that was set)",
            skipped.job, count, skipped.first.isoformat(), skipped.last.isoformat(), reason,
        )
        if self.made_up_for(skipped):
            return
        if (entry := self._jobs.get(skipped.job)) is not None:
            entry.skip(now, reason, skipped.last, skipped.count)

    async def _sleep(self) -> None:
        now = self._clock.now()
        upcoming = self.agenda.next_instant()
        seconds = LOOK_SECONDS
        if upcoming is not None:
            seconds = await self._prepare(now, upcoming)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _prepare(self, now: datetime, upcoming: datetime) -> float:
        """Get ready for the next instant; returns the seconds to sleep until the next step of that."""
        left = (upcoming - now).total_seconds()
        if left > PREPARE_SECONDS:
            return min(left - PREPARE_SECONDS, LOOK_SECONDS)
        due = self.agenda.due_within(now, left)
        self._supervisors.prefill(due)
        if due < MANY:
            return left
        ahead = min(AHEAD_SECONDS + due * AHEAD_EACH, AHEAD_MOST)
        if left > ahead:
            return left - ahead
        if left > AWAKE_SECONDS:
            await self._ahead.make_ready(upcoming)
            return (upcoming - self._clock.now()).total_seconds() - AWAKE_SECONDS
        return 0.0

    def next_fires(self, *, within: timedelta, limit: int) -> list[Due]:
        """The coming occurrences of all jobs, in order: what `next` shows."""
        now = self._clock.now()
        found: list[Due] = []
        for entry in self._jobs:
            upcoming = self.agenda.next_of(entry.spec.name)
            if upcoming is not None and upcoming <= now + within:
                found.append(Due(entry.spec.name, upcoming))
        found.sort(key=lambda due: (due.scheduled_for, due.job))
        return found[:limit]

"""Watching the promises (`sla`): a breach is told once, when it begins, and shown as long as it lasts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from sexton.daemon.jobs import JobEntry, Jobs
from sexton.daemon.pauses import Pauses
from sexton.model.clock import Clock
from sexton.model.run import Outcome, Trigger
from sexton.model.sla import Breach, SlaCheck
from sexton.outcome.sla import Seen, broken
from sexton.run.registry import Registry

logger = logging.getLogger("sexton.sla")

LOOK_SECONDS = 5.0


class SlaWatch:
    def __init__(
        self, jobs: Jobs, registry: Registry, pauses: Pauses, clock: Clock,
        next_of: Callable[[str], datetime | None],
    ) -> None:
        self._jobs = jobs
        self._registry = registry
        self._pauses = pauses
        self._clock = clock
        self._next_of = next_of
        self._first_seen: dict[str, datetime] = {}
        self._breaches: dict[str, dict[SlaCheck, Breach]] = {}
        self.count: dict[tuple[str, SlaCheck], int] = {}
        """Breaches that have begun, by job and check."""
        self.on_breach: Callable[[JobEntry, Breach], None] = lambda entry, breach: None

    def of(self, job: str) -> Sequence[Breach]:
        """The promises of the job that are broken."""
        return tuple(self._breaches.get(job, {}).values())

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        now = self._clock.now()
        promised = [entry for entry in self._jobs if entry.spec.sla is not None and entry.spec.enabled]
        for entry in promised:
            self._look_at(entry, now)
        for name in self._breaches.keys() - {entry.spec.name for entry in promised}:
            del self._breaches[name]

    def _look_at(self, entry: JobEntry, now: datetime) -> None:
        name, sla = entry.spec.name, entry.spec.sla
        assert sla is not None
        before = self._breaches.get(name, {})
        after: dict[SlaCheck, Breach] = {}
        for check, (observed, threshold) in broken(sla, self._seen(entry, now), now).items():
            since = before[check].since if check in before else now
            after[check] = Breach(check=check, since=since, observed_seconds=round(observed, 3),
                                  threshold_seconds=threshold)
            if check not in before:
                self.count[name, check] = self.count.get((name, check), 0) + 1
                logger.warning("Job %s: its promise %s is broken: %.0f seconds, promised are %g", name, check.value,
                               observed, threshold)
                self.on_breach(entry, after[check])
        for check in before.keys() - after.keys():
            logger.info("Job %s: its promise %s is kept again", name, check.value)
        self._breaches[name] = after

    def _seen(self, entry: JobEntry, now: datetime) -> Seen:
        name = entry.spec.name
        first = self._first_seen.setdefault(name, now)
        successes = [run.finished_at for run in entry.recent if run.outcome is Outcome.SUCCESS and run.finished_at]
        live = self._registry.of(name)
        waiting = [run.launch.scheduled_for for run in live if not run.over and run.started is None
                   and run.launch.trigger is Trigger.SCHEDULE and run.launch.scheduled_for is not None]
        upcoming = self._next_of(name)
        if upcoming is not None and upcoming < now:
            waiting.append(upcoming)
        return Seen(
            last_success=max(successes, default=first), overdue=waiting, pause=self._pauses.last(name),
            started=[run.started_at for run in live if run.started_at is not None and run.counts_as_running],
            stopped=[run.stop.requested_at for run in live if run.unconfirmed and run.stop is not None],
        )

"""The one door for the API and the command line: everything that can be asked of a running daemon."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from sexton import __version__
from sexton.admission.decide import Refuse
from sexton.daemon.boot import BootRuns
from sexton.daemon.catchup import CatchUp
from sexton.daemon.fleet import Fleet
from sexton.daemon.health import Connections, Health, StoreLeft
from sexton.daemon.jobs import JobEntry, Jobs
from sexton.daemon.measures import Measures
from sexton.daemon.pauses import Pauses
from sexton.daemon.reload import Reloader, ReloadResult
from sexton.daemon.scheduler import Scheduler
from sexton.daemon.sla import SlaWatch
from sexton.daemon.timetable import expression_of, occurrences_for, zone_of
from sexton.execution.capture import Follower
from sexton.execution.messages import Stream
from sexton.execution.runlog import OutputFiles
from sexton.execution.supervisors import Supervisors
from sexton.model.clock import Clock
from sexton.model.job import ConcurrencyScope, JobSpec
from sexton.model.pause import Pause
from sexton.model.run import Launch, Outcome, Phase, RunRecord, StopCause, Trigger
from sexton.outcome.reporters.outbox import OutboxHealth
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.run.mailbox import AbandonRequested, StopRequested
from sexton.run.pools import Pool, Pools, withdraw
from sexton.run.registry import Registry
from sexton.run.retries import Retries
from sexton.run.unwritten import Unwritten
from sexton.schedule.agenda import Due
from sexton.schedule.explain import Explanation, explain
from sexton.schedule.expression import Reboot
from sexton.store.coordination import SignalKind
from sexton.store.port import JobHistory, Ledger, ended_at

logger = logging.getLogger("sexton.control")


class Unknown(Exception):
    """There is no such job or run."""


class NotRunning(Exception):
    """There is nothing to cancel, or no place to give up."""


class Control:
    """Reads are views of the moment; commands are messages to runs. Nothing here waits unless it says so."""

    def __init__(
        self, *, node: str, jobs: Jobs, registry: Registry, launcher: Launcher, scheduler: Scheduler,
        reloader: Reloader, supervisors: Supervisors, ledger: Ledger, output_files: OutputFiles | None, clock: Clock,
        logs_dropped: Callable[[], int], retries: Retries, pauses: Pauses, catchup: CatchUp, sla: SlaWatch,
        fleet: Fleet, boot_runs: BootRuns,
    ) -> None:
        self.boot_runs = boot_runs
        self.fleet = fleet
        self.sla = sla
        self.catchup = catchup
        self.pauses = pauses
        self.retries = retries
        self.node = node
        self.jobs = jobs
        self.registry = registry
        self.ledger = ledger
        self.clock = clock
        self.started_at = clock.now()
        self.reloader = reloader
        self.scheduler = scheduler
        self.launcher = launcher
        self.supervisors = supervisors
        self.logs_dropped = logs_dropped
        self.clock_watch = False
        self.containment_advice: str | None = None
        self.connections: Callable[[], Connections] = Connections
        self.accepts_failed: Callable[[], int] = lambda: 0
        self.reports: Callable[[], OutboxHealth] = OutboxHealth
        self.statsd_dropped: Callable[[], int] = lambda: 0
        self.logs_suppressed: Callable[[], int] = lambda: 0
        self.stores_left: Callable[[], tuple[StoreLeft, ...]] = lambda: ()
        self.ends_untold: Callable[[], int] = lambda: 0
        self.measures = Measures()
        self.version = __version__
        self._output_files = output_files

    # ---------------------------------------------------------------- asking

    @property
    def _unwritten(self) -> Unwritten:
        return self.launcher.facilities.unwritten

    def health(self) -> Health:
        last = self.reloader.last
        mirror, counters = self.launcher.facilities.mirror, self.launcher.facilities.counters
        problem = self.ledger.problem
        well = last.ok and problem is None and not len(self._unwritten)
        return Health(
            status="shutting down" if self.launcher.shutting_down else "ok" if well else "degraded",
            version=__version__, node=self.node, started_at=self.started_at,
            containment=self.supervisors.containment.value, containment_advice=self.containment_advice,
            durable=self.ledger.capabilities.durable,
            jobs=len(self.jobs), running=sum(run.counts_as_running for run in self.registry),
            queued=sum(run.waits_for_slots for run in self.registry),
            unconfirmed=sum(run.unconfirmed for run in self.registry), last_reload=last,
            reload_failures=self.reloader.failures, skipped_late=self.scheduler.skipped_late,
            launches_refused=self.launcher.refused_count, missed_made_up=self.catchup.launched,
            missed_given_up=self.catchup.given_up,
            mirror_dropped_bytes=mirror.dropped_bytes if mirror else 0, log_lines_dropped=self.logs_dropped(),
            store_failures=counters.store_failures, internal_errors=counters.internal_errors, store_problem=problem,
            unwritten_records=len(self._unwritten),
            connections=msgspec.structs.replace(self.connections(), not_accepted=self.accepts_failed()),
            reports=self.reports(), supervisors=self.supervisors.counts,
            configuration_warnings=tuple(str(finding) for finding in self.reloader.findings),
            clock_watch=self.clock_watch, slots_unanswered=self.launcher.facilities.counters.slots_unanswered,
            slots_lost=self.launcher.facilities.slots.lost if self.launcher.facilities.slots is not None else 0,
            nodes=max(1, len(self.fleet.seen())), nodes_problem=self.fleet.problem, stores_left=self.stores_left(),
            ends_untold=self.ends_untold(),
        )

    def job(self, name: str) -> JobEntry:
        """Raises Unknown."""
        entry = self.jobs.get(name)
        if entry is None:
            raise Unknown(f"no job is named {name!r}")
        return entry

    def shown_command(self, spec: JobSpec) -> str | tuple[str, ...]:
        """Without what is known to be a secret of the job."""
        if not spec.secrets:
            return spec.command
        vault = self.launcher.facilities.vault
        if isinstance(spec.command, str):
            return vault.text_of(spec.name, spec.secrets, spec.command)
        return tuple([vault.text_of(spec.name, spec.secrets, part) for part in spec.command])

    def live_runs(self, name: str) -> list[Run]:
        """The job's runs that are not recorded yet, or that keep their place all the same."""
        return self.registry.of(name)

    @property
    def pools(self) -> Pools:
        return self.launcher.pools

    def pool(self, name: str) -> Pool:
        """Raises Unknown."""
        pool = self.pools.get(name)
        if pool is None:
            raise Unknown(f"no pool is named {name!r}")
        return pool

    def next_fire(self, name: str) -> datetime | None:
        return self.scheduler.agenda.next_of(name)

    def is_reboot(self, entry: JobEntry) -> bool:
        return isinstance(expression_of(entry.spec), Reboot)

    async def history(self, name: str, limit: int) -> JobHistory:
        """Recorded runs, oldest first. Raises Unknown, StoreError."""
        self.job(name)
        return _with(await self.ledger.history(name, limit), self._unwritten.of(name), limit)

    async def run(self, run_id: str) -> RunRecord:
        """A run, live or recorded. Raises Unknown, StoreError."""
        live = self.registry.get(run_id)
        if live is not None:
            return live.record()
        record = self._unwritten.get(run_id) or await self.ledger.get(run_id)
        if record is None:
            raise Unknown(f"no run has the id {run_id!r}")
        return record

    async def runs(
        self, *, job: str | None, outcome: Outcome | None, node: str | None = None, limit: int, before: str | None,
        after: str | None = None,
    ) -> list[RunRecord]:
        """Runs, newest first; those that live here are shown as they are now. Raises StoreError."""
        stored = await self.ledger.runs(
            job=job, outcome=outcome, node=node, limit=limit, before=before, after=after)
        merged = {record.launch.id: record for record in stored}

        def fits(launch: Launch) -> bool:
            return (job in (None, launch.job) and node in (None, launch.node)
                    and (before is None or launch.id < before) and (after is None or launch.id > after))

        for late in self._unwritten.of(job):
            merged.pop(late.launch.id, None)
            if outcome in (None, late.outcome) and fits(late.launch):
                merged[late.launch.id] = late
        if outcome is None:
            merged.update({live.id: live.record() for live in self.registry if fits(live.launch)})
        return sorted(merged.values(), key=lambda record: record.launch.id, reverse=True)[:limit]

    def coming(self, within: timedelta, limit: int) -> Sequence[Due]:
        return self.scheduler.next_fires(within=within, limit=limit)

    def fires_of(self, name: str, count: int) -> list[datetime]:
        """The next occurrences of one job. Raises Unknown."""
        occurrences = occurrences_for(self.job(name).spec)
        return [] if occurrences is None else occurrences.following(self.clock.now(), count)

    def explain(self, name: str, at: datetime | None) -> Explanation | None:
        """Why the job runs or does not run at an instant; None for `@reboot`. Raises Unknown."""
        spec = self.job(name).spec
        expression = expression_of(spec)
        if isinstance(expression, Reboot):
            return None
        return explain(expression, zone_of(spec), spec.day_rule, at or self.clock.now())

    # ---------------------------------------------------------------- output

    def log_files(self, run_id: str) -> list[Path]:
        """The files with the run's whole output, in order; empty without a store or without output."""
        return self._output_files.parts(run_id) if self._output_files is not None else []

    def live_run(self, run_id: str) -> Run | None:
        return self.registry.get(run_id)

    def last_lines(self, run: Run, last: int) -> list[tuple[Stream, str]]:
        return run.capture.lines(last) if run.capture is not None else []

    def follow(self, run: Run) -> Follower | None:
        """Live lines of a run; give it back with `unfollow`."""
        return run.capture.follow() if run.capture is not None else None

    def unfollow(self, run: Run, follower: Follower) -> None:
        if run.capture is not None:
            run.capture.unfollow(follower)

    # ---------------------------------------------------------------- commanding

    async def start(self, name: str, *, requested_by: str | None = None) -> Run | Refuse:
        """Launch now, through the same door as the schedule. Raises Unknown."""
        entry = self.job(name)
        if entry.spec.pool is not None or self.registry.of(name):
            await self.supervisors.settle()  # the answer rests on what else runs
        answer = self.launcher.launch(entry.spec, Trigger.MANUAL, requested_by=requested_by)
        if isinstance(answer, Refuse):
            entry.skip(self.clock.now(), answer.message, None)
            return answer
        if answer.job.concurrency_scope is ConcurrencyScope.CLUSTER and answer.launch.ticket is None:
            await answer.answered.wait()  # bounded by what an operation of the store may take
            if answer.refusal is not None:
                return answer.refusal
        await self.boot_runs.started_by_hand(entry.spec)
        return answer

    async def known(self, run: Run) -> None:
        """Until a crash could not lose the run any more, within the bound that a start waits for the ledger."""
        await run.intended.wait()

    async def cancel_job(
        self, name: str, *, reason: str | None, requested_by: str | None, force: bool = False, queued: bool = False,
    ) -> list[Run]:
        """Ask every instance that has not ended to stop, with `queued` also those that wait for their pool; returns
        them. Raises Unknown, NotRunning."""
        self.job(name)
        await self.supervisors.settle()
        waiting = self.pools.queued(name)
        runs = [*self.registry.running(name), *(waiting if queued else ())]
        if not runs:
            also = f"; {len(waiting)} run(s) of it wait for their pool" if waiting else ""
            raise NotRunning(f"job {name!r} is not running{also}")
        for run in runs:
            self._ask_to_stop(run, reason, requested_by, force)
        return runs

    async def cancel_run(
        self, run_id: str, *, reason: str | None, requested_by: str | None, force: bool = False,
    ) -> Run | RunRecord:
        """Ask one run to stop, on whatever node it lives; one on another node is returned as the store knows it. Raises
        Unknown, NotRunning (it has ended, or its node is silent), StoreError."""
        await self.supervisors.settle()
        run = self.registry.get(run_id)
        if run is None:
            return await self._ask_elsewhere(SignalKind.CANCEL, run_id, reason, requested_by, force)
        if run.over:
            raise NotRunning(f"run {run_id} has ended")
        self._ask_to_stop(run, reason, requested_by, force)
        return run

    async def pause(self, name: str, until: datetime, *, note: str | None, requested_by: str | None) -> Pause:
        """Hold the schedule and the retries of a job. Raises Unknown, StoreError."""
        self.job(name)
        pause = await self.pauses.pause(name, until, note, requested_by)
        self.retries.look(name)
        self.scheduler.wake()
        return pause

    async def resume(self, name: str, *, requested_by: str | None) -> None:
        """Raises Unknown, StoreError."""
        self.job(name)
        await self.pauses.resume(name, requested_by)
        self.retries.look(name)
        self.pools.look_everywhere()
        self.boot_runs.look()

    async def cancel_queued(self, pool: str, run_id: str, *, reason: str | None, requested_by: str | None) -> Run:
        """Take a waiting run out of a pool's queue. Raises Unknown, NotRunning (it waits no longer), StoreError."""
        found = self.pool(pool)
        entry = found.entries.get(run_id)
        if entry is None:
            record = await self.run(run_id)
            if record.launch.ticket is None or record.launch.ticket.pool != pool:
                raise Unknown(f"no run with the id {run_id!r} has waited for pool {pool!r}")
            raise NotRunning(f"run {run_id} does not wait any more (it is {record.phase.value})")
        self._ask_to_stop(entry.run, reason, requested_by, force=False)
        await entry.run.ended.wait()
        return entry.run

    async def abandon_run(self, run_id: str, *, reason: str | None, requested_by: str | None) -> Run | RunRecord:
        """Give up the place of a run that could not be terminated; one of another node is returned as the store knows
        it. Raises Unknown, NotRunning, StoreError."""
        run = self.registry.get(run_id)
        if run is None:
            return await self._ask_elsewhere(SignalKind.ABANDON, run_id, reason, requested_by)
        if not run.unconfirmed:
            raise NotRunning(f"run {run_id} keeps no place that could be given up")
        run.mailbox.post(AbandonRequested(reason, requested_by))
        await run.freed.wait()
        return run

    async def _ask_elsewhere(
        self, kind: SignalKind, run_id: str, reason: str | None, requested_by: str | None, force: bool = False,
    ) -> RunRecord:
        record = await self.run(run_id)
        over = record.phase is Phase.RECORDED and (kind is SignalKind.CANCEL or record.abandoned is not None)
        if over or (kind is SignalKind.ABANDON and record.stop is None):
            raise NotRunning(f"run {run_id} has ended")
        there = await self.fleet.ask(kind, record, reason=reason, requested_by=requested_by, force=force)
        if there is None:
            raise NotRunning(f"run {run_id} was started on node {record.launch.node}, which is not there now")
        logger.info("Job %s: node %s is asked to %s run %s", record.launch.job, there.facts.identity.name, kind.value,
                    run_id)
        return record

    def _ask_to_stop(self, run: Run, reason: str | None, requested_by: str | None, force: bool) -> None:
        logger.info("Job %s: cancel of run %s requested%s%s", run.job.name, run.id,
                    f" by {requested_by}" if requested_by else "", f": {reason}" if reason else "")
        withdraw(run, StopRequested(StopCause.CANCEL, reason, requested_by, force))

    async def wait_ended(self, runs: Sequence[Run], seconds: float | None = None) -> bool:
        """Wait until the runs have ended (for stopped ones: until the sequence has finished). False after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                for run in runs:
                    await run.ended.wait()
        except TimeoutError:
            return False
        return True

    async def reload(self) -> ReloadResult:
        return await self.reloader.reload()


def _with(history: JobHistory, late: Sequence[RunRecord], limit: int) -> JobHistory:
    """The history as it will be when the ledger has taken the records that wait for it."""
    if not late:
        return history
    runs = sorted((*history.runs, *late), key=ended_at)[-limit:]
    totals = Counter(history.totals) + Counter(record.outcome for record in late if record.outcome is not None)
    return JobHistory(runs=tuple(runs), totals=totals)

"""Putting a daemon together: the only place that names implementations."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sexton import __version__
from sexton.config.diff import JobDiff
from sexton.daemon import systemd
from sexton.daemon.beside import live_beside_runs
from sexton.daemon.boot import BootRuns
from sexton.daemon.catchup import CatchUp
from sexton.daemon.clockwatch import ClockWatch
from sexton.daemon.control import Control
from sexton.daemon.fleet import Fleet, dead_daemons
from sexton.daemon.jobs import CHECK_PREFIX, REMEMBERED_RUNS, SHOWN_LINES, Jobs
from sexton.daemon.logs import LogThread
from sexton.daemon.measures import Measures
from sexton.daemon.node import NodeHome
from sexton.daemon.nodestate import NodeState, is_fleet_wide, of_node
from sexton.daemon.pauses import Pauses
from sexton.daemon.reload import Reloader
from sexton.daemon.reporting import Reporting
from sexton.daemon.retention import retention_of
from sexton.daemon.scheduler import Scheduler
from sexton.daemon.shutdown import drain
from sexton.daemon.sla import SlaWatch
from sexton.daemon.statsd import Statsd, start_lines, stop_lines
from sexton.daemon.stores import home_of, make_store
from sexton.daemon.timetable import occurrences_for
from sexton.daemon.troubles import Troubles
from sexton.execution import cgroup
from sexton.execution.birth import kernel
from sexton.execution.controllers import Controllers
from sexton.execution.keeping import KeptRuns
from sexton.execution.lastwords import LastWords
from sexton.execution.mirror import Mirror
from sexton.execution.runlog import OutputFiles
from sexton.execution.sampler import Sampler
from sexton.execution.secrets import Vault
from sexton.execution.supervisors import Supervisors
from sexton.execution.zygote import raise_descriptor_limit
from sexton.model.clock import Clock, Monotonic
from sexton.model.errors import StoreError
from sexton.model.job import JobSpec, RunOn
from sexton.model.run import Outcome, RunRecord
from sexton.model.settings import Configuration, OnStoreUnavailable, Settings, StateSettings
from sexton.outcome.retry import Fate
from sexton.run.adoption import take_over
from sexton.run.confine import Confining
from sexton.run.facilities import Facilities
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.run.recovery import recover
from sexton.run.registry import Registry
from sexton.run.remnant import find_remnants
from sexton.run.requeue import requeue
from sexton.run.retries import Retries
from sexton.run.slotloss import SlotLoss
from sexton.run.slots import Slots
from sexton.run.takeover import Found, find_kept
from sexton.schedule.agenda import Agenda
from sexton.store.coordination import Store

logger = logging.getLogger("sexton.daemon")

Serve = Callable[[Control, Configuration], Awaitable[Callable[[], Awaitable[None]]]]
"""Start the API; returns how to stop it. Handed in, because the daemon does not know the API."""

SYSTEM_CLOCK = Clock(now=lambda: datetime.now(UTC), monotonic=lambda: Monotonic(time.monotonic()))


class Daemon:
    """One daemon process, from the loaded configuration to its end."""

    def __init__(self, path: str, configuration: Configuration, logs: LogThread, serve: Serve) -> None:
        self._path = path
        self._configuration = configuration
        self._logs = logs
        self._serve = serve
        self._clock = SYSTEM_CLOCK
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self._background: set[asyncio.Task[object]] = set()
        self._output_files: OutputFiles | None = None
        self._kept: KeptRuns | None = None
        self._words: LastWords | None = None

    async def run(self) -> int:
        """Until SIGTERM or SIGINT. Returns the exit status; raises StoreError when the store cannot be used."""
        settings = self._configuration.settings
        self._take_signals()
        store = make_store(settings.state, self._forget_output)
        await store.open()
        try:
            home = await self._move_in(settings.state, store)
            try:
                return await self._with_store(store, home)
            finally:
                home.leave()
        finally:
            try:
                await store.close()
            except StoreError as failure:
                logger.error("closing the store: %s", failure)

    async def _move_in(self, state: StateSettings | None, store: Store) -> NodeHome:
        """Where this node keeps what is its own; where output is kept, other nodes may read it."""
        home = await asyncio.to_thread(home_of, state, store)
        if state is not None and home.directory is not None:
            shared = Path(state.path) / state.deployment_id if state.path is not None else home.directory
            self._output_files = OutputFiles(shared / "output", state.max_output_bytes)
            self._kept = KeptRuns(home.directory, self._output_files.directory, state.max_output_bytes)
            self._words = LastWords(home.directory / "zygotes")
        return home

    def _forget_output(self, run_ids: Sequence[str]) -> None:
        if self._output_files is not None:
            self._output_files.forget(list(run_ids))

    async def _with_store(self, store: Store, home: NodeHome) -> int:
        self._troubles = Troubles()
        asyncio.get_running_loop().set_exception_handler(self._troubles)
        kernel.become_subreaper()  # the third line: orphans of a zygote that was killed come to us
        kept, words = self._kept, self._words
        self._is_ours = await dead_daemons(store, home.identity, self._slot_ttl(), home.identity.name)
        found = await find_kept(store, kept, self._is_ours) if kept is not None else []
        self._interrupted = await recover(
            store, self._clock.now(), {one.launch.id for one in found}, words, self._is_ours)
        base = cgroup.claim()
        supervisors = Supervisors(base, raise_descriptor_limit(), words)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, supervisors.reap_orphans)
        mirror = Mirror()
        confining = Confining(Controllers(base), Sampler(base))
        self._advice = None if base is not None else _containment_advice()
        logger.info("sexton %s on %s: containment %s%s", __version__, socket.gethostname(),
                    supervisors.containment.value, f" ({self._advice})" if self._advice else "")
        try:
            await self._with_processes(store, home, supervisors, mirror, confining, found)
        finally:
            await supervisors.close()
            confining.close()
            mirror.close()
            if self._output_files is not None:
                self._output_files.close()
            if base is not None:
                cgroup.remove_tree(base)
        return 0

    async def _with_processes(
        self, store: Store, home: NodeHome, supervisors: Supervisors, mirror: Mirror, confining: Confining,
        found: list[Found],
    ) -> None:
        jobs, registry = Jobs(), Registry()
        measures, statsd = Measures(), Statsd()
        node, vault, kept = home.identity.name, Vault(), self._kept
        slots = Slots(store, home.identity, self._slot_ttl)
        SlotLoss(registry, slots)
        fleet = Fleet(home, store, jobs, registry, slots, self._clock)
        own = NodeState(store, node) if store.capabilities.shared else store
        reporting = Reporting(jobs.spec_of, vault, node)

        def remember(record: RunRecord) -> None:
            if (entry := jobs.get(record.launch.job)) is not None:
                entry.remember(record)
                if record.outcome is Outcome.SKIPPED:
                    entry.skip(self._clock.now(), record.fail_reason or "", record.launch.scheduled_for)

        def on_recorded(run: Run, record: RunRecord) -> None:
            fate = retries.recorded(run, record)
            reporting.on_recorded(run, record, permanent=fate is Fate.FINAL)
            measures.recorded(record, run.job.jitter)
            if (where := run.job.statsd) is not None:
                statsd.send(where, stop_lines(where.prefix, record))
            remember(record)
            if (entry := jobs.get(run.job.name)) is not None:
                entry.final_failures += fate is Fate.FINAL
                entry.keep_lines(_last_lines(run))

        def on_started(run: Run) -> None:
            if (where := run.job.statsd) is not None:
                statsd.send(where, start_lines(where.prefix))

        def on_amended(run: Run, record: RunRecord) -> None:
            measures.proven(record)
            if (entry := jobs.get(run.job.name)) is not None:
                entry.amend(record)

        def on_refused(run: Run) -> None:
            launcher.refused_count += 1
            retries.refused(run)
            if run.refusal is not None and (entry := jobs.get(run.job.name)) is not None:
                entry.skip(self._clock.now(), run.refusal.message, run.launch.scheduled_for)
            if fleet.one_fire is not None and run.job.run_on is RunOn.ONE_NODE:
                self._keep(fleet.one_fire.decline(run.job.name, run.launch.scheduled_for))

        facilities = Facilities(
            slots=slots, signals=store, on_admitted=lambda run: launcher.on_launched(run), on_refused=on_refused,
            on_silent=lambda holder, job: self._keep(fleet.settle_job(holder, job)),
            ledger=store, supervisors=supervisors, registry=registry, clock=self._clock, mirror=mirror,
            output_files=self._output_files, on_recorded=on_recorded, on_amended=on_amended,
            on_started=on_started, on_unconfirmed=reporting.on_unconfirmed, vault=vault,
            intent_required=self._intent_required(), confining=confining, kept=kept,
        )
        self._logs.mask = vault.text
        launcher = Launcher(facilities, node, home.identity.boot_id, home.identity.id)
        pauses = Pauses(store, self._clock, durable=store.capabilities.durable)
        retries = Retries(
            launcher, own, self._clock, jobs.spec_of, durable=store.capabilities.durable,
            fail_closed=self._intent_required(), seconds_paused=pauses.seconds_left,
        )
        launcher.on_launched = retries.launched
        launcher.pools.seconds_paused = pauses.seconds_left
        launcher.pools.configure(self._configuration.settings.pools)
        launcher.pools.close()  # until everything of the earlier daemon has its place
        scheduler = Scheduler(Agenda(self._clock.now()), jobs, launcher, supervisors, self._clock, pauses)
        catchup = CatchUp(jobs, launcher, pauses, own, self._clock, durable=store.capabilities.durable)
        scheduler.made_up_for = catchup.fell_behind
        boot_runs = BootRuns(jobs, launcher, pauses, own, durable=store.capabilities.durable)
        if store.capabilities.shared:
            from sexton.daemon.onefire import OneFire  # one node alone starts sooner without it

            one_fire = OneFire(store, home.identity, jobs, self._on_unavailable(), fleet.living)
            one_fire.on_lost_fire = scheduler.launch_late
            scheduler.one_fire = catchup.one_fire = fleet.one_fire = one_fire
        sla = SlaWatch(jobs, registry, pauses, self._clock, scheduler.agenda.next_of)
        reloader = Reloader(self._path, self._configuration, jobs, scheduler, store, self._clock)
        reloader.on_changed = partial(_take_up_pools, launcher)
        filled_at = self._fill(jobs, scheduler)
        if store.capabilities.shared:
            await fleet.announce()  # before anything is started: who has an intent must be seen to live
        if kept is not None:
            take_over(found, launcher, kept, jobs.by_name())
        await pauses.recall()
        histories = await store.recent(REMEMBERED_RUNS)
        jobs.recall(histories)
        own_histories = of_node(histories, node) if store.capabilities.shared else histories
        for remnant in find_remnants(own_histories, jobs.specs(), launcher.boot_id, self._clock):
            launcher.keep_place_of(remnant)
        await requeue(store, launcher, jobs.by_name(), remember, self._is_ours)
        fleet.on_settled, fleet.refresh = remember, pauses.recall
        control = Control(
            node=node, jobs=jobs, registry=registry, launcher=launcher, scheduler=scheduler, reloader=reloader,
            supervisors=supervisors, ledger=store, output_files=self._output_files, clock=self._clock,
            logs_dropped=lambda: self._logs.dropped, retries=retries, pauses=pauses, catchup=catchup, sla=sla,
            fleet=fleet, boot_runs=boot_runs,
        )
        self._reloader = reloader
        control.containment_advice = self._advice
        control.accepts_failed = lambda: self._troubles.accepts_failed
        control.logs_suppressed = lambda: self._logs.suppressed
        control.measures, control.statsd_dropped = measures, lambda: statsd.dropped
        stop_serving = await self._serve(control, self._configuration)
        logger.info("%d jobs from %s", len(jobs.specs()), self._path)
        reporting.get_ready()
        watch = ClockWatch(scheduler.wake)
        control.clock_watch = watch.active
        sla.on_breach = reporting.on_breach
        control.reports = reporting.outbox.health
        gc.enable()
        gc.collect()
        gc.freeze()  # the configuration lives as long as we do: no collection need ever walk it again
        systemd.ready()
        fleet_wide = {spec.name: histories[spec.name] for spec in jobs.specs()
                      if spec.name in histories and is_fleet_wide(spec)}
        await catchup.start({**own_histories, **fleet_wide}, self._interrupted, filled_at)
        promises = asyncio.create_task(sla.run(), name="sla")
        noting = asyncio.create_task(catchup.keep_noting(), name="decided until")
        await retries.take_up(jobs.by_name())
        launcher.pools.open()
        await boot_runs.run()
        scheduling = asyncio.create_task(scheduler.run(), name="scheduler")
        watching = asyncio.create_task(reloader.watch(), name="configuration watch")
        await fleet.succeed()
        state = self._configuration.settings.state
        retention = retention_of(state, store, home.identity, facilities, self._forget_output)
        living = live_beside_runs(store, fleet, slots, registry, retention)
        try:
            await self._until_stopped(scheduling)
            systemd.stopping()
            launcher.shutting_down = True
            launcher.pools.close()
            scheduler.stop()
            await drain(registry, reloader.settings.shutdown_timeout, self._at_once,
                        durable=store.capabilities.durable)
            await reporting.flush(self._at_once)
            statsd.close()
            if len(facilities.unwritten):
                await facilities.unwritten.offer(store)
            if len(facilities.unwritten):
                logger.error("%d record(s) could not be written and are lost with this process; the next start will "
                             "call those runs interrupted", len(facilities.unwritten))
        finally:
            promises.cancel()
            noting.cancel()
            catchup.close()
            boot_runs.close()
            await catchup.note_decided()
            await retries.close()
            watching.cancel()
            watch.close()
            await stop_serving()
            await slots.close()
            for task in living:
                task.cancel()
            await fleet.end()
        await scheduling

    def _slot_ttl(self) -> float:
        reloader = getattr(self, "_reloader", None)
        settings: Settings = self._configuration.settings if reloader is None else reloader.settings
        return settings.state.slot_ttl_seconds if settings.state is not None else StateSettings().slot_ttl_seconds

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(coroutine)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _until_stopped(self, scheduling: asyncio.Task[None]) -> None:
        """A scheduler loop that ends by itself has failed, and the daemon with it: loudly."""
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({stopping, scheduling}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if scheduling.done() and not self._stop.is_set():
            logger.critical("the scheduler loop has failed; the daemon stops", exc_info=scheduling.exception())

    def _fill(self, jobs: Jobs, scheduler: Scheduler) -> datetime:
        """Returns the instant after which the agenda fires."""
        now = self._clock.now()
        for spec in self._configuration.jobs:
            jobs.put(spec)
            occurrences = occurrences_for(spec)
            if occurrences is not None:
                scheduler.agenda.add(spec.name, occurrences, now)
        self._configuration = Configuration(
            settings=self._configuration.settings, findings=self._configuration.findings,
            sources=self._configuration.sources,
        )
        return now

    def _intent_required(self) -> bool:
        return self._on_unavailable() is OnStoreUnavailable.FAIL_CLOSED

    def _on_unavailable(self) -> OnStoreUnavailable:
        state = self._configuration.settings.state
        return OnStoreUnavailable.DEGRADE if state is None else state.on_store_unavailable

    def _take_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGHUP, self._asked_to_reload)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _asked_to_stop(self) -> None:
        if self._stop.is_set():
            self._at_once.set()
        self._stop.set()

    def _asked_to_reload(self) -> None:
        reloader = getattr(self, "_reloader", None)
        if reloader is not None:
            self._keep(reloader.reload())


def _take_up_pools(launcher: Launcher, changes: JobDiff, settings: Settings) -> None:
    changed: dict[str, JobSpec | None] = {spec.name: None for spec in changes.removed}
    changed.update({change.after.name: change.after for change in changes.changed})
    launcher.take_up_pools(settings.pools, changed)


def _last_lines(run: Run) -> list[tuple[str, str]]:
    """What the log view shows of it when nothing runs: its own lines, then those of its check."""
    found: list[tuple[str, str]] = []
    for part, prefix in ((run, ""), (run.check, CHECK_PREFIX)):
        if part is not None and part.capture is not None:
            found += [(prefix + stream.value, line) for stream, line in part.capture.saved()[-SHOWN_LINES:]]
    return found


def _containment_advice() -> str:
    from sexton.doctor.home import find_home  # only where there is something to say
    from sexton.doctor.obstacle import advice

    return advice(find_home(os.environ))

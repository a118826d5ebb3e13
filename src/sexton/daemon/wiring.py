"""The life of a daemon process, from the loaded configuration to its end. `assembly.py` puts its parts together."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

from sexton import __version__
from sexton.daemon import systemd
from sexton.daemon.assembly import Ground, Parts, slot_ttl
from sexton.daemon.clockwatch import ClockWatch
from sexton.daemon.control import Control
from sexton.daemon.fleet import dead_daemons
from sexton.daemon.halfway import tell_halfway
from sexton.daemon.jobs import REMEMBERED_RUNS
from sexton.daemon.logs import LogThread
from sexton.daemon.node import Belongings, NodeHome
from sexton.daemon.nodestate import is_fleet_wide, of_node
from sexton.daemon.retention import Retention, retention_of
from sexton.daemon.shutdown import drain
from sexton.daemon.stores import belongings_of, home_of, make_store
from sexton.daemon.timetable import occurrences_for
from sexton.daemon.troubles import Troubles
from sexton.execution import cgroup
from sexton.execution.birth import kernel
from sexton.execution.controllers import Controllers
from sexton.execution.mirror import Mirror
from sexton.execution.sampler import Sampler
from sexton.execution.supervisors import Supervisors
from sexton.execution.zygote import raise_descriptor_limit
from sexton.model.clock import Clock, Monotonic
from sexton.model.errors import StoreError
from sexton.model.run import RunRecord
from sexton.model.settings import Configuration
from sexton.run.adoption import take_over
from sexton.run.background import Background
from sexton.run.confine import Confining
from sexton.run.recovery import recover
from sexton.run.remnant import find_remnants
from sexton.run.requeue import requeue
from sexton.run.takeover import Found, find_kept
from sexton.store.coordination import Store
from sexton.store.inuse import StoreInUse
from sexton.store.port import JobHistory

logger = logging.getLogger("sexton.daemon")

Serve = Callable[[Control, Configuration], Awaitable[Callable[[], Awaitable[None]]]]
"""Start the API; returns how to stop it. Handed in, because the daemon does not know the API."""

SYSTEM_CLOCK = Clock(now=lambda: datetime.now(UTC), monotonic=lambda: Monotonic(time.monotonic()))


class Daemon:
    """One daemon process."""

    def __init__(self, path: str, configuration: Configuration, logs: LogThread, serve: Serve) -> None:
        self._path = path
        self._configuration = configuration
        self._logs = logs
        self._serve = serve
        self._clock = SYSTEM_CLOCK
        self._stop = asyncio.Event()
        self._at_once = asyncio.Event()
        self._belongings: Belongings | None = None
        self._parts: Parts | None = None
        self._reloads = Background()

    async def run(self) -> int:
        """Until SIGTERM or SIGINT. Returns the exit status; raises StoreError when the store cannot be used."""
        state = self._configuration.settings.state
        self._take_signals()
        store: Store = make_store(state, self._forget_output)
        if state is not None:
            store = StoreInUse(store)
        await store.open()
        try:
            home = await asyncio.to_thread(home_of, state, store)
            self._belongings = belongings_of(state, home)
            await asyncio.to_thread(tell_halfway, home.directory, state)
            try:
                return await self._with_store(store, home)
            finally:
                home.leave()
        finally:
            try:
                await store.close()
            except StoreError as failure:
                logger.error("closing the store: %s", failure)

    def _forget_output(self, run_ids: Sequence[str]) -> None:
        if self._belongings is not None:
            self._belongings.output_files.forget(list(run_ids))

    async def _with_store(self, store: Store, home: NodeHome) -> int:
        troubles, own = Troubles(), self._belongings
        asyncio.get_running_loop().set_exception_handler(troubles)
        kernel.become_subreaper()  # the third line: orphans of a zygote that was killed come to us
        kept, words = (own.kept, own.words) if own is not None else (None, None)
        ttl = slot_ttl(self._configuration.settings.state)
        self._is_ours = await dead_daemons(store, home.identity, ttl)
        found = await find_kept(store, kept, self._is_ours) if kept is not None else []
        living = {one.launch.id for one in found}
        interrupted = await recover(store, self._clock.now(), living, words, self._is_ours)
        base = cgroup.claim()
        supervisors = Supervisors(base, raise_descriptor_limit(), words)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, supervisors.reap_orphans)
        mirror, confining = Mirror(), Confining(Controllers(base), Sampler(base))
        advice = None if base is not None else _containment_advice()
        logger.info("sexton %s on %s: containment %s%s", __version__, socket.gethostname(),
                    supervisors.containment.value, f" ({advice})" if advice else "")
        ground = Ground(
            path=self._path, configuration=self._configuration, clock=self._clock, logs=self._logs, troubles=troubles,
            store=store, home=home, own=own, supervisors=supervisors, mirror=mirror, confining=confining,
            advice=advice, forget_output=self._forget_output)
        try:
            await self._live(Parts(ground), found, interrupted)
        finally:
            await supervisors.close()
            confining.close()
            mirror.close()
            if own is not None:
                own.output_files.close()
            if base is not None:
                cgroup.remove_tree(base)
        return 0

    async def _live(self, parts: Parts, found: list[Found], interrupted: list[RunRecord]) -> None:
        """From the first look at the past to the last record."""
        filled_at = self._fill(parts)
        histories = await self._settle_the_past(parts, found)
        self._parts = parts
        stop_serving = await self._serve(parts.control, self._configuration)
        logger.info("%d jobs from %s", len(parts.jobs.specs()), self._path)
        parts.reporting.get_ready()
        watch = ClockWatch(parts.scheduler.wake)
        parts.control.clock_watch = watch.active
        # What is there by now lives as long as we do: no collection need walk it, not even a first one, which would
        # hold up the first requests for 30 ms to find a thousand objects.
        gc.freeze()
        gc.enable()
        systemd.ready()
        await parts.catchup.start(histories, interrupted, filled_at, [one.launch for one in found])
        about_jobs = [asyncio.create_task(parts.sla.run(), name="sla"),
                      asyncio.create_task(parts.catchup.keep_noting(), name="decided until")]
        await parts.retries.take_up(parts.jobs.by_name())
        parts.launcher.pools.open()
        await parts.boot_runs.run()
        scheduling = asyncio.create_task(parts.scheduler.run(), name="scheduler")
        about_jobs.append(asyncio.create_task(parts.reloader.watch(), name="configuration watch"))
        await parts.fleet.succeed()
        store, home = parts.ground.store, parts.ground.home
        retention = retention_of(
            lambda: parts.reloader.settings.state, store, home.identity, parts.facilities, self._forget_output)
        beside = _live_beside_runs(parts, retention)
        try:
            await self._until_stopped(scheduling)
            await self._drain(parts)
        finally:
            for task in about_jobs:
                task.cancel()
            watch.close()
            await _close(parts, stop_serving, beside)
        await scheduling

    def _fill(self, parts: Parts) -> datetime:
        """Put the jobs in their places. Returns the instant after which the agenda fires."""
        now = self._clock.now()
        for spec in self._configuration.jobs:
            parts.jobs.put(spec)
            occurrences = occurrences_for(spec)
            if occurrences is not None:
                parts.scheduler.agenda.add(spec.name, occurrences, now)
        self._configuration = Configuration(
            settings=self._configuration.settings, findings=self._configuration.findings,
            sources=self._configuration.sources,
        )
        return now

    async def _settle_the_past(self, parts: Parts, found: list[Found]) -> Mapping[str, JobHistory]:
        """What an earlier daemon has left gets its place before anything is started. Returns the history by which
        missed occurrences are found."""
        ground, jobs, launcher = parts.ground, parts.jobs, parts.launcher
        shared = ground.store.capabilities.shared
        if shared:
            await parts.fleet.announce()  # who has an intent must be seen to live
        if ground.own is not None:
            take_over(found, launcher, ground.own.kept, jobs.by_name())
        await parts.pauses.recall()
        histories = await ground.store.recent(REMEMBERED_RUNS)
        jobs.recall(histories)
        own = of_node(histories, ground.home.identity.name) if shared else histories
        for remnant in find_remnants(own, jobs.specs(), launcher.boot_id, self._clock):
            launcher.keep_place_of(remnant)
        await requeue(ground.store, launcher, jobs.by_name(), parts.aftermath.remember, self._is_ours)
        fleet_wide = {spec.name: histories[spec.name] for spec in jobs.specs()
                      if spec.name in histories and is_fleet_wide(spec)}
        return {**own, **fleet_wide}

    async def _until_stopped(self, scheduling: asyncio.Task[None]) -> None:
        """A scheduler loop that ends by itself has failed, and the daemon with it: loudly."""
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({stopping, scheduling}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if scheduling.done() and not self._stop.is_set():
            logger.critical("the scheduler loop has failed; the daemon stops", exc_info=scheduling.exception())

    async def _drain(self, parts: Parts) -> None:
        """No new starts; what runs comes to its end, and is recorded and reported."""
        systemd.stopping()
        self._logs.hurry()
        parts.launcher.shutting_down = True
        parts.launcher.pools.close()
        parts.scheduler.stop()
        store, unwritten = parts.ground.store, parts.facilities.unwritten
        await drain(parts.registry, parts.reloader.settings.shutdown_timeout, self._at_once,
                    durable=store.capabilities.durable)
        await parts.reporting.flush(self._at_once)
        parts.statsd.close()
        if len(unwritten):
            await unwritten.offer(store)
        if len(unwritten):
            logger.error("%d record(s) could not be written and are lost with this process; the next start will "
                         "call those runs interrupted", len(unwritten))

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
        if self._parts is not None:
            self._reloads.begin(self._parts.reloader.reload())


def _live_beside_runs(parts: Parts, retention: Retention) -> list[asyncio.Task[None]]:
    """Keep our slots, hear the other nodes and be heard, forget what is old: tasks that never end, for the caller to
    cancel. A store that is one node's own has nobody to hear."""
    store, fleet, slots = parts.ground.store, parts.fleet, parts.slots
    tasks = [asyncio.create_task(slots.keep_renewing(), name="slots"),
             asyncio.create_task(retention.run(), name="retention")]
    if retention.forgotten_output is not None:
        tasks.append(asyncio.create_task(retention.forgotten_output.run(), name="output of forgotten runs"))
    if store.capabilities.shared:
        from sexton.daemon.inbox import Inbox  # one node alone starts sooner without it

        inbox = Inbox(store, fleet.me.id, parts.registry, slots)
        tasks += [asyncio.create_task(fleet.run(), name="nodes"), asyncio.create_task(inbox.run(), name="inbox")]
    return tasks


async def _close(
    parts: Parts, stop_serving: Callable[[], Awaitable[None]], beside: Sequence[asyncio.Task[None]],
) -> None:
    parts.catchup.close()
    parts.boot_runs.close()
    await parts.catchup.note_decided()
    await parts.retries.close()
    await stop_serving()
    if parts.moving is not None:
        await parts.moving.close()
    await parts.slots.close()
    for task in beside:
        task.cancel()
    await parts.fleet.end()


def _containment_advice() -> str:
    from sexton.doctor.home import find_home  # only where there is something to say
    from sexton.doctor.obstacle import advice

    return advice(find_home(os.environ))

"""Taking up a changed configuration: parsed in a child process, applied as a diff, or not at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from sexton.config.diff import JobDiff, diff_jobs
from sexton.config.watch import signature
from sexton.daemon import loader, loading, systemd
from sexton.daemon.jobs import REMEMBERED_RUNS, Jobs
from sexton.daemon.scheduler import Scheduler
from sexton.daemon.stores import place_of
from sexton.daemon.timetable import occurrences_for
from sexton.model.clock import Clock
from sexton.model.errors import StoreError
from sexton.model.job import JobSpec
from sexton.model.settings import Configuration, Finding, Settings, StateSettings
from sexton.store.port import JobHistory, Ledger

logger = logging.getLogger("sexton.config")

WATCH_SECONDS = 2.0
FEW = 20
"""Up to so many added jobs are looked up in the ledger one by one."""
BREATH = 100
"""Jobs put on the agenda between two looks of the event loop at everything else."""


class ReloadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a reload came to. On failure the old configuration is in force, whole."""

    ok: bool
    at: datetime
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    findings: tuple[str, ...] = ()


class TakesRestart(msgspec.Struct, frozen=True):
    """A change that a living daemon does not take up, and why."""

    why: str


async def _stay(here: StateSettings, there: StateSettings) -> TakesRestart | None:
    return TakesRestart("the store is opened once")


class Reloader:
    """Knows the configuration in force and how it came to be."""

    def __init__(
        self, path: str, configuration: Configuration, jobs: Jobs, scheduler: Scheduler, ledger: Ledger, clock: Clock,
    ) -> None:
        self.path = path
        self.settings: Settings = configuration.settings
        self.findings: Sequence[Finding] = configuration.findings
        self.last = ReloadResult(ok=True, at=clock.now(), added=len(configuration.jobs))
        self.last_success = self.last.at
        self.failures = 0
        self._sources = configuration.sources
        self._jobs = jobs
        self._scheduler = scheduler
        self._ledger = ledger
        self._clock = clock
        self.on_changed: Callable[[JobDiff, Settings], None] = lambda changes, settings: None
        """Told when a configuration is in force."""
        self.move_store: Callable[[StateSettings, StateSettings], Awaitable[TakesRestart | None]] = _stay
        """Asked to use the store of the second section instead of that of the first. Raises StoreError."""
        self._lock = asyncio.Lock()
        self._coming: asyncio.Task[ReloadResult] | None = None

    async def reload(self) -> ReloadResult:
        """Load and, if there is no error in it, apply. One at a time; nobody but the caller waits. Who asks while one
        waits to begin gets the answer of that one: it will read the files as they are then, and a flood of requests
        costs two loads."""
        if self._coming is None:
            self._coming = asyncio.get_running_loop().create_task(self._reload())
        return await asyncio.shield(self._coming)

    async def _reload(self) -> ReloadResult:
        async with self._lock:
            self._coming = None  # begun: who asks from here on may have changed what this one has read
            systemd.reloading()
            try:
                self.last = await self._take_up(await self._load())
            finally:
                systemd.ready()
            return self.last

    async def _load(self) -> Configuration:
        loop = asyncio.get_running_loop()
        try:
            child = await loop.run_in_executor(None, loader.begin, self.path)
            return await loop.run_in_executor(None, loading.finish, child)
        except (OSError, RuntimeError) as refused:  # no process, descriptor or thread is to be had now
            return loading.broken(f"the loader could not be started: {refused}")

    async def _take_up(self, configuration: Configuration) -> ReloadResult:
        self._sources = configuration.sources or self._sources
        now = self._clock.now()
        if configuration.errors:
            self.failures += 1
            for finding in configuration.errors:
                logger.error("configuration not taken up: %s", finding)
            logger.error("the configuration has errors; the one in force stays")
            return ReloadResult(ok=False, at=now, findings=tuple(str(finding) for finding in configuration.findings))
        for finding in configuration.warnings:
            if finding not in self.findings:
                logger.warning("%s", finding)
        try:
            await self._take_up_settings(configuration.settings)
        except StoreError as failure:
            self.failures += 1
            why = f"section state names another store, which cannot be moved to: {failure}"
            logger.error("configuration not taken up: %s", why)
            return ReloadResult(ok=False, at=now, findings=(why,))
        self.findings = configuration.findings
        self.last_success = now
        return await self._apply(configuration, now)

    async def _take_up_settings(self, new: Settings) -> None:
        """Sockets are opened once, and so are most stores: what changed about them waits for a restart, and is said.
        Raises StoreError when another store is named that cannot be used."""
        state, reason = self.settings.state, ""
        if state is not None and new.state is not None:
            if await _is_same_place(state, new.state):
                state = msgspec.structs.replace(
                    state, slot_ttl_seconds=new.state.slot_ttl_seconds, path=new.state.path)
            else:
                stays = await self.move_store(state, new.state)
                state, reason = (new.state, "") if stays is None else (state, f" ({stays.why})")
        for name, here in (("web", self.settings.web), ("state", state), ("logging", self.settings.logging)):
            if getattr(new, name) != here:
                logger.warning("section %s has changed; that takes effect when the daemon is restarted%s", name,
                               reason if name == "state" else "")
        self.settings = msgspec.structs.replace(
            self.settings, shutdown_timeout=new.shutdown_timeout, pools=new.pools, state=state)

    async def _apply(self, configuration: Configuration, now: datetime) -> ReloadResult:
        """Running runs are not touched: they end under the definition that they started with."""
        changes = diff_jobs(self._jobs.specs(), configuration.jobs)
        histories = await self._histories([spec.name for spec in changes.added])
        for spec in changes.removed:
            self._jobs.remove(spec.name)
            self._scheduler.agenda.remove(spec.name)
        for spec in changes.unchanged:
            self._jobs.put(spec)
        for number, spec in enumerate((*changes.added, *changes.changed), 1):
            self._put(spec)
            if number % BREATH == 0:
                await asyncio.sleep(0)
        self._jobs.recall(histories)
        self.on_changed(changes, self.settings)
        self._scheduler.wake()
        result = ReloadResult(
            ok=True, at=now, added=len(changes.added), changed=len(changes.changed), removed=len(changes.removed),
            unchanged=len(changes.unchanged), findings=tuple(str(finding) for finding in configuration.findings),
        )
        logger.info("configuration taken up: %d jobs added, %d changed, %d removed, %d unchanged", result.added,
                    result.changed, result.removed, result.unchanged)
        return result

    async def _histories(self, names: Sequence[str]) -> Mapping[str, JobHistory]:
        """What the ledger knows of jobs that are new here: they may have been here before."""
        try:
            if len(names) > FEW:
                histories = await self._ledger.recent(REMEMBERED_RUNS)
                return {name: histories[name] for name in names if name in histories}
            return {name: await self._ledger.history(name, REMEMBERED_RUNS) for name in names}
        except StoreError as failure:
            logger.error("the history of the added jobs cannot be read: %s", failure)
            return {}

    def _put(self, spec: JobSpec) -> None:
        self._jobs.put(spec)
        occurrences = occurrences_for(spec)
        if occurrences is None:
            self._scheduler.agenda.remove(spec.name)
        else:
            self._scheduler.agenda.add(spec.name, occurrences, self._clock.now())

    async def watch(self) -> None:
        """Reload whenever a source has changed on disk and has kept still for one look."""
        loop = asyncio.get_running_loop()
        taken = seen = await loop.run_in_executor(None, signature, self._sources)
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            current = await loop.run_in_executor(None, signature, self._sources)
            if current != taken and current == seen:
                await self.reload()
                taken = current = await loop.run_in_executor(None, signature, self._sources)
            seen = current


async def _is_same_place(here: StateSettings, there: StateSettings) -> bool:
    """However the path is spelled. Raises StoreError when it takes too long to say."""
    if (here.url, here.deployment_id) != (there.url, there.deployment_id):
        return False
    return here.path == there.path or await place_of(here) == await place_of(there)

"""The parts of a daemon, put together: the only place that names the implementations of what a run needs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from sexton.config.diff import JobDiff
from sexton.daemon.aftermath import Aftermath
from sexton.daemon.boot import BootRuns
from sexton.daemon.catchup import CatchUp
from sexton.daemon.control import Control
from sexton.daemon.fleet import Fleet
from sexton.daemon.jobs import Jobs
from sexton.daemon.logs import LogThread
from sexton.daemon.measures import Measures
from sexton.daemon.node import Belongings, NodeHome
from sexton.daemon.nodestate import NodeState
from sexton.daemon.pauses import Pauses
from sexton.daemon.reload import Reloader, TakesRestart
from sexton.daemon.reporting import Reporting
from sexton.daemon.scheduler import Scheduler
from sexton.daemon.sla import SlaWatch
from sexton.daemon.statsd import Statsd
from sexton.daemon.stores import OnPruned
from sexton.daemon.troubles import Troubles
from sexton.execution.mirror import Mirror
from sexton.execution.secrets import Vault
from sexton.execution.supervisors import Supervisors
from sexton.model.clock import Clock
from sexton.model.job import JobSpec
from sexton.model.settings import Configuration, OnStoreUnavailable, Settings, StateSettings
from sexton.run.background import Background
from sexton.run.confine import Confining
from sexton.run.facilities import Facilities
from sexton.run.launch import Launcher
from sexton.run.registry import Registry
from sexton.run.retries import Retries
from sexton.run.slotloss import SlotLoss
from sexton.run.slots import Slots
from sexton.schedule.agenda import Agenda
from sexton.store.coordination import Store
from sexton.store.inuse import StoreInUse

if TYPE_CHECKING:
    from sexton.daemon.moving import Moving


class Ground(msgspec.Struct, frozen=True):
    """What is there before the parts are."""

    path: str
    configuration: Configuration
    clock: Clock
    logs: LogThread
    troubles: Troubles
    store: Store
    home: NodeHome
    own: Belongings | None
    supervisors: Supervisors
    mirror: Mirror
    confining: Confining
    advice: str | None
    """What would contain runs better."""
    forget_output: OnPruned


class Parts:
    """Each is made once, in the order in which one needs the other; what needs a later one is told of it then."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.moving: Moving | None = None
        self._background = Background()
        self.jobs, self.registry, self.vault = Jobs(), Registry(), Vault()
        self.measures, self.statsd = Measures(), Statsd()
        self._durable = ground.store.capabilities.durable
        self._join_the_nodes()
        self._make_launching()
        self._make_scheduling()
        self._make_control()
        ground.logs.mask = self.vault.text

    def _join_the_nodes(self) -> None:
        store, home = self.ground.store, self.ground.home
        self.slots = Slots(store, home.identity, lambda: slot_ttl(self.reloader.settings.state))
        SlotLoss(self.registry, self.slots)
        self.fleet = Fleet(home, store, self.jobs, self.registry, self.slots, self.ground.clock)
        self.nodes_own = NodeState(store, home.identity.name) if store.capabilities.shared else store

    def _make_launching(self) -> None:
        ground, own = self.ground, self.ground.own
        me, policy = ground.home.identity, self._on_unavailable()
        self.reporting = Reporting(self.jobs.spec_of, self.vault, me.name)
        self.aftermath = Aftermath(self.jobs, self.reporting, self.measures, self.statsd, ground.clock)
        self.facilities = Facilities(
            ledger=ground.store, supervisors=ground.supervisors, registry=self.registry, clock=ground.clock,
            mirror=ground.mirror, output_files=own.output_files if own is not None else None,
            on_recorded=self.aftermath.recorded, on_started=self.aftermath.started,
            on_amended=self.aftermath.amended, on_unconfirmed=self.reporting.on_unconfirmed,
            confining=ground.confining, vault=self.vault,
            intent_required=policy is OnStoreUnavailable.FAIL_CLOSED, slots=self.slots, signals=ground.store,
            on_admitted=lambda run: self.launcher.on_launched(run), on_refused=self.aftermath.refused,
            on_silent=lambda holder, job: self._background.begin(self.fleet.settle_job(holder, job)),
            kept=own.kept if own is not None else None,
        )
        self.launcher = Launcher(self.facilities, me.name, me.boot_id, me.id)
        self.pauses = Pauses(ground.store, ground.clock, durable=self._durable)
        self.retries = Retries(
            self.launcher, self.nodes_own, ground.clock, self.jobs.spec_of, durable=self._durable,
            fail_closed=policy is OnStoreUnavailable.FAIL_CLOSED, seconds_paused=self.pauses.seconds_left,
        )
        self.aftermath.launcher, self.aftermath.retries = self.launcher, self.retries
        self.launcher.on_launched = self.retries.launched
        self.launcher.pools.seconds_paused = self.pauses.seconds_left
        self.launcher.pools.configure(ground.configuration.settings.pools)
        self.launcher.pools.close()  # until everything of the earlier daemon has its place

    def _make_scheduling(self) -> None:
        ground, jobs, launcher, pauses = self.ground, self.jobs, self.launcher, self.pauses
        self.scheduler = Scheduler(Agenda(ground.clock.now()), jobs, launcher, ground.supervisors, ground.clock, pauses)
        self.catchup = CatchUp(jobs, launcher, pauses, self.nodes_own, ground.clock, durable=self._durable)
        self.scheduler.made_up_for = self.catchup.fell_behind
        self.boot_runs = BootRuns(jobs, launcher, pauses, self.nodes_own, durable=self._durable)
        self.sla = SlaWatch(jobs, self.registry, pauses, ground.clock, self.scheduler.agenda.next_of)
        self.sla.on_breach = self.reporting.on_breach
        self.reloader = Reloader(ground.path, ground.configuration, jobs, self.scheduler, ground.store, ground.clock)
        self.reloader.on_changed = partial(_take_up_pools, launcher)
        self.reloader.move_store = self._move_store
        self.fleet.on_settled, self.fleet.refresh = self.aftermath.remember, pauses.recall
        if ground.store.capabilities.shared:
            self._fire_once()

    def _fire_once(self) -> None:
        from sexton.daemon.onefire import OneFire  # one node alone starts sooner without it

        me = self.ground.home.identity
        one_fire = OneFire(self.ground.store, me, self.jobs, self._on_unavailable(), self.fleet.living)
        one_fire.on_lost_fire = self.scheduler.launch_late
        self.scheduler.one_fire = self.catchup.one_fire = self.fleet.one_fire = one_fire
        self.aftermath.on_declined = lambda job, at: self._background.begin(one_fire.decline(job, at))

    def _make_control(self) -> None:
        ground = self.ground
        self.control = Control(
            node=ground.home.identity.name, jobs=self.jobs, registry=self.registry, launcher=self.launcher,
            scheduler=self.scheduler, reloader=self.reloader, supervisors=ground.supervisors, ledger=ground.store,
            output_files=self.facilities.output_files, clock=ground.clock,
            logs_dropped=lambda: ground.logs.dropped, retries=self.retries, pauses=self.pauses,
            catchup=self.catchup, sla=self.sla, fleet=self.fleet, boot_runs=self.boot_runs,
        )
        self.control.containment_advice = ground.advice
        self.control.accepts_failed = lambda: ground.troubles.accepts_failed
        self.control.stores_left = lambda: self.moving.left() if self.moving is not None else ()
        self.control.ends_untold = lambda: ground.store.untold if isinstance(ground.store, StoreInUse) else 0
        self.control.logs_suppressed = lambda: ground.logs.suppressed
        self.control.measures, self.control.statsd_dropped = self.measures, lambda: self.statsd.dropped
        self.control.reports = lambda: self.reporting.outbox.health()

    async def _move_store(self, here: StateSettings, there: StateSettings) -> TakesRestart | None:
        from sexton.daemon.moving import Moving  # few daemons ever need it

        ground = self.ground
        if self.moving is None:
            assert isinstance(ground.store, StoreInUse) and ground.own is not None
            self.moving = Moving(ground.store, ground.home, ground.own, self.fleet, self.slots, self.registry,
                                 self.jobs, ground.clock, ground.forget_output)
        return await self.moving.to(here, there)

    def _on_unavailable(self) -> OnStoreUnavailable:
        state = self.ground.configuration.settings.state
        return OnStoreUnavailable.DEGRADE if state is None else state.on_store_unavailable


def slot_ttl(state: StateSettings | None) -> float:
    """Seconds."""
    return (state if state is not None else StateSettings()).slot_ttl_seconds


def _take_up_pools(launcher: Launcher, changes: JobDiff, settings: Settings) -> None:
    changed: dict[str, JobSpec | None] = {spec.name: None for spec in changes.removed}
    changed.update({spec.name: spec for spec in changes.changed})
    launcher.take_up_pools(settings.pools, changed)

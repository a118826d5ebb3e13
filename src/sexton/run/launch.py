"""One door for every launch, whatever its trigger. Decide, register, and let the run live in its own task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from sexton.admission.decide import Admission, Refusal, Refuse, Replace, Start, Wait, decide
from sexton.execution.gate import Gate
from sexton.model.job import ConcurrencyPolicy, ConcurrencyScope, JobSpec, OnDaemonLoss
from sexton.model.pool import PoolSettings
from sexton.model.run import Launch, Phase, StopCause, Trigger
from sexton.run.background import Background
from sexton.run.conduct import conduct, outlast
from sexton.run.facilities import Facilities
from sexton.run.identity import RunIds, definition_of
from sexton.run.live import Run
from sexton.run.mailbox import SlotsGiven, StopRequested, VictimEnded
from sexton.run.pools import Pools, withdraw
from sexton.run.remnant import Remnant
from sexton.run.slots import Slots

logger = logging.getLogger("sexton.run")


def _tell_overlap(job: JobSpec, admission: Admission, scheduled_for: datetime | None) -> None:
    """The one line for a launch that meets a running instance: an overlap that is wanted is no warning."""
    level, what = logging.WARNING, ""
    match admission:
        case Start():
            level = logging.INFO
        case Refuse(refusal=Refusal.STILL_RUNNING | Refusal.UNCONFIRMED | Refusal.TOO_MANY):
            what = f"; the run due at {scheduled_for.isoformat()} is skipped" if scheduled_for else "; not started"
        case Refuse():
            return  # disabled or shutting down: not for the overlap's sake
    policy = job.concurrency_policy.value
    logger.log(level, "Job %s: still running and concurrencyPolicy is %s%s", job.name, policy, what)


class Launcher:
    """Launches runs. Nothing here waits: decision and registration are one step, so no two launches can race."""

    def __init__(self, facilities: Facilities, node: str, boot_id: str, daemon: str = "") -> None:
        """`daemon` is `NodeIdentity.id` of this process."""
        self.facilities = facilities
        self.node = node
        self.daemon = daemon
        self.boot_id = boot_id
        self.shutting_down = False
        self.refused_count = 0
        self.on_launched: Callable[[Run], None] = lambda run: None
        """Told of each run that was let in, before anything happens to it."""
        self.pools = Pools(facilities.registry, facilities.clock, self._admit)
        self._ids = RunIds()
        self.background = Background()

    def launch(self, job: JobSpec, trigger: Trigger, *, scheduled_for: datetime | None = None,
               requested_by: str | None = None, attempt: int = 1) -> Run | Refuse:
        """Start a run of the job now, or say why not. A Replace marks its victims before anything else happens."""
        registry = self.facilities.registry
        running, unconfirmed = registry.running(job.name), registry.unconfirmed(job.name)
        admission = decide(
            job, trigger, [run.id for run in running], [run.id for run in unconfirmed], shutting_down=self.shutting_down
        )
        if isinstance(admission, Wait):
            return self._queue(job, trigger, scheduled_for, requested_by, attempt)
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
        if not isinstance(admission, Start):
            return None
        return self._begin(job, Trigger.SCHEDULE, admission, scheduled_for, None, gate)

    def _begin(self, job: JobSpec, trigger: Trigger, admission: Admission, scheduled_for: datetime | None,
               requested_by: str | None, gate: Gate | None = None, *, attempt: int = 1) -> Run:
        registry, clock = self.facilities.registry, self.facilities.clock
        self.facilities.supervisors.warm_up()
        launch = self._launch_of(job, trigger, scheduled_for, requested_by, attempt)
        victims = frozenset(admission.victims) if isinstance(admission, Replace) else frozenset()
        run = Run(job, launch, clock, victims, gate)
        registry.add(run)
        self._let_in(run)
        self._stop_victims(run, victims)
        self.background.begin(conduct(run, self.facilities))
        return run

    def _let_in(self, run: Run) -> None:
        """A cluster-scoped run is let in when it has its slot (`entrance`), and has it until it is gone."""
        if self.facilities.slots is None or run.job.concurrency_scope is not ConcurrencyScope.CLUSTER:
            self.on_launched(run)
        else:
            self.background.begin(self._give_slot_back(run, self.facilities.slots))

    @staticmethod
    async def _give_slot_back(run: Run, slots: Slots) -> None:
        await run.freed.wait()
        slots.give_back(run.job.name, run.id)

    def _launch_of(self, job: JobSpec, trigger: Trigger, scheduled_for: datetime | None, requested_by: str | None,
                   attempt: int) -> Launch:
        created_at = self.facilities.clock.now()  # before the id: runs since an instant are found by their ids
        return Launch(
            id=self._ids.next(), job=job.name, trigger=trigger, node=self.node, daemon=self.daemon,
            scheduled_for=scheduled_for, requested_by=requested_by, created_at=created_at,
            boot_id=self.boot_id, attempt=attempt, keep=self._keeps(job),
        )

    def _stop_victims(self, run: Run, victims: Iterable[str]) -> None:
        for victim_id in victims:
            victim = self.facilities.registry.get(victim_id)
            if victim is not None:
                victim.mailbox.post(StopRequested(StopCause.REPLACED, reason=f"run {run.id} takes its place"))
                self.background.begin(self._tell_when_ended(victim, run))

    # ---------------------------------------------------------------- pools

    def _queue(self, job: JobSpec, trigger: Trigger, scheduled_for: datetime | None, requested_by: str | None,
               attempt: int) -> Run | Refuse:
        """Put a run into the queue of the job's pool. Of a Replace job only the newest waits, in the turn of the one
        before it."""
        assert job.pool is not None
        replaced = self.pools.queued(job.name) if job.concurrency_policy is ConcurrencyPolicy.REPLACE else []
        refused = self.pools.refusal(job, len(replaced))
        if refused is not None:
            self.refused_count += 1
            return refused
        launch = self._launch_of(job, trigger, scheduled_for, requested_by, attempt)
        since = min((one.launch.ticket.since for one in replaced if one.launch.ticket is not None),
                    default=launch.created_at)
        ticket = self.pools.ticket(job.pool, launch.created_at, definition_of(job), since)
        launch = msgspec.structs.replace(launch, ticket=ticket)
        for one in replaced:
            withdraw(one, StopRequested(StopCause.REPLACED, reason=f"run {launch.id} takes its place"))
        return self.wait_in_queue(job, launch)

    def wait_in_queue(self, job: JobSpec, launch: Launch) -> Run:
        """Let a run that has a ticket wait for its slots, and live."""
        run = Run(job, launch, self.facilities.clock)
        run.phase = Phase.QUEUED
        self.facilities.registry.add(run)
        self.pools.enqueue(run)
        self.background.begin(conduct(run, self.facilities))
        if run.waits_for_slots and launch.ticket is not None:
            logger.info("Job %s: run %s waits for %d slot(s) of pool %s", job.name, run.id, launch.ticket.slots,
                        launch.ticket.pool)
        return run

    def here(self, job: JobSpec, launch: Launch) -> Launch:
        """The identity of a run that an earlier daemon has left waiting, as one of ours."""
        return msgspec.structs.replace(
            launch, node=self.node, daemon=self.daemon, boot_id=self.boot_id, keep=self._keeps(job))

    def take_up_pools(self, pools: Sequence[PoolSettings], changed: Mapping[str, JobSpec | None]) -> None:
        """After a reload: what waits for a job that is another one now (None: no more) is cancelled."""
        for name, spec in changed.items():
            for run in self.pools.queued(name):
                ticket = run.launch.ticket
                if spec is None or not spec.enabled:
                    why = "its job was removed" if spec is None else "its job was disabled"
                elif ticket is None or ticket.definition != definition_of(spec):
                    why = "its job was changed"
                else:
                    continue
                logger.warning("Job %s: run %s leaves the queue: %s", name, run.id, why)
                withdraw(run, StopRequested(StopCause.CANCEL, reason=why))
        self.pools.configure(pools)

    def _admit(self, run: Run, victims: tuple[str, ...]) -> None:
        """Its pool has given the run its slots: now it is launched. An attempt that still waits for an older occurrence
        is not made any more."""
        run.granted = True
        run.mailbox.post(SlotsGiven(self.facilities.clock.now(), victims))
        if run.launch.trigger in (Trigger.SCHEDULE, Trigger.REBOOT):
            for other in self.pools.queued(run.job.name):
                if other.launch.trigger is Trigger.RETRY:
                    reason = f"run {run.id} is for a later occurrence"
                    withdraw(other, StopRequested(StopCause.REPLACED, reason=reason))
        self._let_in(run)
        self._stop_victims(run, victims)

    def _keeps(self, job: JobSpec) -> bool:
        if job.on_daemon_loss is not OnDaemonLoss.KEEP:
            return False
        if self.facilities.kept is None:  # a reload brought the option; what is durable is settled at the start
            logger.warning("Job %s: onDaemonLoss keep needs a daemon that was started with a `state` section; this run "
                           "ends with the daemon", job.name)
        return self.facilities.kept is not None

    def go_on(self, run: Run) -> None:
        """Live on with a run that an earlier daemon has started: from now on it is ours, also for the other nodes."""
        started_by = run.launch.daemon
        run.launch = msgspec.structs.replace(run.launch, daemon=self.daemon)
        self.facilities.ledger.note(run.record())
        self.facilities.registry.add(run)
        self.pools.hold(run)
        run.intended.set()
        self.on_launched(run)
        self._inherit_slot(run, started_by)
        self.background.begin(conduct(run, self.facilities))

    def keep_place_of(self, remnant: Remnant) -> None:
        """Hold the place of what an earlier daemon could not terminate."""
        self.facilities.registry.add(remnant)
        self.pools.hold(remnant)
        self._inherit_slot(remnant, remnant.launch.daemon)
        self.background.begin(outlast(remnant, self.facilities))

    def _inherit_slot(self, run: Run, started_by: str) -> None:
        """It has the slot of the daemon that started it, which is dead; another's it cannot have."""
        slots = self.facilities.slots
        if slots is not None and run.job.concurrency_scope is ConcurrencyScope.CLUSTER:
            self.background.begin(self._hold_inherited(run, slots, started_by))

    @classmethod
    async def _hold_inherited(cls, run: Run, slots: Slots, started_by: str) -> None:
        """One after the other: a slot that a slow store grants after the run's end would never be given back."""
        await slots.inherit(run.job.name, run.id, started_by)
        await cls._give_slot_back(run, slots)

    @staticmethod
    async def _tell_when_ended(victim: Run, successor: Run) -> None:
        await victim.freed.wait()
        successor.mailbox.post(VictimEnded(victim.id))

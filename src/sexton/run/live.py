"""A run while it lives: what has been learnt of it, and the record that can be made of that at any time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol, assert_never

from msgspec.structs import replace

from sexton.admission.decide import Refuse
from sexton.execution import limits
from sexton.execution.capture import Capture
from sexton.execution.gate import Gate
from sexton.execution.held import Grip
from sexton.execution.messages import (
    Emptied,
    Exited,
    KillRefused,
    Measured,
    MemoryExceeded,
    Signalled,
    Started,
    StartFailed,
    StreamClosed,
    SupervisorLost,
    Swept,
    Used,
)
from sexton.execution.sampler import Monitored, tree_use
from sexton.execution.secrets import Unlocked
from sexton.model.clock import Clock, Monotonic
from sexton.model.job import EndsWhen, JobSpec
from sexton.model.limits import LimitFacts, exceeded_text, refused_text
from sexton.model.run import (
    EXIT_MEMORY_EXCEEDED,
    EXIT_NOT_STARTED,
    EXIT_TIMED_OUT,
    Abandoned,
    Containment,
    Exit,
    Gone,
    GoneState,
    Launch,
    Outcome,
    Phase,
    RunRecord,
    Stop,
    StopCause,
    Survivor,
    Usage,
    Witness,
)
from sexton.model.verification import Verification
from sexton.run.lifecycle import COUNTS_AS_RUNNING, OVER, step
from sexton.run.mailbox import AbandonRequested, Mailbox, Message, SlotsGiven, StopRequested, VictimEnded

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Until(Protocol):
    """Takes the run's messages in until the condition holds (True) or the monotonic `limit` has passed (False)."""

    def __call__(self, run: Run, condition: Callable[[], bool], limit: Monotonic | None = None) -> Awaitable[bool]: ...


class Run:
    """One writer: the coroutine `conduct`. Everybody else reads, or posts to the mailbox."""

    is_check = False

    def __init__(self, job: JobSpec, launch: Launch, clock: Clock, victims: frozenset[str] = frozenset(),
                 gate: Gate | None = None) -> None:
        self.job = job
        self.launch = launch
        self.clock = clock
        self.mailbox = Mailbox()
        self.phase = Phase.CLAIMED
        self.waits_for = set(victims)
        self.gate = gate
        self.leave_queue: Callable[..., None] = lambda run, **more: None
        """How it leaves the queue of its pool by itself."""
        self.waits_for_slots = False
        """It is in the queue of its pool."""
        self.granted = False
        """Its pool has given it slots. Set with the message that says so: from that instant on it counts as running."""
        self.admitted_at: datetime | None = None
        self.expired: str | None = None
        """Why it was not started: it has waited too long."""
        self.pursues: str | None = None
        """The node that has been asked to give up the job's slot; the run waits for that."""
        self.refusal: Refuse | None = None
        """Why it was not let in by the cluster."""
        self.held: Grip | None = None
        self.capture: Capture | None = None
        self.unlocked: Unlocked | None = None
        # what execution said
        self.started: Started | None = None
        self.pid_started_ticks: int | None = None
        """About when the process started, in clock ticks since boot: with pid and boot id it tells it from a
        stranger."""
        self.start_failed: StartFailed | None = None
        self.exited: Exited | None = None
        self.emptied: Emptied | None = None
        self.signalled: Signalled | None = None
        self.kill_refused: KillRefused | None = None
        self.lost = False
        self.lost_because: str | None = None
        self.swept = False
        self.sweep_witness: Witness | None = None
        self.adopted = 0
        """How many later daemons have taken it over; this one is the last of them."""
        self.memory_exceeded = False
        self.measured: Measured | None = None
        self.used: Used | None = None
        # what we decided
        self.limits: limits.Intended | None = None
        self.limits_refused: str | None = None
        self.monitored: Monitored | None = None
        self.stop: Stop | None = None
        self.force = False
        self.started_at: datetime | None = None
        self.deadline: Monotonic | None = None
        self.deadline_passed = False
        self.ended_at: datetime | None = None
        self.ended_mono: Monotonic | None = None
        self.ended_unseen: Monotonic | None = None
        """When it ended, if no daemon was there to see it."""
        self.left: tuple[Survivor, ...] = ()
        self.unconfirmed = False
        """Stopped, not proven gone, and it keeps its place."""
        self.told_unconfirmed = False
        """Whoever wants to hear that it could not be terminated has heard so before its record."""
        self.abandoned: Abandoned | None = None
        self.check: Run | None = None
        """The check of what it has done, while it is there and after."""
        self.check_known = asyncio.Event()
        """The check has been started, or there is none."""
        self.unchecked: Verification | None = None
        """Why there was none."""
        self.outcome: Outcome | None = None
        self.fail_reason: str | None = None
        self.answered = asyncio.Event()
        """Whether it is let in, waits for a slot in the cluster, or is refused is known."""
        self.intended = asyncio.Event()
        """The ledger has the intent, or is not waited for any longer."""
        self.ended = asyncio.Event()
        """It has ended by itself, or the stop sequence has finished."""
        self.freed = asyncio.Event()
        """Its place may go to another run."""
        self.recorded = asyncio.Event()

    @property
    def id(self) -> str:
        return self.launch.id

    @property
    def counts_as_running(self) -> bool:
        """By its phase. A run whose end is not proven may keep its place beyond that: `unconfirmed`."""
        return self.phase in COUNTS_AS_RUNNING or (self.phase is Phase.QUEUED and self.granted)

    @property
    def over(self) -> bool:
        """It has ended."""
        return self.phase in OVER

    @property
    def pid(self) -> int | None:
        if self.check is not None and self.check.counts_as_running:
            return self.check.pid
        return self.started.pid or None if self.started else None

    def advance(self, phase: Phase) -> None:
        self.phase = step(self.phase, phase)

    # ---------------------------------------------------------------- learning

    def learn(self, message: Message) -> None:
        """Take in one message. Facts are only ever added; the first cause of a stop stays."""
        match message:
            case Started():
                self._learn_start(message)
            case StartFailed():
                self.start_failed = message
            case Exited():
                self.exited = message
            case Emptied():
                self.emptied = message
            case Signalled():
                self.signalled = message
                if self.stop is not None:
                    self.stop = replace(self.stop, signalled_at=self.wall(message.at))
            case KillRefused():
                self.kill_refused = message
            case MemoryExceeded():
                self._learn_memory_exceeded(message)
            case Measured():
                self.measured = message
            case Used():
                self.used = message
            case SupervisorLost():
                self.lost = True
            case Swept():
                self.swept = True
                self.sweep_witness = message.witness
            case StreamClosed():
                pass  # the capture knows; the message wakes the reader
            case VictimEnded():
                self.waits_for.discard(message.run_id)
            case SlotsGiven():
                self.admitted_at = message.at
                self.waits_for = set(message.victims)
            case StopRequested():
                self._learn_stop(message)
            case AbandonRequested():
                self.abandoned = Abandoned(
                    at=self.clock.now(), requested_by=message.requested_by, reason=message.reason)
            case _:
                assert_never(message)
        if self.unconfirmed and (self.proven_gone or self.abandoned is not None):
            self.free()

    def survivors(self) -> tuple[Survivor, ...]:
        """The processes of the run that are alive now."""
        return self.held.left_behind() if self.held is not None else ()

    def free(self) -> None:
        """Give up the place."""
        self.unconfirmed = False
        self.freed.set()

    def _learn_start(self, message: Started) -> None:
        self.started = message
        slept = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
        self.pid_started_ticks = int((message.at + slept) * CLOCK_TICKS)
        self.started_at = self.wall(message.at)
        if self.job.execution_timeout is not None:
            self.deadline = Monotonic(message.at + self.job.execution_timeout)

    def _learn_stop(self, request: StopRequested) -> None:
        if self.over:
            return  # it came on the heels of the end: the run keeps the outcome that it ended with
        self.force = self.force or request.force
        if self.stop is None:
            self.stop = Stop(
                cause=request.cause, reason=request.reason, requested_by=request.requested_by,
                requested_at=self.clock.now(),
            )

    def _learn_memory_exceeded(self, message: MemoryExceeded) -> None:
        self.memory_exceeded = True
        caps = self.job.resource_limits
        if self.stop is None and caps is not None and self.counts_as_running:
            at = self.wall(message.at)
            self.stop = Stop(cause=StopCause.LIMITS, reason=exceeded_text(caps), requested_at=at)

    def refuse_limits(self, why: str) -> str:
        """The run is not started because its caps are required; returns the reason."""
        self.limits_refused = why
        return refused_text(why)

    def mark_forced(self) -> None:
        if self.stop is not None and self.stop.forced_at is None:
            self.stop = replace(self.stop, forced_at=self.clock.now())

    def wall(self, at: Monotonic) -> datetime:
        """The wall-clock instant of a monotonic one, as the two clocks stand to each other now."""
        return self.clock.now() - timedelta(seconds=self.clock.monotonic() - at)

    # ---------------------------------------------------------------- conditions

    @property
    def start_known(self) -> bool:
        return self.started is not None or self.start_failed is not None or self.lost

    @property
    def process_gone(self) -> bool:
        """The job's own process is gone (or its supervisor is, and then nobody will tell)."""
        return self.exited is not None or self.swept or self.start_failed is not None

    @property
    def output_closed(self) -> bool:
        return self.capture is None or not self.capture.open_streams

    @property
    def finished_by_itself(self) -> bool:
        return self.process_gone and (self.output_closed or self.job.ends_when is EndsWhen.EXIT)

    @property
    def proven_gone(self) -> bool:
        if self.swept:
            return self.sweep_witness is not None
        if self.started is None and not self.lost:
            return True
        return self.emptied is not None and self.emptied.cgroup_empty is not False

    # ---------------------------------------------------------------- facts for the record

    @property
    def exit_code(self) -> int | None:
        if self.started is None and self.start_failed is not None:
            return EXIT_NOT_STARTED
        if self.stop is not None and self.stop.cause is StopCause.LIMITS:
            return EXIT_MEMORY_EXCEEDED
        if self.deadline_passed:
            return EXIT_TIMED_OUT
        return None if self.exited is None else os.waitstatus_to_exitcode(self.exited.status)

    @property
    def exit(self) -> Exit | None:
        if self.exited is None:
            return None
        code = os.waitstatus_to_exitcode(self.exited.status)
        return Exit(signal=-code) if code < 0 else Exit(code=code)

    @property
    def usage(self) -> Usage | None:
        return self.exited.usage if self.exited else None

    @property
    def containment(self) -> Containment:
        return self.started.containment if self.started else Containment.NONE

    def gone(self) -> Gone | None:
        """The evidence at this moment; None while the run is not over."""
        if self.swept:
            if self.sweep_witness is None:
                return Gone(state=GoneState.UNKNOWN)
            return Gone(state=GoneState.PROVEN, witnesses=(self.sweep_witness,))
        if self.started is None and not self.lost:
            never = self.start_failed is not None or self.over
            return Gone(state=GoneState.PROVEN, witnesses=(Witness.NEVER_STARTED,)) if never else None
        if self.emptied is not None:
            match self.emptied.cgroup_empty:
                case True:
                    return Gone(state=GoneState.PROVEN, witnesses=(Witness.SUPERVISOR, Witness.CGROUP))
                case None:
                    return Gone(state=GoneState.PROVEN, witnesses=(Witness.SUPERVISOR,))
                case False:
                    state = GoneState.SURVIVORS if self.left else GoneState.UNKNOWN
                    return Gone(state=state, witnesses=(Witness.SUPERVISOR,), survivors=self.left)
        if self.phase is Phase.CONFIRMING and self.held is not None:
            return Gone(state=GoneState.UNKNOWN, survivors=self.held.left_behind())
        if self.counts_as_running:
            return None
        return Gone(state=GoneState.SURVIVORS if self.left else GoneState.UNKNOWN, survivors=self.left)

    @property
    def duration(self) -> float | None:
        if self.started is None or self.ended_mono is None:
            return None
        return round(max(0.0, self.ended_mono - self.started.at), 6)

    def limit_facts(self) -> LimitFacts | None:
        caps = self.job.resource_limits
        return None if caps is None else limits.facts(
            self.limits, caps, self.started, self.measured, memory_exceeded=self.memory_exceeded,
            refused=self.limits_refused,
        )

    def verification(self) -> Verification | None:
        """What became of the check; None for a run without."""
        return self.unchecked if self.check is None else self.check.verification()

    def all_gone(self) -> Gone | None:
        """The evidence for the run and its check together: the weaker of the two."""
        own = self.gone()
        if self.check is None or own is None or own.state is not GoneState.PROVEN:
            return own
        return self.check.gone()

    def _masked(self, text: str | None) -> str | None:
        return text if text is None or self.unlocked is None else self.unlocked.masks.text(text)

    def _masked_stop(self) -> Stop | None:
        if self.stop is None or self.unlocked is None:
            return self.stop
        return replace(self.stop, reason=self._masked(self.stop.reason))

    def record(self, phase: Phase | None = None) -> RunRecord:
        """All that is known now. While the run lives, outcome and finished_at are None. `phase` is what the record says
        in place of the present one."""
        deadline_at = None
        if self.deadline is not None and self.started_at is not None and self.job.execution_timeout is not None:
            deadline_at = self.started_at + timedelta(seconds=self.job.execution_timeout)
        return RunRecord(
            launch=self.launch, phase=phase or self.phase, admitted_at=self.admitted_at, outcome=self.outcome,
            exit=self.exit, exit_code=None if self.ended_mono is None else self.exit_code, stop=self._masked_stop(),
            gone=self.all_gone(), verification=self.verification(), abandoned=self.abandoned,
            containment=self.containment, pid=self.pid, pid_started_ticks=self.pid_started_ticks,
            started_at=self.started_at, deadline_at=deadline_at,
            finished_at=self.ended_at, duration=self.duration, fail_reason=self._masked(self.fail_reason),
            output=self.capture.facts() if self.capture else None, usage=self.usage,
            limits=self.limit_facts(), tree=tree_use(self.monitored, self.used, self.measured, self.usage),
            adopted=self.adopted, pursues=self.pursues,
        )

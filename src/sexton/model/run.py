"""What a run is and what is known of it: the record that the ledger keeps and the API shows."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

import msgspec

from sexton.model.limits import LimitFacts, TreeUse
from sexton.model.pool import Ticket
from sexton.model.verification import Verification


class Trigger(Enum):
    """What asked for the run."""

    SCHEDULE = "schedule"
    MANUAL = "manual"
    REBOOT = "reboot"
    RETRY = "retry"
    CATCHUP = "catchup"


class Phase(Enum):
    """Where a run is. `run/lifecycle.py` holds the table of allowed steps."""

    __hash__ = object.__hash__  # members are one of a kind; Enum's own is slow, and each step looks some up

    QUEUED = "queued"
    """It waits for slots of its pool."""
    CLAIMED = "claimed"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    """The own process has exited; captured output is still open."""
    VERIFYING = "verifying"
    """The command has ended well; its check is at work."""
    STOPPING = "stopping"
    """The graceful step is out; the own process has until killTimeout."""
    KILLING = "killing"
    CONFIRMING = "confirming"
    ENDED = "ended"
    """Counts for no policy any more; held output may still be waited for, the record is not yet written."""
    RECORDED = "recorded"


class Outcome(Enum):
    """The verdict on a run."""

    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    REPLACED = "replaced"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


class StopCause(Enum):
    """Why a run was ended by us. The first cause wins and is never overwritten."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    REPLACED = "replaced"
    SHUTDOWN = "shutdown"
    LIMITS = "limits"
    """It reached its memory cap: ended whole, at once."""
    LOST_LEASE = "lost-lease"
    """Its node could not renew its slot in the cluster, and another one may take it (`slotLost: cancel`)."""


class GoneState(Enum):
    """The evidence that nothing of the run is left."""

    PROVEN = "proven"
    SURVIVORS = "survivors"
    UNKNOWN = "unknown"


class Witness(Enum):
    """What testified that nothing is left."""

    SUPERVISOR = "supervisor"
    """waitpid(-1) answered ECHILD in the run's own child subreaper."""
    CGROUP = "cgroup"
    """No process but the supervisor itself is in the run's cgroup v2."""
    SWEEP = "sweep"
    """The supervisor died; the zygote, the second subreaper, ended and reaped all that reached it."""
    NEVER_STARTED = "never-started"
    """No process was ever made."""
    CRASH_SWEEP = "crash-sweep"
    """A later daemon looked for the interrupted run's processes and cgroup and found none."""


class Containment(Enum):
    """What holds a run's processes together."""

    SUPERVISOR_CGROUP = "supervisor+cgroup"
    SUPERVISOR = "supervisor"
    NONE = "none"


class Survivor(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the run that could not be ended."""

    pid: int
    uid: int | None = None
    state: str | None = None
    """The state letter of /proc/PID/stat: D is an uninterruptible sleep, which no signal ends."""
    wchan: str | None = None
    """Where in the kernel it sleeps, as far as this user may see it."""
    started_ticks: int | None = None
    """When it started, in clock ticks since boot: tells it from a stranger with its pid."""
    reason: str | None = None


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """How and why we ended a run. All instants are wall clock, UTC."""

    cause: StopCause
    reason: str | None = None
    requested_by: str | None = None
    requested_at: datetime
    signalled_at: datetime | None = None
    """When the graceful signal went to the run's process group."""
    forced_at: datetime | None = None
    """When the forced step was taken; it always is, but finds nothing where the tree is gone already."""
    confirmed_at: datetime | None = None
    """When it was proven that nothing of the run is left."""


class Abandoned(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody gave up the place of a run whose end could not be proven, and answers for it."""

    at: datetime
    requested_by: str | None = None
    reason: str | None = None


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    state: GoneState
    witnesses: tuple[Witness, ...] = ()
    survivors: tuple[Survivor, ...] = ()
    """Processes that outlived the forced step, or that a run which ended by itself left behind."""


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel said of the job's own process. Exactly one of the two is set."""

    code: int | None = None
    signal: int | None = None


class StreamSize(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one captured stream."""

    bytes: int = 0
    truncated: bool = False
    """The stream was closed by us before its end: what came after is not known."""


class OutputFacts(msgspec.Struct, frozen=True, kw_only=True):
    stdout: StreamSize | None = None
    stderr: StreamSize | None = None
    log: str | None = None
    """File name of the whole output under the state directory, when there is one."""
    log_dropped_bytes: int = 0
    """Bytes from the middle that the size cap or a full disk kept out of the log file."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What wait4() said of the job's own process and the children it waited for."""

    cpu_user_seconds: float
    cpu_system_seconds: float
    max_rss_bytes: int


class Launch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The identity of a run: written to the ledger before any process exists."""

    id: str
    """UUIDv7."""
    job: str
    trigger: Trigger
    node: str
    daemon: str = ""
    """`NodeIdentity.id` of the daemon process that starts it."""
    attempt: int = 1
    scheduled_for: datetime | None = None
    """The occurrence; None for a run that no schedule asked for."""
    requested_by: str | None = None
    created_at: datetime
    keep: bool = False
    """The run outlives the daemon (`onDaemonLoss: keep`): a later one looks for it."""
    boot_id: str = ""
    """Boot of the machine the intent was written in; with pid and start time it tells a survivor from a stranger."""
    ticket: Ticket | None = None
    """Of a run that had to ask a pool for slots."""


class RunRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known of one run. While it lives the API builds one on the fly; at its end it is written once."""

    launch: Launch
    phase: Phase
    admitted_at: datetime | None = None
    """When its pool gave it its slots."""
    outcome: Outcome | None = None
    exit: Exit | None = None
    exit_code: int | None = None
    """As the page on timeouts defines it: -N signal N, -100 timeout, 127 not started."""
    stop: Stop | None = None
    gone: Gone | None = None
    abandoned: Abandoned | None = None
    containment: Containment = Containment.NONE
    pid: int | None = None
    pid_started_ticks: int | None = None
    started_at: datetime | None = None
    deadline_at: datetime | None = None
    finished_at: datetime | None = None
    """The instant the run ended; a wait for held output comes after it."""
    duration: float | None = None
    """Seconds from start to end, by the monotonic clock."""
    fail_reason: str | None = None
    verification: Verification | None = None
    output: OutputFacts | None = None
    usage: Usage | None = None
    limits: LimitFacts | None = None
    tree: TreeUse | None = None
    """Of a monitored run."""
    pursues: str | None = None
    """The node that was asked to give up the job's slot; the run waits for that."""
    adopted: int = 0
    """How many times a later daemon has taken the run over from the one before."""


def intent_of(launch: Launch) -> RunRecord:
    """What is known of a run before anything has happened to it."""
    return RunRecord(launch=launch, phase=Phase.CLAIMED if launch.ticket is None else Phase.QUEUED)


EXIT_TIMED_OUT = -100
EXIT_NOT_STARTED = 127
EXIT_MEMORY_EXCEEDED = -9

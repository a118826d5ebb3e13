"""What a job is: the checked, immutable definition that every room works on.

Names, types and defaults are those of the reference daemon, so that a file written for it loads unchanged.
Fields are snake_case here and camelCase in the files and in the API (`rename="camel"`).
"""

from __future__ import annotations

from enum import Enum

import msgspec

from sexton.model.limits import Monitoring, ResourceLimits
from sexton.model.pool import PoolUse
from sexton.model.report import Reports
from sexton.model.retry import RetryPolicy
from sexton.model.secret import Secret
from sexton.model.sla import Sla
from sexton.model.statsd import StatsdSettings
from sexton.model.verification import Verify


class ConcurrencyPolicy(Enum):
    """What a launch does when an instance of the job is still running."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    REPLACE = "Replace"


class ConcurrencyScope(Enum):
    """Whose instances the policy looks at: this daemon's, or those of all nodes on the store."""

    NODE = "node"
    CLUSTER = "cluster"


class SlotLost(Enum):
    """What becomes of the runs of a cluster-scoped job when their node cannot keep the job's slot."""

    CONTINUE = "continue"
    """They go on, and may overlap with another node's; the binding page's rule."""
    CANCEL = "cancel"
    """They are stopped before another node may take the slot."""


class RunOn(Enum):
    """Which of the nodes that share a store fire an occurrence."""

    EVERY_NODE = "every-node"
    ONE_NODE = "one-node"
    """The first that claims it: once for the whole fleet."""


class DayRule(Enum):
    """How two restricted day fields combine: either matches (Vixie cron), or both must (cronstable)."""

    OR = "or"
    AND = "and"


class Priority(Enum):
    """Scheduling priority of the run's processes; see `execution/plan.py` for the nice values."""

    IDLE = "idle"
    BELOW_NORMAL = "below-normal"
    NORMAL = "normal"
    ABOVE_NORMAL = "above-normal"
    HIGH = "high"


class WhenUnconfirmed(Enum):
    """What becomes of the place of a run that was stopped and whose end could not be proven."""

    HOLD = "hold"
    """It keeps its place until it is seen gone or somebody abandons it."""
    RELEASE = "release"
    """The binding page's rule: the run has ended when the sequence has finished."""


class KillWaitsFor(Enum):
    """Whose end the grace period waits for."""

    PROCESS = "process"
    """The job's own process; the binding page's rule."""
    TREE = "tree"
    """Every process of the run."""


class EndsWhen(Enum):
    """When a run that nobody stops has ended."""

    OUTPUT_CLOSED = "output-closed"
    """Its own process has exited and its captured output is closed; the binding page's rule."""
    EXIT = "exit"
    """Its own process has exited. What is in the pipes then is read, what comes later is not."""


class Leftovers(Enum):
    """What becomes of the processes that a run leaves behind when it ends by itself."""

    KEEP = "keep"
    REPORT = "report"
    """Kept, with a warning and a count."""
    KILL = "kill"
    """Ended, before the place of the run goes to another."""


class OnDaemonLoss(Enum):
    """What becomes of a run when the daemon ends before it, however that happens."""

    KILL = "kill"
    KEEP = "keep"
    """Its supervisor keeps it, and the next daemon on the same state takes it over."""


class OnMissed(Enum):
    """What becomes of occurrences that nobody fired, because no daemon was there or the machine slept."""

    SKIP = "skip"
    RUN_ONCE = "run-once"
    """The newest of them is made up for."""
    RUN_ALL = "run-all"
    """Each of them is, one after the other."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where in the configuration something stands. Lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class ScheduleFields(msgspec.Struct, frozen=True, rename="camel"):
    """A schedule written as a map. A missing key means `*`; `second` defaults to `0`, `year` to `*`."""

    second: str = "0"
    minute: str = "*"
    hour: str = "*"
    day_of_month: str = "*"
    month: str = "*"
    year: str = "*"
    day_of_week: str = "*"

    def tokens(self) -> tuple[str, ...]:
        """In the order of the form with seven fields."""
        return (self.second, self.minute, self.hour, self.day_of_month, self.month, self.day_of_week, self.year)


class FailsWhen(msgspec.Struct, frozen=True, rename="camel"):
    """Which observations make a run a failure. A failed start is one in any case; so is a timeout unless `timeout` is
    false, whatever its exit code (-100) would say."""

    produces_stdout: bool = False
    produces_stderr: bool = True
    nonzero_return: bool = True
    always: bool = False
    timeout: bool = True


class JobSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One job as the configuration defines it, checked and with defaults applied."""

    name: str
    command: str | tuple[str, ...]
    """A string goes through `shell -c`; a list is executed as it stands."""
    schedule: str | ScheduleFields
    place: Place

    shell: str = "/bin/sh"
    enabled: bool = True
    utc: bool = True
    timezone: str | None = None
    """IANA name; wins over `utc`. None with `utc=False` means the host's local zone."""
    day_rule: DayRule = DayRule.OR

    environment: tuple[tuple[str, str], ...] = ()
    """Variables added to the daemon's environment, `env_file` already merged in (environment wins)."""
    secrets: tuple[Secret, ...] = ()
    """Variables whose values are looked up at each start and masked in everything that is kept or told of the run."""
    working_directory: str | None = None
    user: str | int | None = None
    group: str | int | None = None
    priority: Priority = Priority.NORMAL
    stdin: str | None = None
    """Text fed to standard input (crontab `%` lines); None is an empty standard input."""

    capture_stdout: bool = False
    capture_stderr: bool = True
    mirror_output: bool = True
    """Repeat captured output on the daemon's own standard output, each line behind `stream_prefix`."""
    save_limit: int = 4096
    """Lines of each stream kept in memory: the first half and the last half."""
    max_line_length: int = 16 * 1024 * 1024
    """Bytes; a longer line is cut there, with a mark, wherever lines are shown."""
    stream_prefix: str = "[{job_name} {stream_name}] "

    concurrency_policy: ConcurrencyPolicy = ConcurrencyPolicy.ALLOW
    concurrency_scope: ConcurrencyScope = ConcurrencyScope.NODE
    slot_lost: SlotLost = SlotLost.CONTINUE
    run_on: RunOn = RunOn.EVERY_NODE
    max_instances: int | None = None
    """How many instances a job with policy Allow may have at the same time. None: any number."""
    pool: PoolUse | None = None
    execution_timeout: float | None = None
    """Seconds a run may take, by the monotonic clock, until its captured output closes. None: no bound."""
    kill_timeout: float = 30.0
    """Seconds the job's own process has between the graceful and the forced step."""
    kill_waits_for: KillWaitsFor = KillWaitsFor.PROCESS
    ends_when: EndsWhen = EndsWhen.OUTPUT_CLOSED
    leftovers: Leftovers = Leftovers.KEEP
    when_unconfirmed: WhenUnconfirmed = WhenUnconfirmed.HOLD
    on_daemon_loss: OnDaemonLoss = OnDaemonLoss.KILL
    on_missed: OnMissed = OnMissed.SKIP
    starting_deadline: float | None = None
    """Seconds; what was missed longer ago is not made up for."""
    catchup_jitter: float = 0.0
    """Seconds by which catching up may begin later, by the job's name."""
    only_if_last_succeeded: bool = False
    """A scheduled launch is skipped unless the job's last run was a success (or there was none)."""
    jitter: float = 0.0
    """Seconds by which a scheduled launch may come later, the same for each occurrence whoever works it out."""
    fails_when: FailsWhen = FailsWhen()
    verify: Verify | None = None
    sla: Sla | None = None
    retry: RetryPolicy | None = None
    """None: a failure is final."""
    resource_limits: ResourceLimits | None = None
    monitor_resources: Monitoring | None = None
    statsd: StatsdSettings | None = None
    reports: Reports | None = None
    """Whom to tell of its runs."""

    ignored_options: tuple[str, ...] = ()
    """Options of the reference daemon that were accepted but that Sexton does not act on yet."""

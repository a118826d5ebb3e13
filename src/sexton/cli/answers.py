"""What the commands read of the API's answers.

Only what is shown is named here, and what is not there has a default: a daemon that says more is understood.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from sexton.model.job import ScheduleFields
from sexton.model.limits import LimitFacts
from sexton.model.pause import Pause
from sexton.model.run import Abandoned, Containment, Exit, Gone, Outcome, OutputFacts, Phase, Stop, Trigger


class Problem(msgspec.Struct, frozen=True):
    error: str


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    scope: str = "process"
    peak_memory_bytes: int | None = None
    max_processes: int | None = None
    cpu_user_seconds: float
    cpu_system_seconds: float
    max_rss_bytes: int


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    cpu: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    required: bool = False


class RunPool(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    slots: int = 1
    priority: int = 0
    expires_at: datetime | None = None
    waited_seconds: float | None = None


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    job: str
    trigger: Trigger
    phase: Phase
    created_at: datetime
    node: str = ""
    outcome: Outcome | None = None
    exit_code: int | None = None
    exit: Exit | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration: float | None = None
    fail_reason: str | None = None
    scheduled_for: datetime | None = None
    deadline_at: datetime | None = None
    requested_by: str | None = None
    stop: Stop | None = None
    gone: Gone | None = None
    abandoned: Abandoned | None = None
    containment: Containment = Containment.NONE
    pid: int | None = None
    output: OutputFacts | None = None
    resources: Resources | None = None
    limits: LimitFacts | None = None
    pool: RunPool | None = None
    pursues: str | None = None
    adopted: int = 0


class RunsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    runs: tuple[RunAnswer, ...]
    next: str | None = None


class Skip(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    reason: str
    scheduled_for: datetime | None = None


class JobPool(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    slots: int = 1
    priority: int = 0
    queue_timeout: float = 0.0


class JobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    enabled: bool
    schedule: str | ScheduleFields
    command: str | tuple[str, ...]
    running: bool
    utc: bool = True
    timezone: str | None = None
    pids: tuple[int, ...] = ()
    runs: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    pool: JobPool | None = None
    max_instances: int | None = msgspec.field(name="maxInstances", default=None)
    scheduled_in: float | str | None = None
    scheduled_at: datetime | None = None
    never_fires: bool = False
    last_run: RunAnswer | None = None
    paused: Pause | None = None
    skipped: int = 0
    last_skip: Skip | None = None
    concurrency_policy: str = msgspec.field(name="concurrencyPolicy", default="")
    concurrency_scope: str = msgspec.field(name="concurrencyScope", default="")
    execution_timeout: float | None = msgspec.field(name="executionTimeout", default=None)
    kill_timeout: float | None = msgspec.field(name="killTimeout", default=None)
    priority: str = ""
    limits: Caps | None = None
    ignored_options: tuple[str, ...] = ()
    source: str = ""


class PauseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    paused: Pause | None


class JobName(msgspec.Struct, frozen=True):
    name: str


class Started(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    holder: str | None = None
    waits_for: tuple[str, ...] = ()


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    at: datetime
    in_seconds: float


class Fires(msgspec.Struct, frozen=True, kw_only=True):
    fires: tuple[Fire, ...]


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    at: datetime
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    findings: tuple[str, ...] = ()


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    open: int = 0
    closed_idle: int = 0
    turned_away: int = 0
    not_accepted: int = 0


class StoreLeft(msgspec.Struct, frozen=True, kw_only=True):
    since: datetime
    answers: bool = True
    runs: tuple[str, ...] = ()


class HealthAnswer(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    version: str
    node: str
    started_at: datetime
    containment: str
    containment_advice: str | None = None
    durable: bool
    jobs: int
    running: int
    queued: int = 0
    last_reload: Reloaded
    reload_failures: int = 0
    skipped_late: int = 0
    launches_refused: int = 0
    mirror_dropped_bytes: int = 0
    log_lines_dropped: int = 0
    store_failures: int = 0
    store_problem: str | None = None
    unwritten_records: int = 0
    stores_left: tuple[StoreLeft, ...] = ()
    ends_untold: int = 0
    connections: Connections = Connections()
    supervisors: dict[str, int] = {}
    configuration_warnings: tuple[str, ...] = ()

"""What the API shows: the same types are answers and OpenAPI schemas. The command line has its own
(`cli/answers.py`), so that it can talk to a daemon of another version.

Names that the reference daemon has are kept as they are there (snake_case with a few camelCase ones).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from sexton.api.slots import SlotView
from sexton.api.use import Caps, Resources, RunningResources, caps_of, resources_of, use_stats
from sexton.daemon.jobs import JobEntry
from sexton.model.job import JobSpec, ScheduleFields
from sexton.model.limits import LimitFacts, Monitoring
from sexton.model.pause import Pause
from sexton.model.retry import PendingRetry
from sexton.model.run import Abandoned, Exit, Gone, Outcome, OutputFacts, RunRecord, Stop
from sexton.model.sla import Breach
from sexton.model.verification import Verification


class RunPool(msgspec.Struct, kw_only=True):
    """How a run has waited for slots of its pool, or does."""

    name: str
    slots: int
    priority: int
    queuedAt: datetime
    expiresAt: datetime
    admittedAt: datetime | None
    waitedSeconds: float | None


def pool_of(record: RunRecord) -> RunPool | None:
    ticket, queued_at = record.launch.ticket, record.launch.created_at
    if ticket is None:
        return None
    waited = round((record.admitted_at - queued_at).total_seconds(), 6) if record.admitted_at is not None else None
    return RunPool(name=ticket.pool, slots=ticket.slots, priority=ticket.priority, queuedAt=queued_at,
                   expiresAt=ticket.expires_at, admittedAt=record.admitted_at, waitedSeconds=waited)


class RunView(msgspec.Struct, kw_only=True):
    """One run. `outcome`, `finished_at` and `duration` are null while it lives."""

    id: str
    job: str
    trigger: str
    attempt: int
    node: str
    phase: str
    outcome: str | None
    exit_code: int | None
    exit: Exit | None
    started_at: datetime | None
    finished_at: datetime | None
    duration: float | None
    fail_reason: str | None
    scheduled_for: datetime | None
    created_at: datetime
    deadline_at: datetime | None
    requested_by: str | None
    stop: Stop | None
    gone: Gone | None
    abandoned: Abandoned | None
    pool: RunPool | None
    containment: str
    pid: int | None
    verification: Verification | None
    output: OutputFacts | None
    resources: Resources | None
    limits: LimitFacts | None
    pursues: str | None
    adopted: int
    ranAt: datetime | None  # the reference's name


def run_view(record: RunRecord) -> RunView:
    launch = record.launch
    return RunView(
        id=launch.id, job=launch.job, trigger=launch.trigger.value, attempt=launch.attempt, node=launch.node,
        phase=record.phase.value, outcome=record.outcome.value if record.outcome else None, exit_code=record.exit_code,
        exit=record.exit, started_at=record.started_at, finished_at=record.finished_at, duration=record.duration,
        fail_reason=record.fail_reason, scheduled_for=launch.scheduled_for, created_at=launch.created_at,
        deadline_at=record.deadline_at, requested_by=launch.requested_by, stop=record.stop, gone=record.gone,
        abandoned=record.abandoned, pool=pool_of(record), containment=record.containment.value, pid=record.pid,
        verification=record.verification, output=record.output, resources=resources_of(record), limits=record.limits,
        pursues=record.pursues, adopted=record.adopted, ranAt=record.finished_at,
    )


class HistoryMark(msgspec.Struct, kw_only=True):
    outcome: str | None
    duration: float | None


class SkipView(msgspec.Struct, kw_only=True):
    """The latest launch that did not happen, and why."""

    at: datetime
    reason: str
    scheduled_for: datetime | None


class JobPool(msgspec.Struct, kw_only=True):
    """What the job takes from its pool."""

    name: str
    slots: int
    priority: int
    queueTimeout: float


class JobView(msgspec.Struct, kw_only=True):
    """One job with its state. `pids` are the own processes of its runs that are not recorded yet."""

    name: str
    enabled: bool
    schedule: str | ScheduleFields
    command: str | tuple[str, ...]
    captureStdout: bool
    captureStderr: bool
    utc: bool
    timezone: str | None
    running: bool
    pids: list[int]
    runs: list[str]
    """Ids of the runs that are not recorded yet, and of those that keep their place."""
    queued: list[str]
    """Ids of the runs that wait for slots of the job's pool."""
    unconfirmed: list[str]
    """Ids of the runs that were stopped, are not proven gone, and keep their place."""
    pool: JobPool | None
    maxInstances: int | None
    scheduled_in: float | str | None
    scheduled_at: datetime | None
    never_fires: bool
    last_run: RunView | None
    history: list[HistoryMark]
    skipped: int
    last_skip: SkipView | None
    concurrencyPolicy: str
    concurrencyScope: str
    slot: SlotView | None
    """Of a cluster-scoped job."""
    runOn: str
    executionTimeout: float | None
    killTimeout: float
    killWaitsFor: str
    endsWhen: str
    leftovers: str
    whenUnconfirmed: str
    onlyIfLastSucceeded: bool
    jitter: float
    priority: str
    limits: Caps | None
    monitorResources: Monitoring | None
    running_resources: RunningResources | None
    ignored_options: tuple[str, ...]
    source: str
    retry: RetryView | None
    sla: SlaView | None
    paused: Pause | None
    rebootPending: bool


class RetryView(msgspec.Struct, kw_only=True):
    """A retry that waits for its time, with the reference's names."""

    attempt: int
    """Which retry it will be; 1 is the first."""
    maxAttempts: int | None
    """Retries that are allowed; null for any number."""
    nextRetryAt: datetime
    delaySeconds: float
    after: str
    """The run that failed."""


def retry_view(spec: JobSpec, pending: PendingRetry | None) -> RetryView | None:
    if pending is None:
        return None
    most = spec.retry.maximum_retries if spec.retry is not None else 0
    return RetryView(
        attempt=pending.attempt - 1, maxAttempts=None if most < 0 else most, nextRetryAt=pending.not_before,
        delaySeconds=round(pending.delay, 3), after=pending.after,
    )


class SlaView(msgspec.Struct, kw_only=True):
    """What is promised of the job, with the names of the configuration, and what of it is broken."""

    thresholds: dict[str, float]
    state: str
    breaches: list[Breach]


def sla_view(spec: JobSpec, breaches: Sequence[Breach]) -> SlaView | None:
    sla = spec.sla
    if sla is None:
        return None
    promised = {"maxTimeSinceSuccessSeconds": sla.max_time_since_success, "lateAfterSeconds": sla.late_after,
                "maxRuntimeSeconds": sla.max_runtime}
    thresholds = {name: value for name, value in promised.items() if value is not None}
    return SlaView(thresholds=thresholds, state="late" if breaches else "ok", breaches=list(breaches))


class JobFacts(msgspec.Struct, kw_only=True):
    """What the view needs besides the entry."""

    run_ids: list[str]
    queued: list[str]
    unconfirmed: list[str]
    pids: list[int]
    next_fire: datetime | None
    command: str | tuple[str, ...]
    """Without secrets."""
    is_reboot: bool
    pending_retry: PendingRetry | None
    paused: Pause | None
    breaches: Sequence[Breach]
    now: datetime
    reboot_pending: bool = False
    running_resources: RunningResources | None = None
    slot: SlotView | None = None


def job_view(entry: JobEntry, facts: JobFacts) -> JobView:
    spec: JobSpec = entry.spec
    scheduled_in: float | str | None = None
    if spec.enabled and facts.is_reboot:
        scheduled_in = "@reboot"
    elif facts.next_fire is not None:
        scheduled_in = round((facts.next_fire - facts.now).total_seconds(), 3)
    last, skip, use = entry.last_run, entry.last_skip, spec.pool
    pool = JobPool(name=use.name, slots=use.slots, priority=use.priority, queueTimeout=use.timeout) if use else None
    return JobView(
        name=spec.name, enabled=spec.enabled, schedule=spec.schedule, command=facts.command,
        captureStdout=spec.capture_stdout, captureStderr=spec.capture_stderr, utc=spec.utc, timezone=spec.timezone,
        running=bool(facts.run_ids), pids=facts.pids, runs=facts.run_ids,
        queued=facts.queued, pool=pool, maxInstances=spec.max_instances,
        unconfirmed=facts.unconfirmed, scheduled_in=scheduled_in,
        scheduled_at=facts.next_fire, never_fires=spec.enabled and scheduled_in is None,
        last_run=run_view(last) if last else None,
        history=[HistoryMark(outcome=run.outcome.value if run.outcome else None, duration=run.duration)
                 for run in entry.recent],
        skipped=entry.skipped,
        last_skip=SkipView(at=skip.at, reason=skip.reason, scheduled_for=skip.scheduled_for) if skip else None,
        concurrencyPolicy=spec.concurrency_policy.value, concurrencyScope=spec.concurrency_scope.value,
        slot=facts.slot, runOn=spec.run_on.value,
        executionTimeout=spec.execution_timeout, killTimeout=spec.kill_timeout,
        killWaitsFor=spec.kill_waits_for.value, endsWhen=spec.ends_when.value, leftovers=spec.leftovers.value,
        whenUnconfirmed=spec.when_unconfirmed.value, priority=spec.priority.value,
        limits=caps_of(spec.resource_limits), monitorResources=spec.monitor_resources,
        running_resources=facts.running_resources, ignored_options=spec.ignored_options, source=str(spec.place),
        retry=retry_view(spec, facts.pending_retry), paused=facts.paused,
        sla=sla_view(spec, facts.breaches), rebootPending=facts.reboot_pending,
        onlyIfLastSucceeded=spec.only_if_last_succeeded, jitter=spec.jitter,
    )


class RunStats(msgspec.Struct, kw_only=True):
    """Totals over the recorded runs that are kept; durations over the runs of this answer."""

    total: int
    success: int
    failure: int
    cancelled: int
    replaced: int
    skipped: int
    unknown: int
    success_rate: float | None
    avg_duration: float | None
    min_duration: float | None
    max_duration: float | None
    last_duration: float | None
    avg_cpu_seconds: float | None
    max_cpu_seconds: float | None
    last_cpu_seconds: float | None
    avg_rss_bytes: int | None
    max_rss_bytes: int | None
    last_rss_bytes: int | None


def run_stats(totals: dict[Outcome, int], runs: list[RunRecord]) -> RunStats:
    durations = [record.duration for record in runs if record.duration is not None]
    success, failure = totals.get(Outcome.SUCCESS, 0), totals.get(Outcome.FAILURE, 0)
    return RunStats(
        total=sum(totals.values()), success=success, failure=failure, cancelled=totals.get(Outcome.CANCELLED, 0),
        replaced=totals.get(Outcome.REPLACED, 0), skipped=totals.get(Outcome.SKIPPED, 0),
        unknown=totals.get(Outcome.UNKNOWN, 0),
        success_rate=round(success / (success + failure), 4) if success + failure else None,
        avg_duration=round(sum(durations) / len(durations), 6) if durations else None,
        min_duration=min(durations, default=None), max_duration=max(durations, default=None),
        last_duration=durations[-1] if durations else None, **use_stats(runs),
    )


class JobRuns(msgspec.Struct, kw_only=True):
    name: str
    runs: list[RunView]
    stats: RunStats


class RunList(msgspec.Struct, kw_only=True):
    runs: list[RunView]
    next: str | None
    """Give it as `before` to read on; null at the end."""


class Problem(msgspec.Struct, kw_only=True):
    error: str


class Paused(msgspec.Struct, kw_only=True):
    paused: Pause | None


class Started(msgspec.Struct, kw_only=True):
    started: str
    run: str
    waits_for: list[str]
    """Runs that this one replaces and that have not ended yet."""


class Queued(msgspec.Struct, kw_only=True):
    """A run that waits: for slots of its pool, which may be at once, or for another node to give up the job's slot. Its
    page shows what becomes of it."""

    queued: str
    queueId: str
    pool: str | None
    holder: str | None = None
    """The node that was asked to yield."""
    run: str
    waits_for: list[str]


class Cancelled(msgspec.Struct, kw_only=True):
    cancelled: str
    instances: int


class StatusRow(msgspec.Struct, kw_only=True):
    job: str
    status: str
    pid: list[int]
    scheduled_in: float | str | None
    never_fires: bool


class Fire(msgspec.Struct, kw_only=True):
    job: str
    at: datetime
    in_seconds: float


class Fires(msgspec.Struct, kw_only=True):
    fires: list[Fire]


class SchedulePreview(msgspec.Struct, kw_only=True):
    expression: str
    timezone: str
    valid: bool
    reboot: bool
    description: str | None
    fires: list[datetime]
    never_fires: bool
    error: str | None

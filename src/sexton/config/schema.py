"""Which options exist, where they belong and what they accept: tables, no code that reads anything.

Defaults are not repeated here: they are those of `model.job.JobSpec` and `model.settings`.
"""

from __future__ import annotations

from sexton.config.option import LARGEST_COUNT as LARGEST_COUNT
from sexton.config.option import LONGEST_SECONDS as LONGEST_SECONDS
from sexton.config.option import MAX_NAME_CHARACTERS as MAX_NAME_CHARACTERS
from sexton.config.option import Kind as Kind
from sexton.config.option import Option as Option
from sexton.config.option import Section as Section
from sexton.config.option import seconds as _seconds
from sexton.config.option import table as _table
from sexton.config.report_schema import JOB_REPORTS, REPORT_SECTIONS, STATSD
from sexton.model.job import (
    ConcurrencyPolicy,
    ConcurrencyScope,
    DayRule,
    EndsWhen,
    KillWaitsFor,
    Leftovers,
    OnDaemonLoss,
    OnMissed,
    Priority,
    RunOn,
    SlotLost,
    WhenUnconfirmed,
)
from sexton.model.retry import RetryOn
from sexton.model.settings import LogFormat, LogLevel, OnStoreUnavailable, Topology

MAX_SLOTS = 10_000

FAILS_WHEN = Section(
    here="in `failsWhen`",
    where="in `failsWhen`",
    options=_table(
        Option(name="producesStdout", field="produces_stdout", kind=Kind.BOOLEAN),
        Option(name="producesStderr", field="produces_stderr", kind=Kind.BOOLEAN),
        Option(name="nonzeroReturn", field="nonzero_return", kind=Kind.BOOLEAN),
        Option(name="timeout", field="timeout", kind=Kind.BOOLEAN),
        Option(name="always", field="always", kind=Kind.BOOLEAN),
    ),
)

SLA = Section(
    here="in `sla`",
    where="in `sla`",
    options=_table(
        _seconds("maxTimeSinceSuccessSeconds", "max_time_since_success", nullable=True, bare=True, above=0.0),
        _seconds("lateAfterSeconds", "late_after", nullable=True, bare=True, above=0.0),
        _seconds("maxRuntimeSeconds", "max_runtime", nullable=True, bare=True, above=0.0),
    ),
)

VERIFY = Section(
    here="in `verify`",
    where="in `verify`",
    options=_table(
        Option(name="command", field="command", kind=Kind.COMMAND, interpolate=False),
        _seconds("timeout", "timeout", above=0.0),
    ),
)

RETRY = Section(
    here="in `onFailure.retry`",
    where="in `onFailure.retry`",
    options=_table(
        Option(name="maximumRetries", field="maximum_retries", kind=Kind.INTEGER, minimum=-1, unit=" of retries"),
        _seconds("initialDelay", "initial_delay", minimum=0.0),
        _seconds("maximumDelay", "maximum_delay", above=0.0),
        Option(name="backoffMultiplier", field="backoff_multiplier", kind=Kind.NUMBER, above=0.0, maximum=1e6),
        Option(name="jitter", field="jitter", kind=Kind.NUMBER, minimum=0.0, maximum=1.0),
        Option(name="on", field="on", kind=Kind.RETRY_ON, choices=RetryOn),
        Option(name="manual", field="manual", kind=Kind.BOOLEAN),
        _seconds("deadline", "deadline", nullable=True, above=0.0),
    ),
)

RESOURCE_LIMITS = Section(
    here="in `resourceLimits`",
    where="in `resourceLimits`",
    options=_table(
        Option(name="cpu", field="cpu", kind=Kind.CPUS, minimum=0.01, maximum=1_000_000),
        Option(name="memory", field="memory", kind=Kind.SIZE, minimum=2**20, maximum=2**63 - 1),
        Option(name="processes", field="processes", kind=Kind.COUNT, minimum=1, maximum=4_194_304),
        Option(name="required", field="required", kind=Kind.BOOLEAN),
    ),
)

MONITORING = Section(
    here="in `monitorResources`",
    where="in `monitorResources`",
    options=_table(
        Option(name="enabled", field="enabled", kind=Kind.BOOLEAN),
        _seconds("interval", "interval", minimum=0.1),
        Option(name="history", field="history", kind=Kind.INTEGER, minimum=0, maximum=2000, unit=" of looks"),
    ),
)

POOL = Section(
    here="in a pool",
    where="in a pool, below `pools`",
    options=_table(
        Option(name="slots", field="slots", kind=Kind.INTEGER, minimum=1, maximum=MAX_SLOTS, unit=" of slots"),
        Option(name="maxQueued", field="max_queued", kind=Kind.INTEGER, minimum=1, maximum=10_000, unit=" of runs"),
    ),
)

SCHEDULE = Section(
    here="in a `schedule` map",
    where="in a `schedule` map",
    options=_table(
        Option(name="second", field="second", kind=Kind.TEXT),
        Option(name="minute", field="minute", kind=Kind.TEXT),
        Option(name="hour", field="hour", kind=Kind.TEXT),
        Option(name="dayOfMonth", field="day_of_month", kind=Kind.TEXT),
        Option(name="month", field="month", kind=Kind.TEXT),
        Option(name="year", field="year", kind=Kind.TEXT),
        Option(name="dayOfWeek", field="day_of_week", kind=Kind.TEXT),
    ),
)

ENVIRONMENT_ENTRY = Section(
    here="in an `environment` entry",
    where="in an entry of `environment`",
    options=_table(
        Option(name="key", field="key", kind=Kind.TEXT),
        Option(name="value", field="value", kind=Kind.VARIABLE_VALUE),
        Option(name="fromFile", field="from_file", kind=Kind.DIRECTORY),
        Option(name="fromEnvVar", field="from_env_var", kind=Kind.TEXT),
    ),
)

_JOB_IDENTITY = _table(
    Option(name="name", field="name", kind=Kind.NAME),
    Option(name="command", field="command", kind=Kind.COMMAND, interpolate=False),
    Option(name="schedule", field="schedule", kind=Kind.SCHEDULE),
)

_JOB_SHARED = _table(
    Option(name="shell", field="shell", kind=Kind.TEXT, interpolate=False),
    Option(name="enabled", field="enabled", kind=Kind.BOOLEAN),
    Option(name="utc", field="utc", kind=Kind.BOOLEAN),
    Option(name="timezone", field="timezone", kind=Kind.TIMEZONE, nullable=True),
    Option(name="dayRule", field="day_rule", kind=Kind.CHOICE, choices=DayRule),
    Option(name="environment", field="environment", kind=Kind.ENVIRONMENT),
    Option(name="secrets", field="secrets", kind=Kind.SECRETS),
    Option(name="env_file", field="env_file", kind=Kind.ENV_FILE, nullable=True),
    Option(name="workingDirectory", field="working_directory", kind=Kind.DIRECTORY, nullable=True),
    Option(name="user", field="user", kind=Kind.ACCOUNT, nullable=True),
    Option(name="group", field="group", kind=Kind.ACCOUNT, nullable=True),
    Option(name="priority", field="priority", kind=Kind.CHOICE, choices=Priority),
    Option(name="captureStdout", field="capture_stdout", kind=Kind.BOOLEAN),
    Option(name="captureStderr", field="capture_stderr", kind=Kind.BOOLEAN),
    Option(name="mirrorOutput", field="mirror_output", kind=Kind.BOOLEAN),
    Option(name="saveLimit", field="save_limit", kind=Kind.INTEGER, minimum=0, unit=" of lines"),
    Option(name="maxLineLength", field="max_line_length", kind=Kind.INTEGER, minimum=1, unit=" of bytes"),
    Option(name="streamPrefix", field="stream_prefix", kind=Kind.PREFIX),
    Option(
        name="concurrencyPolicy", field="concurrency_policy", kind=Kind.CHOICE, choices=ConcurrencyPolicy
    ),
    Option(name="concurrencyScope", field="concurrency_scope", kind=Kind.CHOICE, choices=ConcurrencyScope),
    Option(name="slotLost", field="slot_lost", kind=Kind.CHOICE, choices=SlotLost),
    Option(name="runOn", field="run_on", kind=Kind.CHOICE, choices=RunOn),
    Option(name="maxInstances", field="max_instances", kind=Kind.INTEGER, nullable=True, minimum=1),
    Option(name="pool", field="pool", kind=Kind.TEXT, nullable=True, bare=True),
    Option(name="poolSlots", field="pool_slots", kind=Kind.INTEGER, minimum=1, maximum=MAX_SLOTS, unit=" of slots"),
    Option(name="queuePriority", field="queue_priority", kind=Kind.INTEGER),
    _seconds("queueTimeout", "queue_timeout", minimum=0.0),
    _seconds("executionTimeout", "execution_timeout", nullable=True, above=0.0),
    _seconds("killTimeout", "kill_timeout", minimum=0.0),
    Option(name="killWaitsFor", field="kill_waits_for", kind=Kind.CHOICE, choices=KillWaitsFor),
    Option(name="endsWhen", field="ends_when", kind=Kind.CHOICE, choices=EndsWhen),
    Option(name="leftovers", field="leftovers", kind=Kind.CHOICE, choices=Leftovers),
    Option(name="whenUnconfirmed", field="when_unconfirmed", kind=Kind.CHOICE, choices=WhenUnconfirmed),
    Option(name="onDaemonLoss", field="on_daemon_loss", kind=Kind.CHOICE, choices=OnDaemonLoss),
    Option(name="onMissed", field="on_missed", kind=Kind.CHOICE, choices=OnMissed),
    _seconds("startingDeadlineSeconds", "starting_deadline", nullable=True, bare=True, above=0.0),
    _seconds("catchupJitterSeconds", "catchup_jitter", minimum=0.0),
    Option(name="onlyIfLastSucceeded", field="only_if_last_succeeded", kind=Kind.BOOLEAN),
    _seconds("jitter", "jitter", minimum=0.0),
    Option(name="failsWhen", field="fails_when", kind=Kind.FAILS_WHEN),
    Option(name="verify", field="verify", kind=Kind.VERIFY, nullable=True),
    Option(name="sla", field="sla", kind=Kind.SLA, nullable=True),
    Option(name="resourceLimits", field="resource_limits", kind=Kind.LIMITS, nullable=True),
    Option(name="monitorResources", field="monitor_resources", kind=Kind.MONITORING, nullable=True),
    Option(name="statsd", field="statsd", kind=Kind.MAP, inside=STATSD),
    *JOB_REPORTS,
)

JOB_IGNORED = frozenset(
    {
        "archiveOutput", "clusterPolicy", "redactArchivedSecrets", "retries", "stateAllowedScopes",
    }
)  # fmt: skip

JOB = Section(
    here="in a job", where="in a job", options={**_JOB_IDENTITY, **_JOB_SHARED}, ignored=JOB_IGNORED
)

DEFAULTS = Section(
    here="in `defaults`",
    where="in a job or in `defaults`",
    options=_JOB_SHARED,
    ignored=JOB_IGNORED,
    elsewhere={key: f"`{key}` belongs in each job: it has no default" for key in _JOB_IDENTITY},
)

_NO_PROTECTION = "Sexton has no access control yet and listens on this machine only; remove it to go on"

WEB = Section(
    here="in `web`",
    where="in `web`",
    options=_table(
        Option(name="listen", field="listen", kind=Kind.LISTEN),
        Option(name="allowedOrigins", field="allowed_origins", kind=Kind.TEXT_LIST),
        Option(name="headers", field="headers", kind=Kind.HEADERS),
        Option(name="socketMode", field="socket_mode", kind=Kind.MODE, nullable=True),
    ),
    ignored=frozenset({"ui", "metrics", "badges", "nodeHistory", "bonjour"}),
    refused={
        "authToken": _NO_PROTECTION,
        "authTokens": _NO_PROTECTION,
        "anonymousScopes": _NO_PROTECTION,
        "tls": _NO_PROTECTION,
    },
)

STATE = Section(
    here="in `state`",
    where="in `state`",
    options=_table(
        Option(name="path", field="path", kind=Kind.DIRECTORY),
        Option(name="url", field="url", kind=Kind.SECRET_VALUE),
        Option(name="nodeName", field="node_name", kind=Kind.IDENTIFIER),
        Option(name="localPath", field="local_path", kind=Kind.DIRECTORY),
        Option(name="topology", field="topology", kind=Kind.CHOICE, choices=Topology),
        Option(name="deploymentId", field="deployment_id", kind=Kind.IDENTIFIER),
        Option(name="maxRunsPerJob", field="max_runs_per_job", kind=Kind.INTEGER),
        _seconds("maxRunAgeSeconds", "max_run_age_seconds"),
        Option(
            name="onStoreUnavailable",
            field="on_store_unavailable",
            kind=Kind.CHOICE,
            choices=OnStoreUnavailable,
        ),
        _seconds("slotTtlSeconds", "slot_ttl_seconds", minimum=5.0),
        _seconds("gcGraceSeconds", "gc_grace_seconds"),
        Option(name="maxOpsPerSecond", field="max_ops_per_second", kind=Kind.NUMBER, minimum=0.0),
        Option(
            name="maxOutputBytes", field="max_output_bytes", kind=Kind.INTEGER, minimum=0, unit=" of bytes"
        ),
    ),
    ignored=frozenset({"jobApi"}),
)

LOGGING = Section(
    here="in `logging`",
    where="in `logging`",
    options=_table(
        Option(name="format", field="format", kind=Kind.CHOICE, choices=LogFormat),
        Option(name="level", field="level", kind=Kind.CHOICE, choices=LogLevel),
    ),
)

TOP = Section(
    here="at the top level",
    where="at the top level of the file",
    options=_table(
        _seconds("shutdownTimeout", "shutdown_timeout", minimum=0.0),
    ),
    ignored=frozenset({"dags", "cluster", "mcp", "notify", "push"}),
    elsewhere={"job": "write `jobs:`, a list with one entry for each job"},
)

STRUCTURE = ("defaults", "jobs", "include", "pools", "web", "state", "logging")
"""Keys of the top level that hold something other than one value."""

ONCE = ("web", "state", "logging", "shutdownTimeout")
"""Keys that may stand in at most one file of a configuration."""

SECTIONS = (
    DEFAULTS, JOB, FAILS_WHEN, SLA, VERIFY, RETRY, RESOURCE_LIMITS, MONITORING, SCHEDULE, POOL, WEB, STATE, LOGGING,
    TOP, ENVIRONMENT_ENTRY, *REPORT_SECTIONS,
)

_INSIDE_IGNORED = {
    "maximumRetries": "in `onFailure.retry`",
    "initialDelay": "in `onFailure.retry`",
    "maximumDelay": "in `onFailure.retry`",
    "backoffMultiplier": "in `onFailure.retry`",
    "maxTimeSinceSuccessSeconds": "in `sla`",
    "lateAfterSeconds": "in `sla`",
    "maxRuntimeSeconds": "in `sla`",
}


def belongs(key: str, here: Section) -> str | None:
    """Decide where a key that is unknown `here` is known: a phrase such as "in `web`", or None."""
    for section in SECTIONS:
        if section is not here and (
            key in section.options or key in section.ignored or key in section.refused
        ):
            return section.where
    if key in STRUCTURE and here is not TOP:
        return TOP.where
    return _INSIDE_IGNORED.get(key)

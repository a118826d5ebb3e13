"""What the daemon itself is told: the sections of a configuration other than its jobs."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from sexton.model.job import JobSpec, Place
from sexton.model.pool import PoolSettings


class OnStoreUnavailable(Enum):
    DEGRADE = "degrade"
    FAIL_CLOSED = "fail-closed"


class Topology(Enum):
    AUTO = "auto"
    SINGLE_NODE = "single-node"
    SHARED = "shared"


class LogFormat(Enum):
    """How the daemon's own lines are written."""

    HUMAN = "human"
    JSON = "json"


class LogLevel(Enum):
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


class WebSettings(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Where the HTTP API listens. Only loopback addresses and unix sockets until tokens exist."""

    listen: tuple[str, ...]
    allowed_origins: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    socket_mode: int | None = None


class StateSettings(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Where records live. Without this section history lives as long as the process."""

    path: str | None = None
    """A directory: of this machine, or on a mount that the nodes share."""
    url: str | None = None
    """Of a PostgreSQL database that the nodes share: `postgresql://...`. It may hold a password: never shown."""
    node_name: str | None = None
    """What this node calls itself; None for the name of the machine."""
    local_path: str | None = None
    """Where a node that shares a store keeps what is its own."""
    topology: Topology = Topology.AUTO
    deployment_id: str = "default"
    max_runs_per_job: int = 1000
    """Recorded runs (with their output files) kept of each job; 0 or less keeps all."""
    max_run_age_seconds: float = 0.0
    """Recorded runs that ended longer ago are forgotten; 0 or less keeps them."""
    on_store_unavailable: OnStoreUnavailable = OnStoreUnavailable.DEGRADE
    slot_ttl_seconds: float = 30.0
    gc_grace_seconds: float = 604800.0
    max_ops_per_second: float = 0.0
    max_output_bytes: int = 64 * 1024 * 1024
    """Bytes of output kept in a run's log file: its first half, and the end of what comes after."""


class Settings(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The daemon's own settings, from all files of the configuration."""

    web: WebSettings | None = None
    state: StateSettings | None = None
    logging: dict[str, Any] | None = None
    pools: tuple[PoolSettings, ...] = ()
    shutdown_timeout: float = 30.0
    """Seconds running runs get to finish after SIGTERM before they are cancelled with cause `shutdown`."""


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the check has to say, with its place and, where there is one, a suggestion."""

    severity: Severity
    message: str
    place: Place | None = None
    hint: str | None = None

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}{self.severity.value}: {self.message}{hint}"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a load: everything that was found, and what it said about itself.

    `jobs` and `settings` are meaningful only when no finding is an error: a configuration is taken whole or not at all.
    """

    jobs: tuple[JobSpec, ...] = ()
    settings: Settings = Settings()
    findings: tuple[Finding, ...] = ()
    sources: tuple[str, ...] = ()
    """Every file that was read and every directory that was listed, for the change watch."""

    @property
    def errors(self) -> list[Finding]:
        return [f for f in self.findings if f.severity is Severity.ERROR]

    @property
    def warnings(self) -> list[Finding]:
        return [f for f in self.findings if f.severity is Severity.WARNING]

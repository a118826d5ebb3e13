"""What a run may use, what of that was enforced by what, and what a run was seen to use."""

from __future__ import annotations

from datetime import datetime
from enum import Enum

import msgspec


class ResourceLimits(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """Caps on all processes of a run together; None is no cap. At least one is set."""

    cpu: float | None = None
    """CPUs: 0.5 is half of one."""
    memory: int | None = None
    """Bytes."""
    processes: int | None = None
    """Processes and threads that live at the same time."""
    required: bool = False
    """Refuse the run where a cap cannot be enforced."""


class Monitoring(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """How the use of a run's whole tree is looked at while it lives."""

    enabled: bool = True
    interval: float = 1.0
    """Seconds between two looks."""
    history: int = 240
    """Looks that are kept while the run lives; 0 keeps the latest one."""


class Limit(Enum):
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"


class Mechanism(Enum):
    """What holds a run to a limit."""

    CGROUP_V2 = "cgroup-v2"
    CGROUP_V1 = "cgroup-v1"
    RLIMIT = "rlimit"
    """Of each process by itself (memory) or of the user (processes): less than what was asked."""
    NONE = "none"


class LimitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for one run, and what became of it."""

    cpu: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    required: bool = False
    enforced: bool = False
    """Every cap held for the run as a whole, by a cgroup."""
    mechanism: Mechanism = Mechanism.NONE
    """The weakest of those in `by`."""
    by: dict[str, Mechanism] = {}
    """For each cap that was asked, what held it."""
    unenforced: tuple[str, ...] = ()
    """Caps that no cgroup held; `by` says what was done instead."""
    reason: str | None = None
    """Why there are such caps."""
    refused: bool = False
    """The run was not started for that."""
    memory_exceeded: bool = False
    process_limit_hits: int | None = None
    """How often a process or thread was refused."""
    peak_memory_bytes: int | None = None
    cpu_throttled_seconds: float | None = None


class TreeUse(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes of a monitored run used together."""

    cpu_user_seconds: float
    cpu_system_seconds: float
    max_rss_bytes: int
    """The largest sum of resident sets that was seen."""
    peak_memory_bytes: int | None = None
    """What the run's own memory cgroup counted at most (pages that are shared once, and its files' cache); None
    without one."""
    max_processes: int
    looks: int
    """How many times it was looked at: a run shorter than the interval may have none but the one at its end."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a run's processes."""

    at: datetime
    cpu_seconds: float
    """Of the run so far."""
    cpu_percent: float
    """Since the look before; 100 is one CPU."""
    rss_bytes: int
    processes: int


def size_text(size: int) -> str:
    """Bytes as people say them, in powers of 1024: `512 MiB`, `1.5 GiB`."""
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{round(amount, 2):g} {unit}"


def exceeded_text(limits: ResourceLimits) -> str:
    """The reason of a run that reached its memory cap."""
    return f"memory limit exceeded ({size_text(limits.memory or 0)})"


def refused_text(why: str) -> str:
    """The reason of a run that was not started because a cap could not be enforced."""
    return f"resource limits could not be enforced: {why} (resourceLimits.required is set)"

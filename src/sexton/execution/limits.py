"""From the caps of a job to what its supervisor sets up for one run, and back to what is recorded.

A cgroup holds a run as a whole; where none can, RLIMIT_DATA bounds each process and RLIMIT_NPROC the user's processes,
which is less and is recorded as such. docs/decisions/0008-resource-limits.md has the reasons.
"""

from __future__ import annotations

import os
import resource
from typing import Any

import msgspec

from sexton.execution.birth import wire
from sexton.execution.controllers import CONTROLLER, Controllers, Ground
from sexton.execution.messages import Measured, Started
from sexton.execution.plan import Identity
from sexton.model.errors import SpawnError
from sexton.model.limits import Limit, LimitFacts, Mechanism, ResourceLimits, refused_text

BITS = {Limit.CPU: wire.HELD_CPU, Limit.MEMORY: wire.HELD_MEMORY, Limit.PROCESSES: wire.HELD_PROCESSES}
PERIOD = 100_000
"""Microseconds in which a run may use its share of CPU time: the kernel's default."""
PAGE = os.sysconf("SC_PAGE_SIZE")

Knob = tuple[int, str, bytes]
_WEAKEST_FIRST = (Mechanism.NONE, Mechanism.RLIMIT, Mechanism.CGROUP_V1, Mechanism.CGROUP_V2)


class LimitsRefused(SpawnError):
    """A cap is required and cannot be enforced here. The text is the run's reason as it stands."""

    def __init__(self, why: str) -> None:
        super().__init__(refused_text(why))
        self.why = why


class Intended(msgspec.Struct, frozen=True, kw_only=True):
    """How one run is to be held to its caps."""

    limits: ResourceLimits
    by: dict[Limit, Mechanism]
    why: dict[Limit, str]
    places: list[tuple[str, int, list[Knob]]]
    rlimits: list[tuple[int, str, int]]


def caps(limits: ResourceLimits) -> dict[Limit, float]:
    """The caps that are set."""
    asked = {Limit.CPU: limits.cpu, Limit.MEMORY: limits.memory, Limit.PROCESSES: limits.processes}
    return {limit: cap for limit, cap in asked.items() if cap is not None}


def knobs(limit: Limit, cap: float, mechanism: Mechanism) -> list[Knob]:
    """The files to write for a cap, in order; bit 0 marks those that may be missing."""
    bit, v2 = BITS[limit], mechanism is Mechanism.CGROUP_V2
    match limit:
        case Limit.CPU:
            quota = max(1000, round(cap * PERIOD))
            if v2:
                return [(bit, "cpu.max", b"%d %d" % (quota, PERIOD))]
            return [(bit, "cpu.cfs_period_us", b"%d" % PERIOD), (bit, "cpu.cfs_quota_us", b"%d" % quota)]
        case Limit.PROCESSES:
            return [(bit, "pids.max", b"%d" % cap)]
        case Limit.MEMORY:
            size = b"%d" % (int(cap) // PAGE * PAGE)
            if v2:
                return [(bit, "memory.max", size), (0, "memory.swap.max", b"0"), (0, "memory.oom.group", b"1")]
            return [(bit, "memory.limit_in_bytes", size), (0, "memory.memsw.limit_in_bytes", size),
                    (0, "memory.swappiness", b"0")]


def intend(limits: ResourceLimits, controllers: Controllers, identity: Identity | None) -> Intended:
    """Decide what holds a run to its caps. Raises LimitsRefused when they are required and a cgroup cannot."""
    wanted = caps(limits)
    by: dict[Limit, Mechanism] = {}
    places: list[tuple[str, int, list[Knob]]] = []
    for ground in _memory_first(controllers.grounds()):
        held = {limit: cap for limit, cap in wanted.items() if limit in ground.limits}
        if held:
            version = 2 if ground.mechanism is Mechanism.CGROUP_V2 else 1
            files = [knob for limit, cap in held.items() for knob in knobs(limit, cap, ground.mechanism)]
            places.append((ground.base, version, files))
            by.update(dict.fromkeys(held, ground.mechanism))
    why = {limit: controllers.why.get(limit, "") for limit in wanted if limit not in by}
    if why and limits.required:
        raise LimitsRefused(_reasons(why))
    rlimits = []
    for limit in why:
        if (fallback := _rlimit(limit, wanted[limit], identity)) is not None:
            rlimits.append(fallback)
            by[limit] = Mechanism.RLIMIT
        else:
            by[limit] = Mechanism.NONE
    return Intended(limits=limits, by=by, why=why, places=places, rlimits=rlimits)


def _memory_first(grounds: list[Ground]) -> list[Ground]:
    """A run joins its CPU share last: joining the others must not be slowed down by it."""
    return sorted(grounds, key=lambda ground: Limit.CPU in ground.limits)


def _rlimit(limit: Limit, cap: float, identity: Identity | None) -> tuple[int, str, int] | None:
    """Data, not address space: many programs reserve far more address space than they ever use."""
    match limit:
        case Limit.MEMORY:
            return (resource.RLIMIT_DATA, limit.value, int(cap))
        case Limit.PROCESSES:
            uid = identity.uid if identity is not None and identity.uid is not None else os.getuid()
            return (resource.RLIMIT_NPROC, limit.value, int(cap)) if uid != 0 else None  # root is not bound by it
        case Limit.CPU:
            return None


def _reasons(why: dict[Limit, str]) -> str:
    """Each reason once, with the caps that it is about."""
    grouped: dict[str, list[str]] = {}
    for limit, reason in why.items():
        grouped.setdefault(reason, []).append(limit.value)
    return "; ".join(f"{', '.join(limits)}: {reason}" for reason, limits in grouped.items())


def request(intended: Intended | None, measure: bool) -> tuple[Any, ...] | None:
    """What the supervisor is told; None for a run without limits and monitoring."""
    if intended is None:
        return (True, [], [], False) if measure else None
    return (measure, intended.places, intended.rlimits, intended.limits.required)


def facts(
    intended: Intended | None, limits: ResourceLimits, started: Started | None, measured: Measured | None, *,
    memory_exceeded: bool = False, refused: str | None = None,
) -> LimitFacts:
    """What is recorded: what was asked, and what held it in the end."""
    by, why = dict(intended.by) if intended else {}, dict(intended.why) if intended else {}
    if started is not None:
        for limit, mechanism in by.items():
            if mechanism in (Mechanism.CGROUP_V1, Mechanism.CGROUP_V2) and not started.held & BITS[limit]:
                by[limit] = Mechanism.NONE
                why[limit] = f"the {CONTROLLER[limit]} cgroup refused it: {os.strerror(started.limit_errno)}"
    held = refused is None and not why and bool(by)
    return LimitFacts(
        cpu=limits.cpu, memory_bytes=limits.memory, processes=limits.processes, required=limits.required,
        enforced=held and started is not None,
        mechanism=next((each for each in _WEAKEST_FIRST if each in by.values()), Mechanism.NONE),
        by={limit.value: mechanism for limit, mechanism in by.items()},
        unenforced=tuple(limit.value for limit in (why if refused is None else caps(limits))),
        reason=refused or _reasons(why) or None, refused=refused is not None, memory_exceeded=memory_exceeded,
        process_limit_hits=measured.process_limit_hits if measured else None,
        peak_memory_bytes=measured.peak_memory_bytes if measured else None,
        cpu_throttled_seconds=measured.cpu_throttled_seconds if measured else None,
    )

"""From a supervisor's report to what it means for the run. Pure."""

from __future__ import annotations

from collections.abc import Callable

from sexton.execution.birth import wire
from sexton.execution.messages import (
    Emptied,
    ExecutionMessage,
    Exited,
    KillRefused,
    Measured,
    MemoryExceeded,
    Signalled,
    Started,
    StartFailed,
    Used,
)
from sexton.execution.request import STAGES
from sexton.model.clock import Monotonic
from sexton.model.run import Containment, Usage


def containment(in_cgroup: bool) -> Containment:
    return Containment.SUPERVISOR_CGROUP if in_cgroup else Containment.SUPERVISOR


def usage_of(user: int, system: int, rss: int) -> Usage:
    """Microseconds and KiB, as the reports have them."""
    return Usage(cpu_user_seconds=user / 1e6, cpu_system_seconds=system / 1e6, max_rss_bytes=rss * 1024)


def messages(report: tuple[int, ...], is_alone: Callable[[bool], bool | None]) -> tuple[ExecutionMessage, ...]:
    """What the report tells, in order; nothing for the kinds that are not about the life of the run. `is_alone` decides
    on the second witness, given whether the supervisor saw nobody else in the cgroup; None without a cgroup."""
    _, _, kind, flags, value, nanoseconds, user, system, rss, aux = report
    at = Monotonic(nanoseconds / 1e9)
    said_so = bool(flags & wire.CGROUP_EMPTY)
    match kind:
        case wire.STARTED:
            return (Started(value, at, containment(is_alone(True) is not None), flags, aux),)
        case wire.FAILED:
            return (StartFailed(value, STAGES.get(aux, "cannot start"), at),)
        case wire.EXITED:
            exited = Exited(value, at, usage_of(user, system, rss))
            return (exited, Emptied(at, is_alone(said_so))) if flags & wire.ALSO_EMPTY else (exited,)
        case wire.EMPTY:
            return (Emptied(at, is_alone(said_so)),)
        case wire.RETIRED | wire.OUTPUT | wire.ATTACHED:
            return ()
        case _:
            return (interim(report, at),)


def interim(report: tuple[int, ...], at: Monotonic) -> ExecutionMessage:
    """What a report means to the run that changes nothing about who holds it. Raises ValueError for a kind that no
    supervisor sends."""
    _, _, kind, flags, value, _, user, system, rss, aux = report
    match kind:
        case wire.SIGNALLED:
            return Signalled(at, value, aux)
        case wire.REFUSED:
            return KillRefused(at, value, aux, user)
        case wire.EXCEEDED:
            return MemoryExceeded(at)
        case wire.MEASURED:
            return Measured(
                value if flags & wire.KNOWN_HITS else None,
                user / 1000 if flags & wire.KNOWN_THROTTLED else None,
                rss * 1024 if flags & wire.KNOWN_PEAK else None,
            )
        case wire.USED:
            return Used((user << 32 | system) / 1e6, (rss << 32 | aux) / 1e6)
        case _:
            raise ValueError(f"a report of kind {kind}")


def is_last(report: tuple[int, ...]) -> bool:
    """Whether nothing of the run is left below the supervisor after it."""
    return report[2] in (wire.FAILED, wire.EMPTY) or (report[2] == wire.EXITED and bool(report[3] & wire.ALSO_EMPTY))

"""Reports of a supervisor that change nothing about who holds the run: what they mean to it."""

from __future__ import annotations

from sexton.execution.birth import wire
from sexton.execution.messages import ExecutionMessage, KillRefused, Measured, MemoryExceeded, Signalled, Used
from sexton.model.clock import Monotonic


def interim(report: tuple[int, ...], at: Monotonic) -> ExecutionMessage:
    """The message for the run. Raises ValueError for a kind that no supervisor sends."""
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

"""What execution has to say about one run. Everything that happens to a run arrives as one of these in its mailbox."""

from __future__ import annotations

from enum import Enum

import msgspec

from sexton.model.clock import Monotonic
from sexton.model.run import Containment, Usage, Witness


class Stream(Enum):
    STDOUT = "stdout"
    STDERR = "stderr"


class Started(msgspec.Struct, frozen=True):
    pid: int
    at: Monotonic
    containment: Containment
    held: int = 0
    """The caps that a cgroup holds, as bits of a report (`limits.BITS`)."""
    limit_errno: int = 0
    """Why one that was tried is not among them."""


class StartFailed(msgspec.Struct, frozen=True):
    """No process of the job was made. `errno` is 0 where it was not the kernel that refused."""

    errno: int
    what: str
    at: Monotonic


class Exited(msgspec.Struct, frozen=True):
    """The job's own process has ended and was collected."""

    status: int
    at: Monotonic
    usage: Usage


class Emptied(msgspec.Struct, frozen=True):
    """Nothing of the run is left below its supervisor; `cgroup_empty` is the second witness, None without a cgroup."""

    at: Monotonic
    cgroup_empty: bool | None


class Signalled(msgspec.Struct, frozen=True):
    """The graceful step went out; the errnos are 0 where it was not refused."""

    at: Monotonic
    group_errno: int
    process_errno: int


class KillRefused(msgspec.Struct, frozen=True):
    """All that is left refuses the forced step (EPERM), or has not died of it for a long time (ETIMEDOUT)."""

    at: Monotonic
    errno: int
    pid: int
    group_errno: int = 0
    """What the kernel said to the signal for the own process's group."""


class SupervisorLost(msgspec.Struct, frozen=True):
    """The run's supervisor died while it held the run: its own process's status will never be known."""

    at: Monotonic


class Swept(msgspec.Struct, frozen=True):
    """The zygote ended and collected everything that a lost supervisor had held."""

    at: Monotonic
    witness: Witness | None = Witness.SWEEP
    """Who vouches for it where the zygote was dead as well: the empty cgroup, or nobody (None)."""


class MemoryExceeded(msgspec.Struct, frozen=True):
    """The run has reached its cap on memory; its supervisor is killing all of it."""

    at: Monotonic


class Measured(msgspec.Struct, frozen=True):
    """What the limits of the run did so far; None where that cannot be told."""

    process_limit_hits: int | None
    cpu_throttled_seconds: float | None
    peak_memory_bytes: int | None


class Used(msgspec.Struct, frozen=True):
    """CPU time of all processes of a monitored run so far, seconds."""

    user: float
    system: float


class StreamClosed(msgspec.Struct, frozen=True):
    stream: Stream


ExecutionMessage = (
    Started | StartFailed | Exited | Emptied | Signalled | KillRefused | SupervisorLost | Swept | StreamClosed
    | MemoryExceeded | Measured | Used
)

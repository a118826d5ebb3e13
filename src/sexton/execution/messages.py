"""What execution has to say about one run. Everything that happens to a run arrives as one of these in its mailbox."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from sexton.model.clock import Monotonic
from sexton.model.run import Containment, Usage


class Stream(Enum):
    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    at: Monotonic
    containment: Containment


@dataclass(frozen=True, slots=True)
class StartFailed:
    """No process of the job was made. `never_tried` tells that the pool itself could not take the run."""

    errno: int
    what: str
    at: Monotonic


@dataclass(frozen=True, slots=True)
class Exited:
    """The job's own process has ended and was collected."""

    status: int
    at: Monotonic
    usage: Usage


@dataclass(frozen=True, slots=True)
class Emptied:
    """Nothing of the run is left below its supervisor; `cgroup_empty` is the second witness, None without a cgroup."""

    at: Monotonic
    cgroup_empty: bool | None


@dataclass(frozen=True, slots=True)
class Signalled:
    """The graceful step went out; the errnos are 0 where it was not refused."""

    at: Monotonic
    group_errno: int
    process_errno: int


@dataclass(frozen=True, slots=True)
class KillRefused:
    """All that is left refuses the forced step (EPERM), or has not died of it for a long time (ETIMEDOUT)."""

    at: Monotonic
    errno: int
    pid: int
    group_errno: int = 0
    """What the kernel said to the signal for the own process's group."""


@dataclass(frozen=True, slots=True)
class SupervisorLost:
    """The run's supervisor died while it held the run: its own process's status will never be known."""

    at: Monotonic


@dataclass(frozen=True, slots=True)
class Swept:
    """The zygote ended and collected everything that a lost supervisor had held."""

    at: Monotonic


@dataclass(frozen=True, slots=True)
class StreamClosed:
    stream: Stream


ExecutionMessage = (
    Started | StartFailed | Exited | Emptied | Signalled | KillRefused | SupervisorLost | Swept | StreamClosed
)

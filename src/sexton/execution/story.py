"""What a supervisor has to tell of a run that outlived a daemon: at its socket, or in the file it left. Pure."""

from __future__ import annotations

import ast
from collections.abc import Callable

import msgspec

from sexton.execution.birth import wire
from sexton.execution.birth.vigil import VERSION
from sexton.execution.messages import (
    Emptied,
    ExecutionMessage,
    Exited,
    KillRefused,
    Signalled,
    Started,
    StartFailed,
)
from sexton.execution.reports import containment, interim, usage_of
from sexton.execution.request import STAGES
from sexton.model.clock import Monotonic

LARGEST = 512 * 1024


class StoryError(Exception):
    """It cannot be read: not a story, or of a version that we do not know."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """Instants are monotonic nanoseconds of the boot in which it was told; None: it has not happened."""

    run: str
    terms: bytes
    note: bytes = b""
    """Why the run is being stopped, as an earlier daemon has left it; empty: it is not."""
    adopted: int = 0
    """How many daemons have taken the run over, this one included."""
    clock: tuple[int, int]
    """Monotonic and wall-clock nanoseconds of one instant."""
    supervisor: int
    zygote: int
    cgroup: str | None = None
    places: list[str] = []
    """Cgroups (v2) of the run besides that of its supervisor."""
    started: tuple[int, int, int, int] | None = None
    """Pid of the own process, at, caps that a cgroup holds, errno of one that could not be set up."""
    failed: tuple[int, int, int] | None = None
    """Errno, stage, at."""
    exited: tuple[int, int, int, int, int] | None = None
    """Wait status, at, user and system CPU microseconds, KiB."""
    empty: tuple[int, int] | None = None
    """At, flags."""
    signalled: tuple[int, int, int] | None = None
    """At, errno for the group, errno for the process."""
    refused: tuple[int, int, int, int] | None = None
    """At, errno, pid, errno for the group."""
    limits: dict[int, tuple[int, int, int, int, int, int, int]] = {}
    """By kind, the latest reports about limits and use: flags, value, at, and the four numbers of a report."""
    forced: int | None = None
    timeout: int | None = None
    """When the supervisor itself found the deadline passed."""
    ended: int | None = None
    output: dict[int, tuple[int, bool, bool]] = {}
    """For each captured stream: bytes, whether it has ended, whether it was cut off."""
    dropped: int = 0
    finished: bool = False
    left: list[int] = []
    """Pids that were there when the story was told."""

    def messages(self, is_alone: Callable[[bool], bool | None], shift: float = 0.0) -> tuple[ExecutionMessage, ...]:
        """What a daemon that had been there would have heard, in order. `is_alone` is as for `reports.messages`;
        `shift` seconds are added to the instants."""

        def at(nanoseconds: int) -> Monotonic:
            return Monotonic(nanoseconds / 1e9 + shift)

        found: list[ExecutionMessage] = []
        if self.failed is not None:
            found.append(StartFailed(self.failed[0], STAGES.get(self.failed[1], "cannot start"), at(self.failed[2])))
        if self.started is not None:
            pid, began, held, number = self.started
            found.append(Started(pid, at(began), containment(self.cgroup is not None), held, number))
        if self.signalled is not None:
            found.append(Signalled(at(self.signalled[0]), self.signalled[1], self.signalled[2]))
        if self.refused is not None:
            found.append(KillRefused(at(self.refused[0]), *self.refused[1:]))
        for kind, (flags, value, when, *numbers) in self.limits.items():
            found.append(interim((0, 0, kind, flags, value, when, *numbers), at(when)))
        if self.exited is not None:
            found.append(Exited(self.exited[0], at(self.exited[1]), usage_of(*self.exited[2:])))
        if self.empty is not None:
            found.append(Emptied(at(self.empty[0]), is_alone(bool(self.empty[1] & wire.CGROUP_EMPTY))))
        return tuple(found)


def read_story(data: bytes) -> Story:
    """Raises StoryError."""
    if len(data) > LARGEST:
        raise StoryError(f"it has more than {LARGEST} bytes")
    try:
        told = ast.literal_eval(data.decode())
        version = told["version"]
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError) as failure:
        raise StoryError(f"it cannot be read: {failure!r}") from None
    if version != VERSION:
        raise StoryError(f"it is of version {version!r}, and this Sexton knows {VERSION}")
    try:
        return msgspec.convert(told, Story)
    except msgspec.ValidationError as failure:
        raise StoryError(f"it cannot be read: {failure}") from None

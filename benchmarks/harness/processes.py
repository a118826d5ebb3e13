"""Processes as /proc and pidfds tell of them: what a tree costs, and when the last of some is gone."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Usage:
    """`daemon` is the process itself, `helpers` its live descendants. Jobs that have ended are in neither."""

    daemon: float
    helpers: float

    @property
    def all(self) -> float:
        return self.daemon + self.helpers


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name, so that [0] is the state."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def descendants(pid: int) -> list[int]:
    """Live descendants; one pass over /proc, because the kernel need not offer the list of children."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) is not None and fields[0] not in "ZX":
            children.setdefault(int(fields[1]), []).append(int(entry))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def cpu(pid: int) -> Usage:
    """CPU seconds so far."""
    return Usage(_cpu_clock(pid), sum(map(_cpu_clock, descendants(pid))))


def _cpu_clock(pid: int) -> float:
    """The kernel's CPU clock of a process, all its threads included, as clock_getcpuclockid(3) names it.

    It counts nanoseconds; /proc counts hundredths of a second, which is more than a helper ever uses.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


def _kibibytes(path: str, name: str) -> float:
    try:
        with open(path, encoding="utf-8") as file:
            return next((float(line.split()[1]) for line in file if line.startswith(name)), 0.0)
    except OSError:
        return 0.0


def resident(pid: int) -> float:
    """MiB resident in the whole tree; shared pages count in each process that has them."""
    return sum(_kibibytes(f"/proc/{each}/status", "VmRSS:") for each in [pid, *descendants(pid)]) / 1024


def proportional(pid: int) -> float:
    """MiB that the whole tree costs: each shared page counts once, divided among those who share it."""
    return sum(_kibibytes(f"/proc/{each}/smaps_rollup", "Pss:") for each in [pid, *descendants(pid)]) / 1024


def peak(pid: int) -> float:
    """The most MiB that the process itself, without children, ever had."""
    return _kibibytes(f"/proc/{pid}/status", "VmHWM:") / 1024


class Watch:
    """Holds on to processes that are not our children, tells when they are gone, and can end them safely:
    a pidfd names one process for ever, whatever becomes of its number."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._poll = select.poll()
        self._open: dict[int, int] = {}
        self._left: set[int] = set()
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            self._open[fd] = pid
            self._left.add(fd)
            self._poll.register(fd, select.POLLIN)

    @property
    def left(self) -> int:
        self._look(0.0)
        return len(self._left)

    def _look(self, seconds: float) -> None:
        for fd, _ in self._poll.poll(max(0.0, seconds) * 1000):
            self._left.discard(fd)
            self._poll.unregister(fd)

    def gone(self, seconds: float) -> float | None:
        """The monotonic instant at which the last one was gone; None when it is not within the bound."""
        end = time.monotonic() + seconds
        while self._left:
            remaining = end - time.monotonic()
            if remaining <= 0:
                return None
            self._look(remaining)
        return time.monotonic()

    def end(self) -> None:
        """SIGKILL to those that are left, and let go of all."""
        for fd in self._left:
            try:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for fd in self._open:
            os.close(fd)
        self._open.clear()
        self._left.clear()

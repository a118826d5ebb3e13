"""What a job could have changed about its supervisor from outside, and the next run would inherit."""

from __future__ import annotations

import os
import resource


class Pristine:
    """What a process of the same user may set for another one. The files stay open: it is asked after every run."""

    def __init__(self) -> None:
        self._files = [fd for fd in map(_open, ("/proc/self/limits", "/proc/self/oom_score_adj")) if fd >= 0]

    def snapshot(self) -> tuple[object, ...]:
        said = [os.pread(fd, 4096, 0) for fd in self._files]
        limits = () if len(self._files) == 2 else tuple(resource.getrlimit(number) for number in range(16))
        return os.getpriority(os.PRIO_PROCESS, 0), frozenset(os.sched_getaffinity(0)), limits, said


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1  # no /proc here


def count_fds() -> int:
    """How many descriptors this process has; 0 where there is no /proc."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0

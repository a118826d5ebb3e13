"""What a job could have changed about its supervisor from outside, and the next run would inherit."""

from __future__ import annotations

import os
import resource


def snapshot() -> tuple[object, ...]:
    """What a process of the same user may set for another one."""
    limits = tuple(resource.getrlimit(number) for number in range(16))
    try:
        fd = os.open("/proc/self/oom_score_adj", os.O_RDONLY | os.O_CLOEXEC)
        try:
            score = os.read(fd, 64)
        finally:
            os.close(fd)
    except OSError:
        score = b""
    return os.getpriority(os.PRIO_PROCESS, 0), frozenset(os.sched_getaffinity(0)), limits, score


def count_fds() -> int:
    count = 0
    for fd in range(256):
        try:
            os.fstat(fd)
            count += 1
        except OSError:
            pass
    return count

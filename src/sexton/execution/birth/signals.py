"""Signals of which the kernel's answer is wanted, not an exception."""

from __future__ import annotations

import errno
import os

from sexton.execution.birth.lean import signal


def outside_group(pid: int, group: int) -> bool:
    """Whether a process has left the group; False for one that is gone."""
    try:
        return os.getpgid(pid) != group
    except OSError:
        return False


def to_group(group: int, number: signal.Signals) -> int:
    """Returns the errno, 0 when it was sent."""
    try:
        os.killpg(group, number)
    except OSError as refused:
        return refused.errno or errno.EINVAL
    return 0


def to_one(pid: int, number: signal.Signals) -> int:
    """Returns the errno, 0 when it was sent."""
    try:
        os.kill(pid, number)
    except OSError as refused:
        return refused.errno or errno.EINVAL
    return 0

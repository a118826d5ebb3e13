"""One round of ending everything below a process, and what is left to do where signals are refused."""

from __future__ import annotations

import errno
import os
import signal

from sexton.execution.birth import kernel, place, signals


def kill_below(top: int) -> tuple[int, int, int]:
    """SIGKILL to all descendants of `top`, which is this process, level by level. Returns to how many it went, and of
    one that refused it the errno and the pid."""
    killed = refused_errno = refused_pid = 0
    level = [(pid, top) for pid in kernel.children_of(top)]
    while level:
        below: list[tuple[int, int]] = []
        for pid, parent in level:
            below += [(child, pid) for child in kernel.children_of(pid)]
            error = signals.to_one(pid, signal.SIGKILL) if parent == top else kernel.kill_if_child_of(pid, parent)
            if error in (0, errno.ESRCH):
                killed += 1
            else:
                refused_errno, refused_pid = error, pid
        level = below
    return killed, refused_errno, refused_pid


def kill_from_outside(cgroup: str, number: int) -> bool:
    """End everybody in our own cgroup but us: whoever may write to it may end what is in it, whosesoever that is. We
    step aside first, into a cgroup beside it. False where that cannot be done (no cgroup.kill before kernel 5.14)."""
    aside = f"{os.path.dirname(cgroup)}/x{number}"
    try:
        kill = os.open(f"{cgroup}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if not os.path.isdir(aside):
            os.mkdir(aside)
        place.write(f"{aside}/cgroup.procs", b"0")
        os.write(kill, b"1")
    except OSError:
        return False
    finally:
        os.close(kill)
    return True


"""Finding processes of a run that nobody holds any more, by what they carry: the run's id in the environment, or the
session that its own process began. Whoever has got rid of both is not found."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

from sexton.execution import cgroup
from sexton.execution.birth import kernel

SECONDS = 5.0
PAUSE_SECONDS = 0.01


def end_marked(run_id: str, session: int | None, since_ticks: int) -> list[int]:
    """SIGKILL to all of them until there are none. Returns those that are left after SECONDS. Blocking.

    `session` is the pid of the run's own process; who is in it must have started at `since_ticks` (since boot) or
    later."""
    limit = time.monotonic() + SECONDS
    while True:
        left = [pid for pid in marked(run_id, session, since_ticks) if not _kill(pid, run_id, session, since_ticks)]
        if not left or time.monotonic() >= limit:
            return left
        time.sleep(PAUSE_SECONDS)


def marked(run_id: str, session: int | None, since_ticks: int) -> Iterator[int]:
    """Live processes with either mark."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and _carries(int(name), run_id, session, since_ticks):
            yield int(name)


def _carries(pid: int, run_id: str, session: int | None, since_ticks: int) -> bool:
    ticks = cgroup.start_ticks(pid)
    if ticks is None or not kernel.is_alive(pid):
        return False
    try:
        if session is not None and os.getsid(pid) == session and ticks >= since_ticks:
            return True
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return b"SEXTON_RUN_ID=" + run_id.encode() in environ.read().split(b"\0")
    except OSError:
        return False  # gone, or not ours to read


def _kill(pid: int, run_id: str, session: int | None, since_ticks: int) -> bool:
    """Pinned and looked at again, so that no stranger with its pid is hit. Always False while it lives."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        if not _carries(pid, run_id, session, since_ticks):
            return True
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        pass  # refused, or gone: the next look tells
    finally:
        os.close(fd)
    return False

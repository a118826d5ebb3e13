"""Finding processes of a run that nobody holds any more, by what they carry: the run's id in the environment, or the
session that its own process began; and whoever is below one that carries it. Whoever has got rid of both, and of its
parent, is not found."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator

from sexton.execution import processes
from sexton.execution.birth import kernel

SECONDS = 5.0
PAUSE_SECONDS = 0.01
LOOKS = 20
"""At most, for a family that goes on growing while it is being stopped."""

Family = dict[int, int]
"""Pids, and when each started, in ticks: no stranger with the pid of one that has ended is hit."""


def end_marked(run_id: str, session: int | None, since_ticks: int) -> list[int]:
    """SIGKILL to all of them until there are none. Returns those that are left after SECONDS. Blocking.

    `session` is the pid of the run's own process; who is in it must have started at `since_ticks` (since boot) or
    later."""
    limit = time.monotonic() + SECONDS
    family: Family = {}
    while True:
        found = _stopped(run_id, session, since_ticks)
        family |= found
        for pid, ticks in family.items():
            _signal(pid, ticks, signal.SIGKILL)
        left = [pid for pid, ticks in family.items() if _lives(pid, ticks)]
        if not left and not found:
            return []
        if time.monotonic() >= limit:
            return left
        time.sleep(PAUSE_SECONDS)


def _stopped(run_id: str, session: int | None, since_ticks: int) -> Family:
    """The live family as it is now, every one of it stopped: one that forked, or lost its parent, between a look and
    the signal would not be found by the next look."""
    family: Family = {}
    for _ in range(LOOKS):
        new: Family = {}
        for pid in _with_descendants(_marked(run_id, session, since_ticks)):
            ticks = processes.start_ticks(pid)
            if ticks is not None and family.get(pid) != ticks and kernel.is_alive(pid):
                new[pid] = ticks
        for pid, ticks in new.items():
            _signal(pid, ticks, signal.SIGSTOP)
        family |= new
        if not new:
            break
    return family


def _with_descendants(pids: Iterable[int]) -> set[int]:
    """Without this process and what is below it, should a job of the run have started us."""
    found: set[int] = set()
    todo = list(pids)
    while todo:
        pid = todo.pop()
        if pid not in found and pid != os.getpid():
            found.add(pid)
            todo += kernel.children_of(pid)
    return found


def _marked(run_id: str, session: int | None, since_ticks: int) -> Iterator[int]:
    """Live processes with either mark."""
    for name in os.listdir("/proc"):
        if name.isdigit() and _carries(int(name), run_id, session, since_ticks):
            yield int(name)


def _carries(pid: int, run_id: str, session: int | None, since_ticks: int) -> bool:
    ticks = processes.start_ticks(pid)
    if ticks is None or not kernel.is_alive(pid):
        return False
    try:
        if session is not None and os.getsid(pid) == session and ticks >= since_ticks:
            return True
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return b"SEXTON_RUN_ID=" + run_id.encode() in environ.read().split(b"\0")
    except OSError:
        return False  # gone, or not ours to read


def _lives(pid: int, ticks: int) -> bool:
    return processes.start_ticks(pid) == ticks and kernel.is_alive(pid)


def _signal(pid: int, ticks: int, number: signal.Signals) -> None:
    """Pinned and looked at again before the signal. Refused, or gone: the next look tells."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _lives(pid, ticks):
            signal.pidfd_send_signal(fd, number)
    except OSError:
        pass
    finally:
        os.close(fd)

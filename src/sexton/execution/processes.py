"""Which process is which (its pid may be a stranger's by now), and what there is to say of one that is left."""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice

from sexton.execution.birth import kernel
from sexton.execution.birth.wire import KEEPER_NAME
from sexton.model.run import Survivor

START_TOLERANCE_TICKS = 200
"""The start of a process is noted to within about a second; a stranger that got the pid started later than that."""
MOST_NAMED = 100
"""Survivors named in a record."""


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None when there is no such process."""
    stat = kernel.stat_of(pid)
    return int(stat[19]) if stat else None


def started_then(pid: int, noted_ticks: int | None) -> bool:
    """Whether the process is the one whose start was noted, and not a stranger that got its pid."""
    ticks = start_ticks(pid)
    return ticks is not None and noted_ticks is not None and abs(ticks - noted_ticks) <= START_TOLERANCE_TICKS


def boot_id() -> str:
    """The kernel's random id of this boot; empty where /proc does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def is_keeper(pid: int) -> bool:
    """By name and user. A job of our own user could take the name; what it gains is what keeping offers anyway."""
    try:
        with open(f"/proc/{pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status.read().splitlines()[:12] if ":" in line)
        return fields["Name"].strip() == KEEPER_NAME.decode() and int(fields["Uid"].split()[0]) == os.geteuid()
    except (OSError, KeyError, ValueError, IndexError):
        return False


def processes_below(top: int) -> tuple[Survivor, ...]:
    """The live descendants of a process, MOST_NAMED at most."""
    return described(kernel.descendants_of(top))


def described(pids: Iterable[int]) -> tuple[Survivor, ...]:
    return tuple(islice((found for pid in pids if (found := _describe(pid)) is not None), MOST_NAMED))


def _describe(pid: int) -> Survivor | None:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None
    stat = kernel.stat_of(pid)
    if not stat or stat[0] in (b"Z", b"X"):
        return None
    return Survivor(
        pid=pid, uid=uid, state=stat[0].decode(), wchan=_wchan(pid), started_ticks=int(stat[19]))


def _wchan(pid: int) -> str | None:
    try:
        with open(f"/proc/{pid}/wchan") as file:
            return file.read().strip("0\n") or None
    except OSError:
        return None

"""What monitored runs use while they live: one thread looks at all of them, and no run waits for it.

CPU time comes from the run's cgroup where there is one (v2 counts it without any controller), else from /proc; memory
and the number of processes are added up over the tree below the supervisor.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from sexton.execution.birth import kernel
from sexton.execution.messages import Measured, Used
from sexton.model.limits import Look, Monitoring, TreeUse
from sexton.model.run import Usage

logger = logging.getLogger("sexton.limits")

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MOST_PROCESSES = 10_000
"""Of one run and one look: a fork bomb must not keep the thread from all others."""


class Monitored:
    """One monitored run. Written by the thread; readers see whole values."""

    def __init__(
        self, pid: int, cpu_files: tuple[str, ...], how: Monitoring, still_held: Callable[[], bool],
    ) -> None:
        """`still_held` tells whether the process, a supervisor, holds this run and no later one."""
        self.pid = pid
        self._still_held = still_held
        self.how = how
        self.looks: deque[Look] = deque(maxlen=max(1, how.history))
        self.max_rss = 0
        self.max_processes = 0
        self.count = 0
        self.due = 0.0
        self._cpu_files = cpu_files
        self._cpu_before = self._cpu_of_cgroups() or 0.0
        self._reaped_before = _cpu_reaped_by(pid)
        self._last: tuple[float, float] | None = None

    def look(self) -> None:
        """Blocking, a few system calls for each process."""
        now = time.monotonic()
        processes, rss, cpu = _tree(self.pid)
        counted = self._cpu_of_cgroups()
        if counted is not None:
            cpu = counted - self._cpu_before
        else:
            cpu += _cpu_reaped_by(self.pid) - self._reaped_before
        last_at, last_cpu = self._last or (now, 0.0)
        if not self._still_held():
            return  # what was seen may be the next run's
        cpu = max(cpu, last_cpu)
        percent = 100 * (cpu - last_cpu) / (now - last_at) if now > last_at else 0.0
        self._last = (now, cpu)
        self.max_rss, self.max_processes = max(self.max_rss, rss), max(self.max_processes, processes)
        self.count += 1
        self.looks.append(Look(at=datetime.now(UTC), cpu_seconds=round(cpu, 6), cpu_percent=round(percent, 1),
                               rss_bytes=rss, processes=processes))

    def _cpu_of_cgroups(self) -> float | None:
        """Seconds; None where no cgroup counts them."""
        found = None
        for path in self._cpu_files:
            try:
                with open(path, "rb") as file:
                    found = (found or 0.0) + int(file.read().split()[1]) / 1e6
            except (OSError, ValueError, IndexError):
                continue  # a run without limits has no cgroup of its own
        return found


def _cpu_reaped_by(pid: int) -> float:
    """CPU seconds of the children that a process has waited for."""
    return sum(map(int, kernel.stat_of(pid)[13:15])) / TICKS


def _tree(top: int) -> tuple[int, int, float]:
    """How many processes there are below one, their resident bytes and their CPU seconds."""
    count, pages, ticks = 0, 0, 0
    todo = kernel.children_of(top)
    while todo and count < MOST_PROCESSES:
        pid = todo.pop()
        found = kernel.stat_of(pid)
        if not found:
            continue
        ticks += sum(map(int, found[11:15]))
        if found[0] not in (b"Z", b"X"):
            count += 1
            pages += int(found[21])
            todo += kernel.children_of(pid)
    return count, pages * PAGE, ticks / TICKS


class Sampler:
    """Started with the first monitored run."""

    def __init__(self, cgroup_base: str | None) -> None:
        self._base = cgroup_base
        self._runs: dict[str, Monitored] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False

    def watch(
        self, run_id: str, pid: int, number: int | None, how: Monitoring, still_held: Callable[[], bool],
    ) -> Monitored:
        """`number` is that of a supervisor with a cgroup, `pid` its process, which holds the run as long as
        `still_held` says so."""
        files = () if self._base is None or number is None else tuple(
            f"{self._base}/{kind}{number}/cpu.stat" for kind in "sl")
        monitored = Monitored(pid, files, how, still_held)
        if not still_held():
            return monitored
        with self._changed:
            self._runs[run_id] = monitored
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="sampler", daemon=True)
                self._thread.start()
            self._changed.notify()
        return monitored

    def forget(self, run_id: str) -> None:
        with self._changed:
            self._runs.pop(run_id, None)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(5.0)

    def _work(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                due = [run for run in self._runs.values() if run.due <= now]
                if self._closing:
                    return
                if not due:
                    soonest = min((run.due for run in self._runs.values()), default=None)
                    self._changed.wait(None if soonest is None else max(0.0, soonest - now))
                    continue
            for run in due:
                try:
                    run.look()
                except Exception:
                    logger.exception("a look at the processes below %d failed", run.pid)
                run.due = time.monotonic() + run.how.interval


def tree_use(
    monitored: Monitored | None, used: Used | None, measured: Measured | None, usage: Usage | None,
) -> TreeUse | None:
    """What a monitored run is recorded to have used; None for others. Before the supervisor has summed up, the CPU
    time is that of the latest look."""
    if monitored is None:
        return None
    latest = monitored.looks[-1].cpu_seconds if monitored.looks else 0.0
    return TreeUse(
        cpu_user_seconds=used.user if used else latest, cpu_system_seconds=used.system if used else 0.0,
        max_rss_bytes=monitored.max_rss or (usage.max_rss_bytes if usage else 0),
        peak_memory_bytes=measured.peak_memory_bytes if measured else None,
        max_processes=max(monitored.max_processes, 1), looks=monitored.count,
    )

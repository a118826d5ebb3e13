"""Ending everything below this process, round by round, and what is left to do where signals are refused."""

from __future__ import annotations

import errno
import os

from sexton.execution.birth import kernel, place, signals
from sexton.execution.birth.lean import signal

DEEP_EVERY = 4
"""Rounds. A look at everything costs as much as a hundred looks at our own children."""
PAUSE_MS = 1
"""Between two rounds; a re-forking job makes a generation in less."""
LONG_PAUSE_MS = 100
"""While all that is left refuses our signals or cannot die yet."""
LONG_KILL_ROUNDS = 200
"""After so many without an end the long pause applies and the daemon is told who is left."""
OUTSIDE_ROUNDS = 100
"""That a killed cgroup may take to end before those in it count as refusing."""


class Walk:
    """The rounds of one forced step over the descendants of this process."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.begin()

    def begin(self) -> None:
        self.rounds = 0
        self.due = 0.0
        self.refused_errno = self.refused_pid = 0
        self._doomed: set[int] = set()

    def round(self) -> bool:
        """SIGKILL to our children, which are the orphans of those killed before; now and then to the whole tree below
        them. Whoever is killed need not be looked below: what it has will be ours. False when all that is left refuses:
        then the errno, and a pid that it was for, can be read."""
        self.rounds += 1
        killed = 0
        if self.rounds % DEEP_EVERY:
            killed = self._kill_children()
        else:
            self._doomed.clear()  # a pid in it may be another's by now
        return killed > 0 or self._kill_all()

    def pause(self, refused: bool) -> int:
        """Milliseconds until the next round."""
        return LONG_PAUSE_MS if refused or self.rounds > LONG_KILL_ROUNDS else PAUSE_MS

    def _kill_children(self) -> int:
        killed = 0
        for pid in kernel.children_of(self.top):
            if pid in self._doomed:
                killed += 1
            elif signals.to_one(pid, signal.SIGKILL) in (0, errno.ESRCH):
                self._doomed.add(pid)
                killed += 1
        return killed

    def _kill_all(self) -> bool:
        killed = 0
        self.refused_errno = self.refused_pid = 0
        level = [(pid, self.top) for pid in kernel.children_of(self.top)]
        while level:
            below: list[tuple[int, int]] = []
            for pid, parent in level:
                below += [(child, pid) for child in kernel.children_of(pid)]
                error = signals.to_one(pid, signal.SIGKILL) if parent == self.top else (
                    kernel.kill_if_child_of(pid, parent))
                if error in (0, errno.ESRCH):
                    killed += 1
                else:
                    self.refused_errno, self.refused_pid = error, pid
            level = below
        return killed > 0 or self.refused_errno == 0


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

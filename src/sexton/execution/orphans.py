"""What falls to the daemon itself. It is a child subreaper and, in a container, perhaps process 1: it gets the orphans
of a zygote that was killed, and of strangers. No run's status is ever among them: those belong to supervisors.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Collection

from sexton.execution.birth import kernel, wire

ROUND_SECONDS = 0.01
"""Between two rounds of ending what a supervisor without a zygote has left."""
OUR_NAMES = (wire.ZYGOTE_NAME, wire.SUPERVISOR_NAME, wire.KEEPER_NAME)
"""A supervisor that was born a moment ago is known by nothing else."""


def foreign_children(ours: Collection[int]) -> list[int]:
    """Our children that we did not start: not among `ours`, and in a session of their own (what we start and wait for
    ourselves, the loader of a configuration, stays in ours)."""
    session = os.getsid(0)
    found = []
    for pid in kernel.children_of(os.getpid()):
        try:
            if pid not in ours and os.getsid(pid) != session:
                found.append(pid)
        except OSError:
            continue  # it is gone: somebody waited for it
    return found


def strays(zygotes: Collection[int], supervisors: Collection[int]) -> list[int]:
    """What dead supervisors have left: children of the zygote that are none of ours, or, without one, of us."""
    found = [pid for zygote in zygotes for pid in kernel.children_of(zygote)
             if pid not in supervisors and kernel.name_of(pid) not in OUR_NAMES]
    return found or foreign_children({*zygotes, *supervisors})


def reap(ours: Collection[int]) -> None:
    """Collect those that have ended."""
    for pid in foreign_children(ours):
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass


def end_round(ours: Collection[int]) -> bool:
    """One round of ending all foreign children; their own children fall to us and are seen by the next round. False
    when none is left."""
    reap(ours)
    foreign = foreign_children(ours)
    for pid in foreign:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass  # refused or gone: the next round looks again
    return bool(foreign)

"""Many jobs due at the same second: how late each of them runs, by its own clock.

Bare is a loop that spawns as many processes as fast as it can, from an instant on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial

from harness.configuration import due_at, job
from harness.program import stamp_count, stamps
from harness.samples import spread
from harness.scale import Scale
from harness.stage import Case, Contestant, Metrics, Stage, require, spawned

QUIET = 4.0
"""Seconds a daemon is up before the instant: what is measured is a daemon at work and not its start."""
ATTEMPTS = 3
RUN_SECONDS = 120.0
SETTLE = 0.5
VARIANTS = (("", False, False), (", with state", True, False), (", captured", False, True))


def cases(scale: Scale) -> Iterator[Case]:
    count = scale.burst
    for label, state, capture in VARIANTS:
        measure = partial(_measure, count, state, capture)
        yield Case(f"burst: {count} jobs at one second{label}", measure, partial(_bare, count), scale.rounds)


def _measure(count: int, state: bool, capture: bool, stage: Stage, who: Contestant) -> Metrics:
    lead = QUIET + 2 + count / 200
    for _ in range(ATTEMPTS):
        found = _attempt(count, lead, state, capture, stage, who)
        if found is not None:
            return found
        lead *= 2
    raise TimeoutError(f"not up in {lead / 2:g} s")


def _attempt(
    count: int, lead: float, state: bool, capture: bool, stage: Stage, who: Contestant,
) -> Metrics | None:
    """None when the daemon was not up in time for the instant."""
    path, due = stage.path("burst"), int(time.time() + lead) + 1
    words = stage.program.argv("stamp", path)
    jobs = [job(f"job-{number:05d}", words, due_at(due)) for number in range(count)]
    store = stage.path("state") if state else None
    with stage.daemon(who, jobs, state=store, capture=capture) as running:
        if time.time() > due - QUIET:
            return None
        before = running.cpu()
        time.sleep(max(0.0, due - time.time()))
        require(lambda: stamp_count(path) >= count, RUN_SECONDS, f"{count} starts", 0.02)
        time.sleep(SETTLE)
        after = running.cpu()
    late = [stamp.at - due for stamp in stamps(path)]
    if late[0] < 0:
        stage.note(f"burst/{who.name}: a job ran {-late[0] * 1000:.1f} ms early")
    return {
        "first job ms": late[0] * 1000,
        **spread("lateness", late),
        "CPU ms/job, daemon": (after.daemon - before.daemon) * 1000 / count,
        "CPU ms/job, with helpers": (after.all - before.all) * 1000 / count,
    }


def _bare(count: int, stage: Stage) -> Metrics:
    path = stage.path("burst")
    argv = stage.program.argv("stamp", path)
    work, began = time.process_time(), time.time()
    for pid in [spawned(argv) for _ in range(count)]:
        os.waitpid(pid, 0)
    spent = (time.process_time() - work) * 1000 / count
    late = [stamp.at - began for stamp in stamps(path)]
    return {
        "first job ms": late[0] * 1000,
        **spread("lateness", late),
        "CPU ms/job, daemon": spent,
        "CPU ms/job, with helpers": spent,
    }

"""SIGKILL of the daemon.

- After the API showed N runs as successful: how many of them a restart does not have, and how many records it
  has that nobody saw happen.
- While runs are at work, each with a child in a session of its own and one whose parent is gone: how long
  until no process of any is left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

from harness.client import Client, fire, recorded
from harness.configuration import job
from harness.processes import Watch
from harness.program import stamp_count, stamps
from harness.samples import WORST
from harness.scale import Scale
from harness.stage import Case, Contestant, Metrics, Stage, require

CONNECTIONS = 8
PER_JOB = 40
"""Runs of one job; the API of some daemons shows 50 at most."""
WAIT_SECONDS = 300.0
SETTLE = 2.0
LEFT_SECONDS = 3.0
AT_WORK = 10


def cases(scale: Scale) -> Iterator[Case]:
    rounds = min(scale.rounds, 3)
    count = scale.crash // PER_JOB * PER_JOB
    yield Case(f"crash: SIGKILL after {count} runs were shown", partial(_records, count), None, rounds)
    yield Case(f"crash: SIGKILL with {AT_WORK} runs at work", _processes, None, scale.rounds)


def _summed(client: Client, names: Sequence[str]) -> tuple[int, int]:
    """Recorded runs in all, and the successful ones."""
    stats = [client.totals(name) for name in names]
    return sum(each["total"] for each in stats), sum(each["success"] for each in stats)


def _records(count: int, stage: Stage, who: Contestant) -> Metrics:
    path, state = stage.path("crash"), stage.path("state")
    names = [f"job-{number:03d}" for number in range(count // PER_JOB)]
    jobs = [job(name, stage.program.argv("stamp", path)) for name in names]
    with stage.daemon(who, jobs, state=state) as running:
        fire(running.port, names * PER_JOB, CONNECTIONS)
        if not recorded(running.client, names, PER_JOB, WAIT_SECONDS):
            raise TimeoutError(f"not all runs are shown within {WAIT_SECONDS:g} s")
        _, seen = _summed(running.client, names)
        running.kill()
    with stage.daemon(who, jobs, state=state) as running:
        time.sleep(SETTLE)
        total, kept = _summed(running.client, names)
    return {
        "successes shown": seen,
        f"of them lost {WORST}": seen - kept,
        f"false records after the restart {WORST}": total - kept,
        "restart: exec to API s": running.started_in,
    }


def _processes(stage: Stage, who: Contestant) -> Metrics:
    path = stage.path("crash")
    jobs = [job("worker", stage.program.argv("escape", path))]
    with stage.daemon(who, jobs, state=stage.path("state")) as running:
        fire(running.port, ["worker"] * AT_WORK, 1)
        require(lambda: stamp_count(path) >= AT_WORK, 30, f"{AT_WORK} runs")
        watch = Watch(pid for stamp in stamps(path) for pid in stamp.pids)
        try:
            began = time.monotonic()
            running.kill()
            first = watch.gone(0.1)
            soon = watch.left
            last = first or watch.gone(LEFT_SECONDS)
            late = watch.left
        finally:
            watch.end()
    found: Metrics = {
        f"processes left after 100 ms {WORST}": soon,
        f"processes left after {LEFT_SECONDS:g} s {WORST}": late,
    }
    if last is not None:
        found["all gone ms"] = (last - began) * 1000
    return found

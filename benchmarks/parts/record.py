"""Durable runs: started through the API over eight connections, the state on the disk of the working folder.

`shown` ends when the API shows every run as recorded, `durable` when the daemon has ended cleanly after that.
Bare spawns, reaps, and appends one line for each run with fdatasync.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from functools import partial

from harness.client import fire, recorded
from harness.configuration import job
from harness.program import stamp_count
from harness.scale import Scale
from harness.stage import Case, Contestant, Metrics, Stage, require, spawned

CONNECTIONS = 8
PER_JOB = 25
"""Runs of one job; the API of some daemons shows 50 at most."""
WAIT_SECONDS = 120.0


def cases(scale: Scale) -> Iterator[Case]:
    count = scale.record // PER_JOB * PER_JOB
    yield Case(f"record: {count} durable runs", partial(_measure, count), partial(_bare, count), scale.rounds)
    yield Case("record: append one line with fdatasync", _nothing, _append, 1)


def _measure(count: int, stage: Stage, who: Contestant) -> Metrics:
    path = stage.path("record")
    names = [f"job-{number:03d}" for number in range(count // PER_JOB)]
    jobs = [job(name, stage.program.argv("stamp", path)) for name in names]
    with stage.daemon(who, jobs, state=stage.path("state")) as running:
        before, began = running.cpu(), time.monotonic()
        fire(running.port, names * PER_JOB, CONNECTIONS)
        require(lambda: stamp_count(path) >= count, WAIT_SECONDS, f"{count} runs")
        if not recorded(running.client, names, PER_JOB, WAIT_SECONDS):
            raise TimeoutError(f"not all of {count} runs are shown as recorded within {WAIT_SECONDS:g} s")
        shown, after = time.monotonic() - began, running.cpu()
        durable = shown + running.stop()
    return {
        "shown runs/s": count / shown,
        "durable runs/s, clean end included": count / durable,
        "CPU ms/run, daemon": (after.daemon - before.daemon) * 1000 / count,
        "CPU ms/run, with helpers": (after.all - before.all) * 1000 / count,
    }


def _line(file: int) -> None:
    os.write(file, b"x" * 255 + b"\n")
    os.fdatasync(file)


def _bare(count: int, stage: Stage) -> Metrics:
    argv = stage.program.argv("stamp", stage.path("record"))
    file = os.open(stage.path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    work, began = time.process_time(), time.monotonic()
    live: deque[int] = deque()
    for _ in range(count):
        live.append(spawned(argv))
        if len(live) >= CONNECTIONS:
            os.waitpid(live.popleft(), 0)
            _line(file)
    while live:
        os.waitpid(live.popleft(), 0)
        _line(file)
    took, spent = time.monotonic() - began, (time.process_time() - work) * 1000 / count
    os.close(file)
    return {
        "shown runs/s": count / took,
        "durable runs/s, clean end included": count / took,
        "CPU ms/run, daemon": spent,
        "CPU ms/run, with helpers": spent,
    }


def _nothing(stage: Stage, who: Contestant) -> Metrics:
    return {}


def _append(stage: Stage) -> Metrics:
    file = os.open(stage.path("log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    began = time.monotonic()
    for _ in range(stage.scale.record):
        _line(file)
    took = time.monotonic() - began
    os.close(file)
    return {"lines/s": stage.scale.record / took}

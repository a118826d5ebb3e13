"""A cancel with killTimeout 0 through the API, until it is answered: the end of the whole tree is known then.

Bare is the least that gives such knowledge: cgroup.kill and `populated 0` of a cgroup v2 that the tree was born in;
where none may be made, killpg and a pidfd of each process.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from harness import processes
from harness.client import recorded
from harness.configuration import job
from harness.program import stamp_count, stamps
from harness.samples import spread
from harness.scale import Scale
from harness.stage import Case, Contestant, Metrics, Stage, require, spawned

WAIT_SECONDS = 60.0
PAUSES = (0.02, 0.034, 0.027, 0.041)
"""Seconds between start and cancel, in turn, so that nothing is measured in step with a timer."""


def cases(scale: Scale) -> Iterator[Case]:
    for size, count in scale.proofs:
        bare: Callable[[Stage], Metrics] = partial(_bare_cgroup if cgroup_here() else _bare_group, size, count)
        yield Case(f"proof: a tree of {size}", partial(_measure, size, count), bare, scale.rounds)


def _measure(size: int, count: int, stage: Stage, who: Contestant) -> Metrics:
    path = stage.path("proof")
    proven = []
    with stage.daemon(who, [job("victim", stage.program.argv("tree", path, size), killTimeout=0)]) as running:
        for done in range(count):
            running.client.start("victim")
            watch = _ready(path, done)
            began = time.monotonic()
            status = running.client.cancel("victim")
            proven.append(time.monotonic() - began)
            left = watch.left
            watch.end()
            if status != 200 or left:
                raise RuntimeError(f"the cancel was answered with {status}, and {left} processes were left")
            if not recorded(running.client, ["victim"], done + 1, WAIT_SECONDS, 0.001):
                raise TimeoutError("the cancelled run is not shown as recorded")
    return spread("cancel to proof", proven)


def _ready(path: str, number: int) -> processes.Watch:
    require(lambda: stamp_count(path) > number, WAIT_SECONDS, "the victim's start", 0.0005)
    watch = processes.Watch(stamps(path)[number].pids)
    time.sleep(PAUSES[number % len(PAUSES)])
    return watch


def cgroup_here() -> str | None:
    """The directory of our own cgroup v2, where we may make others."""
    try:
        with open("/proc/self/mountinfo") as mounts:
            rows = [line.split(" - ", 1) for line in mounts]
        with open("/proc/self/cgroup") as groups:
            inside = next(line.rstrip("\n")[3:] for line in groups if line.startswith("0::"))
    except (OSError, StopIteration):
        return None
    for left, right in rows:
        if right.split()[0] == "cgroup2":
            path = os.path.normpath(f"{left.split()[4]}/{inside.lstrip('/')}")
            return path if os.access(path, os.W_OK) and os.path.exists(f"{path}/cgroup.procs") else None
    return None


@contextmanager
def _cgroup() -> Iterator[str]:
    path = f"{cgroup_here()}/bench-{os.getpid()}"
    os.mkdir(path)
    try:
        yield path
    finally:
        with open(f"{path}/cgroup.kill", "w") as kill:
            kill.write("1")
        require(lambda: not _populated(path), WAIT_SECONDS, "an empty cgroup")
        os.rmdir(path)


def _populated(path: str) -> bool:
    with open(f"{path}/cgroup.events") as events:
        return "populated 1" in events.read()


def _bare_cgroup(size: int, count: int, stage: Stage) -> Metrics:
    path, took = stage.path("proof"), []
    shell = shutil.which("sh") or "/bin/sh"
    with _cgroup() as cgroup:
        argv = [shell, "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', cgroup, *stage.program.argv("tree", path, size)]
        events = os.open(f"{cgroup}/cgroup.events", os.O_RDONLY)
        kill = os.open(f"{cgroup}/cgroup.kill", os.O_WRONLY)
        poll = select.poll()
        poll.register(events, select.POLLPRI)
        try:
            for done in range(count):
                pid = spawned(argv)
                watch = _ready(path, done)
                os.pread(events, 256, 0)
                began = time.monotonic()
                os.pwrite(kill, b"1", 0)
                while b"populated 1" in os.pread(events, 256, 0):
                    poll.poll(20)
                took.append(time.monotonic() - began)
                os.waitpid(pid, 0)
                watch.end()
        finally:
            os.close(events)
            os.close(kill)
    return spread("cancel to proof", took)


def _bare_group(size: int, count: int, stage: Stage) -> Metrics:
    path, took = stage.path("proof"), []
    for done in range(count):
        pid = spawned(stage.program.argv("tree", path, size))
        watch = _ready(path, done)
        began = time.monotonic()
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if watch.gone(WAIT_SECONDS) is None:
            raise TimeoutError("a victim of the bare reference is not gone")
        took.append(time.monotonic() - began)
        watch.end()
    return spread("cancel to proof", took)

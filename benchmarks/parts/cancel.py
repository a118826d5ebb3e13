"""A cancel through the API, until the last process of the run is gone: a sleeper, a tree, a stubborn one.

The last ignores SIGTERM; for it, killTimeout is taken off every figure. Bare is killpg and waitpid.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial

from harness.client import recorded
from harness.configuration import job
from harness.processes import Watch
from harness.program import stamp_count, stamps
from harness.samples import percentile, spread
from harness.scale import Scale
from harness.stage import Case, Contestant, Metrics, Running, Stage, require, spawned

GRACE = 0.2
"""killTimeout of the stubborn one."""
WAIT_SECONDS = 30.0
PAUSES = (0.01, 0.024, 0.017, 0.031)
"""Seconds between start and cancel, in turn, so that nothing is measured in step with a timer."""


def cases(scale: Scale) -> Iterator[Case]:
    sleepers, trees, stubborn = scale.cancels
    for title, mode, number, count in (
        ("a sleeper", "sleep", 0, sleepers),
        (f"a tree of {scale.tree}", "tree", scale.tree, trees),
        (f"one that ignores SIGTERM, beyond its {GRACE:g} s", "stubborn", 0, stubborn),
    ):
        measure, bare = partial(_measure, mode, number, count), partial(_bare, mode, number, count)
        yield Case(f"cancel: {title}", measure, bare, scale.rounds)


def _started(path: str, number: int) -> tuple[float, Watch]:
    """When the run of this number said that it is there, and a watch on its processes."""
    require(lambda: stamp_count(path) > number, WAIT_SECONDS, "the victim's start", 0.0005)
    stamp = stamps(path)[number]
    time.sleep(PAUSES[number % len(PAUSES)])
    return stamp.at, Watch(stamp.pids)


def _answered(running: Running) -> tuple[threading.Thread, list[float]]:
    """Send the cancel from a thread, because some daemons answer only when it is done."""
    answered: list[float] = []

    def ask() -> None:
        running.client.cancel("victim")
        answered.append(time.monotonic())

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, answered


def _measure(mode: str, number: int, count: int, stage: Stage, who: Contestant) -> Metrics:
    path, grace = stage.path("cancel"), GRACE if mode == "stubborn" else 0.0
    jobs = [job("victim", stage.program.argv(mode, path, number), killTimeout=grace or 10)]
    began_in, gone, answer, shown = [], [], [], []
    with stage.daemon(who, jobs) as running:
        for done in range(count):
            asked = time.time()
            running.client.start("victim")
            at, watch = _started(path, done)
            began_in.append(at - asked)
            began = time.monotonic()
            thread, answered = _answered(running)
            end = watch.gone(WAIT_SECONDS)
            thread.join(WAIT_SECONDS)
            watch.end()
            if end is None or not answered:
                raise TimeoutError("the victim outlived its cancel")
            if not recorded(running.client, ["victim"], done + 1, WAIT_SECONDS, 0.001):
                raise TimeoutError("the cancelled run is not shown as recorded")
            shown.append(time.monotonic() - began - grace)
            gone.append(end - began - grace)
            answer.append(answered[0] - began - grace)
    return {
        **spread("gone", gone),
        "answered p50 ms": percentile(answer, 50) * 1000,
        "shown as recorded p50 ms": percentile(shown, 50) * 1000,
        "first start asked to running ms": began_in[0] * 1000,
        **spread("next starts asked to running", began_in[1:]),
    }


def _bare(mode: str, number: int, count: int, stage: Stage) -> Metrics:
    path, grace = stage.path("cancel"), GRACE if mode == "stubborn" else 0.0
    argv = stage.program.argv(mode, path, number)
    began_in, gone = [], []
    for done in range(count):
        asked = time.time()
        pid = spawned(argv)
        at, watch = _started(path, done)
        began_in.append(at - asked)
        began = time.monotonic()
        os.killpg(pid, signal.SIGTERM)
        if grace:
            time.sleep(grace)
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        end = watch.gone(WAIT_SECONDS)
        watch.end()
        if end is None:
            raise TimeoutError("a victim of the bare reference is not gone")
        gone.append(end - began - grace)
    return {
        **spread("gone", gone),
        "first start asked to running ms": began_in[0] * 1000,
        **spread("next starts asked to running", began_in[1:]),
    }

"""A job runs every second while something slow happens to others: the largest gap between two of its starts.

- a job with `Replace` is due while its old run ignores SIGTERM, for all of killTimeout;
- a configuration of many jobs is taken up again after one line of it was changed, on SIGHUP.

A bare loop that sleeps to the next second and spawns runs meanwhile, and not before or after as elsewhere: a
maximum is made by one disturbance, and what disturbs the machine shows in both.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

from harness.client import Client
from harness.configuration import EVERY_SECOND, due_at, job
from harness.processes import Watch
from harness.program import stamp_count, stamps
from harness.samples import WORST
from harness.scale import Scale
from harness.stage import Case, Contestant, Metrics, Stage, require, spawned

BEFORE = 3
"""Ticks that are waited for before anything happens."""
AFTER = 3.0
RELOAD_SECONDS = 90.0
ASK_EVERY = 0.1
LEAD = 6.0
EDITED = "job-00000"


def cases(scale: Scale) -> Iterator[Case]:
    seconds, count = scale.stubborn_seconds, scale.reload
    rounds = min(scale.rounds, 3)
    title = f"gaps: Replace of a run that ignores SIGTERM for {seconds} s"
    yield Case(title, partial(_replace, seconds), None, rounds)
    yield Case(f"gaps: reload of {count} jobs after an edit", partial(_reload, count), None, rounds)


def _within(path: str, since: float, to: float) -> list[float]:
    return [stamp.at for stamp in stamps(path) if since <= stamp.at <= to]


def _largest(path: str, since: float, to: float) -> float:
    """The largest gap between starts, the ends of the window included."""
    return max(late - early for early, late in pairwise([since, *_within(path, since, to), to]))


def _gaps(ticks: str, bare: str, since: float, to: float) -> Metrics:
    seconds = {int(at) for at in _within(ticks, since, to)}
    return {
        f"largest gap between starts s {WORST}": _largest(ticks, since, to),
        f"of the bare loop meanwhile s {WORST}": _largest(bare, since, to),
        f"seconds without a start {WORST}": int(to) - int(since) + 1 - len(seconds),
    }


@contextmanager
def _bare(stage: Stage) -> Iterator[str]:
    """The loop beside the daemon; the file of its stamps."""
    path, over = stage.path("bare"), threading.Event()
    argv = stage.program.argv("stamp", path)

    def loop() -> None:
        while not over.wait(1 - time.time() % 1):
            os.waitpid(spawned(argv), 0)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        over.set()
        thread.join()


def _tick(stage: Stage, path: str) -> str:
    return job("tick", stage.program.argv("stamp", path), EVERY_SECOND)


def _replace(seconds: int, stage: Stage, who: Contestant) -> Metrics:
    ticks, victims = stage.path("ticks"), stage.path("victims")
    due = int(time.time() + LEAD) + 1
    jobs = [
        _tick(stage, ticks),
        job("victim", stage.program.argv("stubborn", victims), due_at(due), concurrencyPolicy="Replace",
            killTimeout=seconds),
    ]
    with stage.daemon(who, jobs) as running, _bare(stage) as bare:
        running.client.start("victim")
        require(lambda: stamp_count(victims) == 1, LEAD, "the victim's start")
        if time.time() > due - 1:
            raise TimeoutError(f"not up {LEAD:g} s after exec")
        time.sleep(max(0.0, due - 0.9 - time.time()))
        began = require(lambda: [stamp.at for stamp in stamps(ticks)], 5, "a tick")[-1]
        require(lambda: stamp_count(victims) == 2, LEAD + seconds + 10, "the replacement's start", ASK_EVERY)
        time.sleep(AFTER)
        end = stamps(ticks)[-1].at
        running.kill()  # whatever is left of it ends below, and is not waited for
        first, second = stamps(victims)
        Watch(first.pids + second.pids).end()
    return {**_gaps(ticks, bare, began, end), "due to start of the replacement s": second.at - due}


def _reload(count: int, stage: Stage, who: Contestant) -> Metrics:
    ticks = stage.path("ticks")
    command = stage.program.command("stamp", "/dev/null")
    jobs = [_tick(stage, ticks), *(job(f"job-{number:05d}", command) for number in range(count))]
    with stage.daemon(who, jobs) as running, _bare(stage) as bare:
        seen = stamp_count(ticks)
        require(lambda: stamp_count(ticks) >= seen + BEFORE, 30, "ticks", 0.02)
        began = stamps(ticks)[-1].at
        edited = _edit(running.config, command, f"{command} edited")
        os.kill(running.pid, signal.SIGHUP)
        probe = Client(running.port)
        require(lambda: "edited" in _command(probe), RELOAD_SECONDS, "the reload", ASK_EVERY)
        in_force = time.monotonic() - edited
        time.sleep(AFTER)
        probe.close()
        end = stamps(ticks)[-1].at
    return {**_gaps(ticks, bare, began, end), "edit to in force s": in_force}


def _command(client: Client) -> str:
    command: str = client.get(f"/jobs/{EDITED}")["command"]
    return command


def _edit(config: Path, old: str, new: str) -> float:
    """Change the first line that has the text, in one step as a deployment does; when that was."""
    changed = config.with_suffix(".new")
    changed.write_text(config.read_text().replace(old, new, 1))
    changed.replace(config)
    return time.monotonic()

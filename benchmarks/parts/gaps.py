"""A job runs every second while something slow happens to others: the largest gap between two of its starts.

- a job with `Replace` is due while its old run ignores SIGTERM, for all of killTimeout;
- a configuration of many jobs is taken up again after one line of it was changed, on SIGHUP.

Bare is a loop that sleeps to the next second and spawns.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from harness.client import Client
from harness.configuration import EVERY_SECOND, due_at, job
from harness.processes import Watch
from harness.program import stamp_count, stamps
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
    bare = partial(_bare, seconds)
    title = f"gaps: Replace of a run that ignores SIGTERM for {seconds} s"
    yield Case(title, partial(_replace, seconds), bare, rounds)
    yield Case(f"gaps: reload of {count} jobs after an edit", partial(_reload, count), bare, rounds)


def _ticks(path: str, since: float, to: float) -> Metrics:
    """The gaps between starts, the ends of the window included."""
    seen = [stamp.at for stamp in stamps(path) if since <= stamp.at <= to]
    return {
        "largest gap between starts s": max(late - early for early, late in pairwise([since, *seen, to])),
        "seconds without a start": int(to) - int(since) + 1 - len({int(at) for at in seen}),
    }


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
    with stage.daemon(who, jobs) as running:
        running.client.start("victim")
        require(lambda: stamp_count(victims) == 1, LEAD, "the victim's start")
        if time.time() > due - 1:
            raise TimeoutError(f"not up {LEAD:g} s after exec")
        time.sleep(max(0.0, due - 0.9 - time.time()))
        began = require(lambda: [stamp.at for stamp in stamps(ticks)], 5, "a tick")[-1]
        require(lambda: stamp_count(victims) == 2, LEAD + seconds + 10, "the replacement's start")
        time.sleep(AFTER)
        end = stamps(ticks)[-1].at
        running.kill()  # whatever is left of it ends below, and is not waited for
        first, second = stamps(victims)
        Watch(first.pids + second.pids).end()
    return {**_ticks(ticks, began, end), "due to start of the replacement s": second.at - due}


def _reload(count: int, stage: Stage, who: Contestant) -> Metrics:
    ticks = stage.path("ticks")
    command = stage.program.command("stamp", "/dev/null")
    jobs = [_tick(stage, ticks), *(job(f"job-{number:05d}", command) for number in range(count))]
    with stage.daemon(who, jobs) as running:
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
    return {**_ticks(ticks, began, end), "edit to in force s": in_force}


def _command(client: Client) -> str:
    command: str = client.get(f"/jobs/{EDITED}")["command"]
    return command


def _edit(config: Path, old: str, new: str) -> float:
    """Change the first line that has the text, in one step as a deployment does; when that was."""
    changed = config.with_suffix(".new")
    changed.write_text(config.read_text().replace(old, new, 1))
    changed.replace(config)
    return time.monotonic()


def _bare(seconds: int, stage: Stage) -> Metrics:
    path = stage.path("ticks")
    argv = stage.program.argv("stamp", path)
    for _ in range(seconds):
        time.sleep(1 - time.time() % 1)
        os.waitpid(spawned(argv), 0)
    ticks = stamps(path)
    return _ticks(path, ticks[0].at, ticks[-1].at)

"""Many recorded runs: how fast they come about, what a restart costs then, and how fast the API answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness import processes
from harness.client import Client, fire
from harness.configuration import job
from harness.program import stamp_count
from harness.samples import percentile
from harness.scale import Scale
from harness.stage import Case, Contestant, Metrics, Stage, require

JOBS = 10
CONNECTIONS = 8
FILL_SECONDS = 600.0
SETTLE = 1.0
QUESTIONS = {
    "/jobs/X/runs": "/jobs/job-0/runs",
    "/jobs/X": "/jobs/job-0",
    "/jobs": "/jobs",
}


def cases(scale: Scale) -> Iterator[Case]:
    rounds = min(scale.rounds, 2)
    yield Case(f"history: {scale.history} recorded runs", partial(_measure, scale.history), None, rounds)


def _measure(count: int, stage: Stage, who: Contestant) -> Metrics:
    path, state = stage.path("history"), stage.path("state")
    names = [f"job-{number}" for number in range(JOBS)]
    jobs = [job(name, stage.program.argv("stamp", path)) for name in names]
    with stage.daemon(who, jobs, state=state) as running:
        began = time.monotonic()
        fire(running.port, names * (count // JOBS), CONNECTIONS)
        require(lambda: stamp_count(path) >= count, FILL_SECONDS, f"{count} runs", 0.02)
        ran = time.monotonic() - began
        held = {
            "RSS of the tree after the fill MiB": processes.resident(running.pid),
            "PSS of the tree after the fill MiB": processes.proportional(running.pid),
        }
        stopped = running.stop(FILL_SECONDS)
    found: Metrics = {
        "fill runs/s": count / ran,
        "durable runs/s, clean end included": count / (ran + stopped),
        "clean end s": stopped,
        **held,
        "state on disk MiB": _on_disk(Path(state)),
    }
    with stage.daemon(who, jobs, state=state) as running:
        time.sleep(SETTLE)
        found["restart: exec to API s"] = running.started_in
        for title, question in QUESTIONS.items():
            asked = _asked(running.client, question, stage.scale.questions)
            found[f"GET {title} p50 ms"] = percentile(asked, 50) * 1000
            found[f"GET {title} p99 ms"] = percentile(asked, 99) * 1000
        found["runs kept of all"] = sum(running.client.totals(name)["total"] for name in names)
        found["RSS of the tree after the restart MiB"] = processes.resident(running.pid)
    return found


def _on_disk(folder: Path) -> float:
    return sum(file.lstat().st_blocks * 512 for file in folder.rglob("*")) / processes.MEBIBYTE


def _asked(client: Client, question: str, times: int) -> list[float]:
    took = []
    for _ in range(times):
        began = time.monotonic()
        client.request("GET", question)
        took.append(time.monotonic() - began)
    return took

#!/usr/bin/env python3
"""What claims cost whole daemons.

    claims.py [--only PART ...] [--postgres URL] [--folder DIR] [--daemon NAME='COMMAND {config}' ...] [--rounds N]
              [--scale quick]

Parts: `slots` (POST start until the process's first act, `concurrencyScope` node and cluster in turn, on each store)
and `burst` (jobs with `runOn: one-node` due at one second on several nodes: how late each ran). A further `--daemon`
takes part on the folder, and with `--burst-too` in `burst`. The database is used in a schema of its own, dropped again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.configuration import document, due_at, job
from harness.program import Program, build, stamp_count, stamps
from harness.samples import percentile
from harness.stage import Contestant, Running, free_port, require

PARTS = ("slots", "burst")
OWN = Contestant("sexton", f"{sys.executable} -m sexton -c {{config}}", "")
RUN_SECONDS, QUIET = 60.0, 4.0
OF_ONE_DAEMON = 40
"""Runs of a job, then it is started anew: some show no more than fifty."""
State = Mapping[str, str]


@dataclass(frozen=True)
class Bench:
    folder: Path
    program: Program
    postgres: str | None

    def stores(self, *, single: bool) -> Iterator[tuple[str, State]]:
        """By name; the folder first, where other daemons take part."""
        yield "folder", {"path": str(self.folder / "shared"), "topology": "shared"}
        if single:
            yield "sqlite", {"path": str(self.folder / "single"), "topology": "single-node"}
        if self.postgres:
            yield "postgres", {"url": self.postgres, "deploymentId": "bench_claims"}

    @contextlib.contextmanager
    def fresh(self, state: State) -> Iterator[None]:
        """With nothing in the store."""
        def clean() -> None:
            for name in ("shared", "single"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            if "url" in state:
                asyncio.run(_drop(state["url"], "sexton_bench_claims"))

        clean()
        try:
            yield
        finally:
            clean()

    @contextlib.contextmanager
    def node(self, who: Contestant, name: str, jobs: Sequence[str], state: State) -> Iterator[Running]:
        folder = Path(tempfile.mkdtemp(dir=self.folder, prefix=name))
        port = free_port()
        own = {**state, "localPath": str(folder / "own")} if "url" in state else state
        config = folder / "jobs.yaml"
        config.write_text(document(jobs, port) + "state:\n" + "".join(f"  {key}: {own[key]}\n" for key in own))
        running = Running(who.argv(str(config)), config, port, None)
        try:
            running.wait_ready()
            yield running
        finally:
            running.stop(20.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--daemon", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--burst-too", action="store_true")
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--scale", choices=("full", "quick"), default="full")
    options = parser.parse_args()
    others = [Contestant(*one.split("=", 1), "") for one in options.daemon]
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        bench = Bench(Path(folder), build(Path(folder)), options.postgres)
        if "slots" in (options.only or PARTS):
            slots(bench, others, options.rounds)
        if "burst" in (options.only or PARTS):
            nodes, jobs = (4, 400) if options.scale == "full" else (2, 20)
            burst(bench, others if options.burst_too else [], nodes, jobs, 3 if options.scale == "full" else 1)
    return 0


# -------------------------------------------------------------------------------------------------- slots


def slots(bench: Bench, others: Sequence[Contestant], rounds: int) -> None:
    print(f"\n### POST start until the process's first act, ms ({rounds} of each, in turn)\n\n| daemon | store "
          "| node median | p95 | cluster median | p95 | more, median of the pairs |\n|" + " --- |" * 7)
    for store, state in bench.stores(single=True):
        for who in (OWN, *(others if store == "folder" else ())):
            here, fleet = [], []
            for first in range(0, rounds, OF_ONE_DAEMON):
                with bench.fresh(state):
                    times = _in_turn(bench, who, state, min(OF_ONE_DAEMON, rounds - first))
                here += times[0]
                fleet += times[1]
            more = percentile([b - a for a, b in zip(here, fleet, strict=True)], 50)
            cells = (percentile(some, share) for some in (here, fleet) for share in (50, 95))
            shown = " | ".join(f"{cell * 1000:.2f}" for cell in (*cells, more))
            print(f"| {who.name} | {store} | {shown} |", flush=True)


def _in_turn(bench: Bench, who: Contestant, state: State, rounds: int) -> tuple[list[float], list[float]]:
    files = {scope: str(bench.folder / f"{who.name}-{scope}-{time.time_ns()}") for scope in ("node", "cluster")}
    jobs = [job(scope, bench.program.argv("stamp", file), concurrencyPolicy="Forbid", concurrencyScope=scope)
            for scope, file in files.items()]
    times: dict[str, list[float]] = {scope: [] for scope in files}
    with bench.node(who, "a", jobs, state) as running:
        for number in range(-3, rounds):  # the first ones warm up
            for scope in files if number % 2 else reversed(files):
                took = _started(running, scope, files[scope])
                if number >= 0:
                    times[scope].append(took)
    return times["node"], times["cluster"]


def _started(running: Running, name: str, file: str) -> float:
    """Seconds; returns when the run is recorded."""
    before = stamp_count(file)
    began = time.time()
    status = running.client.start(name)
    if status not in (200, 202):
        raise RuntimeError(f"a start of {name} was answered with {status}")
    require(lambda: stamp_count(file) > before, RUN_SECONDS, f"{name} runs", 0.0005)
    took = stamps(file)[before].at - began
    require(lambda: running.client.totals(name)["total"] > before, RUN_SECONDS, f"{name} is recorded")
    time.sleep(0.02)  # the slot is given back when the run is gone
    return took


# -------------------------------------------------------------------------------------------------- burst


def burst(bench: Bench, others: Sequence[Contestant], nodes: int, jobs: int, rounds: int) -> None:
    print(f"\n### {jobs} jobs with `runOn: one-node`, due at one second on {nodes} nodes: lateness, ms\n\n"
          "| daemon | store | median | p95 | worst | most of one node | fired twice or never |\n|" + " --- |" * 7)
    for store, state in bench.stores(single=False):
        for number in range(rounds):
            for who in ((OWN, *others) if number % 2 else (*others, OWN)):
                with bench.fresh(state):
                    late, most, wrong = _due(bench, who, state, nodes, jobs)
                shown = " | ".join(f"{percentile(late, share) * 1000:.0f}" for share in (50, 95, 100))
                print(f"| {who.name} | {store} | {shown} | {most} | {wrong} |", flush=True)


def _due(bench: Bench, who: Contestant, state: State, nodes: int, jobs: int) -> tuple[list[float], int, int]:
    """Each job stamps a file of its own on its node: what is not there once was fired twice or never."""
    work = Path(tempfile.mkdtemp(dir=bench.folder, prefix="burst"))
    due = int(time.time() + QUIET + 3 * nodes + jobs / 200) + 1
    with contextlib.ExitStack() as stack:
        fleet = []
        for number in range(nodes):
            (work / f"{number}").mkdir()
            asked = [job(f"job-{n:05d}", bench.program.argv("stamp", str(work / f"{number}" / f"{n}")), due_at(due),
                         runOn="one-node") for n in range(jobs)]
            fleet.append(stack.enter_context(
                bench.node(who, f"n{number}-", asked, {**state, "nodeName": f"n{number}"})))
        for one in fleet:  # to ask is to make it look
            require(lambda one=one: len(one.client.get("/nodes")["nodes"]) >= nodes, QUIET, "all nodes are seen")
        if time.time() > due - QUIET:
            raise TimeoutError("the nodes were not up in time")
        time.sleep(max(0.0, due - time.time()))

        def fired() -> list[Path]:
            return list(work.glob("*/*"))

        require(lambda: len({file.name for file in fired()}) >= jobs, RUN_SECONDS, f"{jobs} runs", 0.05)
        time.sleep(1.0)
        files = fired()
        late = [stamp.at - due for file in files for stamp in stamps(str(file))]
    most = max(sum(file.parent.name == f"{number}" for file in files) for number in range(nodes))
    return late, most, abs(len(late) - jobs) + abs(len(files) - jobs)


async def _drop(url: str, schema: str) -> None:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Several nodes on one store: how soon a Replace is handed over, what a long history costs, what a fleet asks for.

    nodes.py [--only PART ...] [--postgres URL] [--folder DIR] [--daemon COMMAND] [--rounds N] [--scale quick]

Parts: `handover` (two daemons, a folder and with --postgres a database; --daemon is another one to compare with, on the
folder), `history` (needs --postgres: pages of tables that grow, with their plans) and `fleet` (needs --postgres: what
fifty idle nodes ask of the database in a minute). The database is used in schemas of its own, which are dropped again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START_SECONDS, RUN_SECONDS = 30.0, 60.0
PARTS = ("handover", "history", "fleet")
CONFIGURATION = """
web:
  listen:
    - http://127.0.0.1:{port}
jobs:
  - name: j
    command: date +%s.%N >> {marks}; exec sleep 600
    schedule: 0 0 1 1 *
    concurrencyPolicy: Replace
    concurrencyScope: cluster
    killTimeout: 5
state:
{state}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--daemon", metavar="COMMAND")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", choices=("full", "quick"), default="full")
    options = parser.parse_args()
    parts = options.only or PARTS
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if "handover" in parts:
            handover(Path(folder), options)
        full = options.scale == "full"
        if options.postgres and "history" in parts:
            asyncio.run(history(options.postgres, (10_000, 100_000, 1_000_000) if full else (2_000,)))
        if options.postgres and "fleet" in parts:
            asyncio.run(fleet(options.postgres, *((50, 2_000, 60.0) if full else (3, 20, 3.0))))
    return 0


# -------------------------------------------------------------------------------------------------- handover


def handover(folder: Path, options: argparse.Namespace) -> None:
    print("\n### hand-over: POST start on b until its run has begun, while a runs the job (slotTtlSeconds 30)\n")
    print("| daemon | store | median s | worst s |\n| --- | --- | --- | --- |")
    own = f"{sys.executable} -m sexton -c {{config}}"
    kinds = [("sexton", own, {"path": str(folder / "shared"), "topology": "shared"})]
    if options.postgres:
        kinds.append(("sexton", own, {"url": options.postgres, "deploymentId": "bench_handover"}))
    if options.daemon:
        kinds.append(("other", options.daemon, {"path": str(folder / "other"), "topology": "shared"}))
    for name, command, state in kinds:
        shutil.rmtree(folder / "run", ignore_errors=True)
        times = _hand_over(folder / "run", command, state, options.rounds)
        store = "postgres" if "url" in state else "folder"
        print(f"| {name} | {store} | {statistics.median(times):.3f} | {max(times):.3f} |", flush=True)
    if options.postgres:
        asyncio.run(_drop(options.postgres, "sexton_bench_handover"))


def _hand_over(folder: Path, command: str, state: dict[str, Any], rounds: int) -> list[float]:
    folder.mkdir()
    marks = folder / "marks"
    times = []
    with _node(folder, "a", command, state, marks) as a, _node(folder, "b", command, state, marks) as b:
        here, there = a, b
        _post(here, "start")
        _until(lambda: len(_lines(marks)) >= 1)
        for _ in range(rounds):
            time.sleep(1.0)
            before, began = len(_lines(marks)), time.time()
            _post(there, "start")
            _until(lambda before=before: len(_lines(marks)) > before)
            times.append(float(_lines(marks)[before]) - began)
            here, there = there, here
        _post(here, "cancel")
    return times


@contextlib.contextmanager
def _node(folder: Path, name: str, command: str, state: dict[str, Any], marks: Path) -> Iterator[int]:
    port = _free_port()
    config = folder / f"{name}.yaml"
    config.write_text(CONFIGURATION.format(
        port=port, marks=marks, state="".join(f"  {key}: {value}\n" for key, value in state.items())))
    log = (folder / f"{name}.log").open("wb")
    process = subprocess.Popen(command.format(config=config).split(), stdout=log, stderr=log)
    try:
        _until(lambda: _answers(port), START_SECONDS)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _post(port: int, what: str) -> None:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/jobs/j/{what}", method="POST")
    with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=RUN_SECONDS):
        pass


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/version", timeout=5):
            return True
    except OSError:
        return False


def _lines(marks: Path) -> list[str]:
    return marks.read_text().split() if marks.exists() else []


def _until(condition: Any, seconds: float = RUN_SECONDS) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise SystemExit("it took too long")
        time.sleep(0.002)


def _free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return int(it.getsockname()[1])


# -------------------------------------------------------------------------------------------------- history


async def history(url: str, sizes: tuple[int, ...]) -> None:
    from sexton.model.run import Outcome
    from sexton.store.postgres import PostgresStore

    await _drop(url, "sexton_bench_history")
    store = PostgresStore(url, "bench_history", max_runs_per_job=0)
    await store.open()
    questions = {
        "newest 100": lambda middle: store.runs(limit=100),
        "100 from the middle": lambda middle: store.runs(limit=100, before=middle),
        "100 of a job": lambda middle: store.runs(job="job-7", limit=100),
        "100 failures": lambda middle: store.runs(outcome=Outcome.FAILURE, limit=100),
        "100 of a node": lambda middle: store.runs(node="node-3", limit=100),
        "history of a job": lambda middle: store.history("job-7", 50),
        "one run": lambda middle: store.get(middle),
    }
    print("\n### a page of the history, ms (median of 20)\n")
    print(f"| runs | {' | '.join(questions)} |\n| --- {'| --- ' * len(questions)}|")
    try:
        for size in sizes:
            middle = await _fill(url, size)
            cells = [await _median_ms(ask, middle) for ask in questions.values()]
            print(f"| {size} | {' | '.join(cells)} |", flush=True)
        print("\n" + await _plans(url))
    finally:
        await store.close()
        await _drop(url, "sexton_bench_history")


async def _median_ms(ask: Any, middle: str) -> str:
    times = []
    for _ in range(20):
        began = time.perf_counter()
        await ask(middle)
        times.append(time.perf_counter() - began)
    return f"{statistics.median(times) * 1000:.1f}"


async def _fill(url: str, size: int) -> str:
    """Bring the table to so many runs of 200 jobs on 10 nodes, one in ten a failure; returns the id in the middle."""
    import msgspec
    import psycopg

    from sexton.model.run import Launch, Outcome, Phase, RunRecord, Trigger
    from sexton.run.identity import bound_at

    start = datetime(2026, 1, 1, tzinfo=UTC)
    encode = msgspec.json.Encoder().encode
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = connection.cursor()
        await cursor.execute("SELECT count(*) FROM sexton_bench_history.run")
        present = int((await cursor.fetchone() or (0,))[0])
        columns = "(id, job, daemon, outcome, ended_at, seq, body)"
        async with cursor.copy(f"COPY sexton_bench_history.run {columns} FROM STDIN") as copy:
            for n in range(present, size):
                at = start + timedelta(seconds=7 * n)
                outcome = Outcome.FAILURE if n % 10 == 0 else Outcome.SUCCESS
                launch = Launch(id=bound_at(at), job=f"job-{n % 200}", trigger=Trigger.SCHEDULE, node=f"node-{n % 10}",
                                scheduled_for=at, created_at=at)
                record = RunRecord(launch=launch, phase=Phase.RECORDED, outcome=outcome, started_at=at, finished_at=at,
                                   exit_code=0, duration=1.5)
                await copy.write_row((launch.id, launch.job, "d", outcome.value, int(at.timestamp() * 1e6), n,
                                      encode(record).decode()))
        await cursor.execute("ANALYZE sexton_bench_history.run")
    return bound_at(start + timedelta(seconds=7 * (size // 2)))


async def _plans(url: str) -> str:
    import psycopg

    from sexton.model.run import Outcome
    from sexton.store.postgres import statements

    values = {"job": "job-7", "outcome": "failure", "before": "01a", "limit": 100, "node": None, "after": None}
    asked = {
        "newest": statements.runs(job=False, outcome=None, node=False, before=False, after=False),
        "of a job": statements.runs(job=True, outcome=None, node=False, before=False, after=False),
        "failures": statements.runs(job=False, outcome=Outcome.FAILURE, node=False, before=False, after=False),
    }
    told = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        for name, text in asked.items():
            filled = text.replace("{{", "{").replace("}}", "}").replace("{schema}", "sexton_bench_history")
            cursor = await connection.execute(f"EXPLAIN {filled}", values)
            told.append(f"{name}:\n    " + "\n    ".join(row[0] for row in await cursor.fetchall()))
    return "\n".join(told)


# -------------------------------------------------------------------------------------------------- fleet


async def fleet(url: str, nodes: int, jobs: int, seconds: float) -> None:
    """Nodes with their heartbeats and looks at each other, as `daemon/fleet.py` does it; then all jobs due at once."""
    import psycopg

    from sexton.model.node import NodeFacts
    from sexton.store.postgres import PostgresStore

    await _drop(url, "sexton_bench_fleet")
    stores = [PostgresStore(url, "bench_fleet") for _ in range(nodes)]
    for store in stores:
        await store.open()
    beats = 0

    async def live(number: int, store: PostgresStore, end: float) -> None:
        nonlocal beats
        me = _identity(number)
        await asyncio.sleep(10.0 * number / nodes)
        while time.monotonic() < end:
            now = datetime.now(UTC)
            await store.announce(NodeFacts(identity=me, version="0", started_at=now, clock=now, jobs=jobs))
            await store.nodes()
            await store.news(20)
            beats += 1
            await asyncio.sleep(10.0)

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        before, cpu = await _transactions(connection), time.process_time()
        end = time.monotonic() + seconds
        await asyncio.gather(*(live(number, store, end) for number, store in enumerate(stores)))
        idle = await _transactions(connection) - before
        print(f"\n### {nodes} nodes with {jobs} jobs on one database\n\n| what | figure |\n| --- | --- |")
        print(f"| idle: transactions a minute, all nodes | {idle * 60 / seconds:.0f} |")
        print(f"| idle: heartbeats in that time | {beats} |")
        print(f"| idle: CPU of this program, which is all the nodes, s | {time.process_time() - cpu:.1f} |", flush=True)
        await claims(stores, jobs, connection)
    for store in stores:
        await store.close()
    await _drop(url, "sexton_bench_fleet")


async def claims(stores: list[Any], jobs: int, connection: Any) -> None:
    """All jobs are due at one instant, and each node claims each occurrence: one after the other, or in rounds, as a
    daemon does it."""
    from sexton.daemon.claiming import Rounds
    from sexton.model.errors import StoreError
    from sexton.store.coordination import Occurrence, bounded

    everyone = [_identity(number).id for number in range(len(stores))]
    print(f"\n| {jobs} jobs, `runOn: one-node`, due at one instant | all answered, s "
          "| lateness of the winners, s: median | p95 "
          "| worst | unanswered | most of one node | transactions | busy in the server, s | CPU here, s |")
    print("| --- " * 10 + "|")
    for turn, mode in enumerate(("singly", "in rounds")):
        instant = datetime(2026, 11, 30, 12, turn, tzinfo=UTC)
        won, late, unanswered = [0] * len(stores), [], 0
        cpu, before, busy = time.process_time(), await _transactions(connection), await _busy(connection)
        gc.collect()
        gc.disable()  # fifty nodes in one process would mostly measure it
        began = time.monotonic()

        async def claim(number: int, asked: Any, began: float = began, won: list[int] = won,
                        late: list[float] = late) -> None:
            nonlocal unanswered
            try:
                if await bounded(asked):
                    won[number] += 1
                    late.append(time.monotonic() - began)
            except StoreError:
                unanswered += 1

        async def node(number: int, store: Any, mode: str = mode, instant: datetime = instant,
                       claim: Any = claim) -> None:
            me, names = _identity(number), [f"job-{job}" for job in range(jobs)]
            if mode == "singly":
                for name in names:
                    await claim(number, store.claim_fire(name, instant, me))
                return
            rounds = Rounds(store, me, lambda: everyone)
            await asyncio.gather(*(claim(number, rounds.claim(Occurrence(name, instant))) for name in names))

        await asyncio.gather(*(node(number, store) for number, store in enumerate(stores)))
        took = time.monotonic() - began
        gc.enable()
        await asyncio.sleep(1.5)  # until the server has told its statistics
        done, busy = await _transactions(connection) - before, await _busy(connection) - busy
        late.sort()
        at = [f"{late[int((len(late) - 1) * share)]:.3f}" if late else "-" for share in (0.5, 0.95, 1)]
        print(f"| {mode} | {took:.2f} | {' | '.join(at)} | {unanswered} | {max(won)} | {done} | {busy:.1f} | "
              f"{time.process_time() - cpu:.1f} |", flush=True)
        assert unanswered or sum(won) == jobs, "each occurrence has one winner"


async def _busy(connection: Any) -> float:
    """Seconds in which statements were at work in the database, waiting for each other included."""
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    cursor = await connection.execute("SELECT active_time FROM pg_stat_database WHERE datname = current_database()")
    return float((await cursor.fetchone())[0]) / 1000


def _identity(number: int) -> Any:
    from sexton.model.node import NodeIdentity

    return NodeIdentity(id=f"n{number}#1", name=f"n{number}", pid=os.getpid(), pid_started_ticks=0, boot_id="b",
                        pid_namespace=0)


async def _transactions(connection: Any) -> int:
    await connection.execute("SELECT pg_stat_clear_snapshot()")
    cursor = await connection.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()")
    return int((await cursor.fetchone())[0])


async def _drop(url: str, schema: str) -> None:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")  # type: ignore[arg-type]


if __name__ == "__main__":
    sys.exit(main())

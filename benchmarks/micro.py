#!/usr/bin/env python3
"""The costly inner parts of Sexton one by one, without a daemon: to notice what became slower.

    micro.py [--only NAME ...] [--repeats N] [--json OUT] [--against OUT]

Run it before a change with --json, and after it with --against: the last column is the ratio of the best
times, which is steadier than anything else on a machine that does other work too.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from harness import configuration, processes
from harness.program import build
from harness.samples import percentile, shown

from sexton.config.load import load
from sexton.daemon.timetable import check_schedule
from sexton.execution import cgroup
from sexton.execution.messages import Emptied, ExecutionMessage, Started, StartFailed
from sexton.execution.plan import Plan
from sexton.execution.supervisors import Supervisors
from sexton.model.run import Launch, Outcome, Phase, RunRecord, Trigger
from sexton.run.identity import RunIds
from sexton.schedule.agenda import Agenda
from sexton.schedule.expression import CronExpression, parse
from sexton.schedule.occurrences import Occurrences, occurrences_of
from sexton.store.sqlite import SqliteStore

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TYPICAL = (
    "*/5 * * * *", "30 2 * * *", "0 9-17 * * mon-fri", "15 4 1 * *", "0 0 L * *", "0 6 * * 5#3",
    "*/10 * * * * * *", "7 3 15W * *",
)
SETTLE_SECONDS = 30.0

Found = dict[str, float]
"""By what it is, unit included; smaller is better."""


@dataclass(frozen=True)
class Place:
    folder: Path
    words: tuple[str, ...]
    """The program that jobs run."""


def _parsed(text: str, seed: str = "") -> CronExpression:
    expression = parse(text, seed=seed)
    assert isinstance(expression, CronExpression)
    return expression


# ------------------------------------------------------------------ schedules

def _texts() -> Iterator[str]:
    """Schedules that nobody has parsed yet, as long as the process lives."""
    for day, hour, month, minute in itertools.product(range(1, 29), range(24), range(1, 13), range(60)):
        yield f"{minute} {hour} {day} {month} *"


_UNSEEN = _texts()


def parsing(place: Place) -> Found:
    texts = list(itertools.islice(_UNSEEN, 2000))
    began = time.perf_counter()
    for text in texts:
        parse(text, seed="")
    return {"parse a schedule us": (time.perf_counter() - began) * 1e6 / len(texts)}


def following(place: Place) -> Found:
    found: Found = {}
    for zone in (UTC, ZoneInfo("Europe/Berlin")):
        schedules = [occurrences_of(_parsed(text), zone) for text in TYPICAL]
        began, count = time.perf_counter(), 500
        for schedule in schedules:
            at: datetime | None = NOON
            for _ in range(count):
                assert at is not None
                at = schedule.next_after(at)
        took = time.perf_counter() - began
        found[f"next instant, {zone} us"] = took * 1e6 / (count * len(schedules))
    return found


def _all_at_noon(number: int) -> Occurrences:
    """One of many schedules that differ and are all due at noon."""
    return occurrences_of(_parsed(f"0,{1 + number % 59} 12,{13 + number // 59 % 11} * * *"))


def agenda(place: Place) -> Found:
    found: Found = {}
    count = 10000
    same = occurrences_of(_parsed("0 * * * *"))
    for title, schedule in (("the same", lambda number: same), ("649", _all_at_noon)):
        before = NOON - timedelta(seconds=30)
        book = Agenda(before)
        began = time.perf_counter()
        for number in range(count):
            book.add(f"job-{number:05d}", schedule(number), before)
        added = time.perf_counter()
        due = book.pop_due(NOON)
        passed = time.perf_counter()
        assert len(due.due) == count
        found[f"agenda: add {count} jobs, {title} schedules ms"] = (added - began) * 1e3
        found[f"agenda: pass of {count} due, {title} schedules ms"] = (passed - added) * 1e3
    return found


# -------------------------------------------------------------- configuration

def _load_once(path: str) -> float:
    began = time.perf_counter()
    configuration_ = load(path, environ=os.environ, check_schedule=check_schedule)
    took = time.perf_counter() - began
    assert configuration_.jobs and not configuration_.errors
    return took


def _plain(number: int) -> str:
    return configuration.job(f"job-{number:05d}", f"exec work {number}", f"{number % 60} {number % 24} * * *")


def loading(place: Place) -> Found:
    """Each time in a process of its own, where nothing is cached."""
    found: Found = {}
    for count in (1000, 10000):
        file = place.folder / f"{count}.yaml"
        if not file.exists():
            file.write_text(configuration.document([_plain(number) for number in range(count)], 8420))
        argv = [sys.executable, __file__, "--load", str(file)]
        answer = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
        found[f"load {count} jobs ms"] = float(answer.stdout) * 1e3
    return found


# ------------------------------------------------------------------ execution

async def _burst(place: Place, base: str | None, count: int) -> tuple[list[float], Found]:
    """How late each start was, and what the whole cost."""
    loop = asyncio.get_running_loop()
    supervisors = Supervisors(base)
    starts: list[float] = []
    over: asyncio.Future[None] = loop.create_future()
    left = count

    def hear(message: ExecutionMessage) -> None:
        nonlocal left
        match message:
            case Started(at=at):
                starts.append(at)
            case Emptied():
                left -= 1
                if left == 0:
                    over.set_result(None)
            case StartFailed():
                over.set_exception(RuntimeError(message.what))

    words = (*place.words, "stamp", "/dev/null")
    request = Plan(tuple(map(os.fsencode, words)), {}, None, None, 0, None)
    try:
        supervisors.prefill(count)
        await asyncio.sleep(0.7)
        before, began = processes.cpu(os.getpid()), time.monotonic()
        for _ in range(count):
            supervisors.submit(request, (), hear)
        await asyncio.wait_for(over, SETTLE_SECONDS)
        took, after = time.monotonic() - began, processes.cpu(os.getpid())
    finally:
        await supervisors.close()
    return [at - began for at in starts], {
        "all over ms": took * 1e3,
        "CPU here us/run": (after.daemon - before.daemon) * 1e6 / count,
        "CPU of helpers us/run": (after.helpers - before.helpers) * 1e6 / count,
    }


def supervisors(place: Place) -> Found:
    found: Found = {}
    count = 500
    claimed = cgroup.claim()
    try:
        for title, base in (("plain", None), ("in cgroups", claimed)):
            if title == "plain" or base is not None:
                starts, costs = asyncio.run(_burst(place, base, count))
                spread = {f"started p{share} ms": percentile(starts, share) * 1e3 for share in (50, 99)}
                for what, much in (spread | costs).items():
                    found[f"{count} runs, {title}: {what}"] = much
    finally:
        if claimed is not None:
            cgroup.remove_tree(claimed)
    return found


# --------------------------------------------------------------------- ledger

@asynccontextmanager
async def _ledger(folder: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(folder, max_runs_per_job=0)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def _written(folder: Path, count: int, side_by_side: int) -> float:
    """Seconds for as many runs, each an intent and then a record, with so many at a time."""
    names = RunIds()

    async def runs(share: int) -> None:
        for _ in range(share):
            launch = Launch(id=names.next(), job="job", trigger=Trigger.MANUAL, node="node", created_at=NOON)
            await store.intend(launch)
            await store.record(RunRecord(
                launch=launch, phase=Phase.RECORDED, outcome=Outcome.SUCCESS, exit_code=0, started_at=NOON,
                finished_at=NOON, duration=0.1,
            ))

    async with _ledger(folder) as store:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(side_by_side):
                group.create_task(runs(count // side_by_side))
        return time.perf_counter() - began


def ledger(place: Place) -> Found:
    found: Found = {}
    for side_by_side, count in ((1, 100), (8, 800), (500, 2000)):
        with tempfile.TemporaryDirectory(dir=place.folder) as folder:
            took = asyncio.run(_written(Path(folder), count, side_by_side))
        found[f"ledger: a durable run, {side_by_side} at a time us"] = took * 1e6 / count
    return found


# --------------------------------------------------------------------- report

MEASURES: dict[str, Callable[[Place], Found]] = {
    "parse": parsing,
    "next": following,
    "agenda": agenda,
    "load": loading,
    "supervisors": supervisors,
    "ledger": ledger,
}


def measured(names: Sequence[str], repeats: int, place: Place) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name in names:
        for _ in range(repeats):
            for what, much in MEASURES[name](place).items():
                found.setdefault(what, []).append(much)
    return found


def table(found: dict[str, list[float]], earlier: dict[str, list[float]]) -> str:
    lines = ["| what | best | median | earlier best | best / earlier |", "| --- | --- | --- | --- | --- |"]
    for what, values in found.items():
        row = [what, shown(min(values)), shown(statistics.median(values))]
        if what in earlier:
            row += [shown(min(earlier[what])), f"{min(values) / min(earlier[what]):.2f}"]
        else:
            row += ["-", "-"]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=list(MEASURES))
    parser.add_argument("--repeats", type=int, default=5, metavar="N")
    parser.add_argument("--json", metavar="OUT", help="keep the figures of all repeats")
    parser.add_argument("--against", metavar="OUT", help="compare with figures that were kept")
    parser.add_argument("--load", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        print(_load_once(options.load))
        return
    earlier = json.loads(Path(options.against).read_text()) if options.against else {}
    with tempfile.TemporaryDirectory(prefix="sexton-micro-") as folder:
        place = Place(Path(folder), build(Path(folder)).words)
        found = measured(options.only or list(MEASURES), options.repeats, place)
    print(table(found, earlier))
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

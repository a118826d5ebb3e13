"""Thousands of runs of every kind, and then: is anything left? What there was before and what there is after them are
compared exactly: descriptors, processes, zombies, cgroups, supervisors, threads, timers, tasks.

SEXTON_SOAK_RUNS says how many: on an idle machine the default takes a quarter of a minute, 10,000 take half a minute.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from probes import descendants, named, rss, zombies
from rig import living, new_tag

from sexton.admission.decide import Refuse
from sexton.execution import cgroup
from sexton.execution.runlog import OutputFiles
from sexton.execution.supervisors import Supervisors
from sexton.model.clock import Clock, Monotonic
from sexton.model.job import ConcurrencyPolicy, JobSpec, Place
from sexton.model.run import GoneState, Outcome, RunRecord, StopCause, Trigger
from sexton.run.facilities import Facilities
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.run.registry import Registry
from sexton.store.sqlite import SqliteStore

RUNS = int(os.environ.get("SEXTON_SOAK_RUNS", "4400"))
AT_ONCE = 60
QUIET_SECONDS = 20.0
GROWTH = 24 * 1024 * 1024
"""Bytes that allocators and caches may take for good in the course of it."""
CLOCK = Clock(now=lambda: datetime.now(UTC), monotonic=lambda: Monotonic(time.monotonic()))


def kinds(tag: str) -> dict[str, tuple[JobSpec, Outcome]]:
    """Each kind of run, and how it must end."""
    def job(name: str, command: str | tuple[str, ...], **more: object) -> JobSpec:
        facts: dict[str, object] = {"capture_stderr": False, "kill_timeout": 0.05, **more}
        return JobSpec(name=name, command=command, schedule="0 0 1 1 *", place=Place("t", 1, 1),
                       **facts)  # type: ignore[arg-type]

    escaped = f"trap '' TERM; setsid sleep {tag} & (setsid sh -c 'sleep {tag} & exit 0' &); sleep {tag}"
    return {
        "success": (job("success", ("/bin/true",)), Outcome.SUCCESS),
        "failure": (job("failure", "exit 3"), Outcome.FAILURE),
        "cannot start": (job("cannot start", ("/no/such/program",), capture_stdout=True), Outcome.FAILURE),
        "captured": (job("captured", "echo out; echo err >&2", capture_stdout=True, capture_stderr=True),
                     Outcome.FAILURE),
        "much": (job("much", "head -c 300000 /dev/zero", capture_stdout=True, max_line_length=100), Outcome.SUCCESS),
        "standard input": (job("standard input", ("cat",), stdin="text\n", capture_stdout=True), Outcome.SUCCESS),
        "timeout": (job("timeout", escaped, execution_timeout=0.1), Outcome.FAILURE),
        "cancel": (job("cancel", escaped, capture_stdout=True), Outcome.CANCELLED),
        "replace": (job("replace", f"exec sleep {tag}", concurrency_policy=ConcurrencyPolicy.REPLACE),
                    Outcome.REPLACED),
        "leftovers": (job("leftovers", "sleep 0.4 & exit 0"), Outcome.SUCCESS),
        "kills its supervisor": (job("kills its supervisor", f"setsid sleep {tag} & kill -9 $PPID; sleep {tag}"),
                                 Outcome.UNKNOWN),
    }


class Holding(msgspec.Struct, frozen=True):
    """What must be the same before and after; warm supervisors, of which there may be more or fewer, are left out."""

    descriptors: Counter[str]
    threads: int
    processes: int
    zombies: int
    cgroups: int
    tasks: int
    timers: int
    registered: int


class Soak:
    def __init__(self, supervisors: Supervisors, base: str | None, store: SqliteStore, output: OutputFiles) -> None:
        self.supervisors, self.base, self.store = supervisors, base, store
        self.records: Counter[tuple[str, Outcome | None]] = Counter()
        self.unproven: list[RunRecord] = []
        self.registry = Registry()
        facilities = Facilities(
            ledger=store, supervisors=supervisors, registry=self.registry, clock=CLOCK, mirror=None,
            output_files=output, on_recorded=self._recorded,
        )
        self.launcher = Launcher(facilities, "here", "boot")
        self._room = asyncio.Semaphore(AT_ONCE)

    def _recorded(self, run: Run, record: RunRecord) -> None:
        self.records[run.job.name, record.outcome] += 1
        if record.gone is None or record.gone.state is not GoneState.PROVEN:
            self.unproven.append(record)
        self._room.release()

    async def run(self, jobs: list[JobSpec], count: int) -> None:
        """So many runs, AT_ONCE at a time, until the last is recorded."""
        for number in range(count):
            await self._room.acquire()
            job = jobs[number % len(jobs)]
            run = self.launcher.launch(job, Trigger.MANUAL)
            assert not isinstance(run, Refuse)
            if job.name == "cancel":
                stop = StopRequested(StopCause.CANCEL, reason="soak")
                asyncio.get_running_loop().call_later(number % 7 * 0.03, run.mailbox.post, stop)
        for run in self.registry:
            if run.job.name == "replace":
                run.mailbox.post(StopRequested(StopCause.CANCEL, reason="the last one"))
        async with asyncio.timeout(60):
            while len(self.registry):
                await asyncio.sleep(0.01)

    def holding(self) -> Holding:
        pool = self.supervisors.counts["supervisors"]
        fds = Counter(filter(None, map(kind_of_fd, os.listdir("/proc/self/fd"))))
        fds["socket"] -= pool
        mine = descendants(os.getpid())
        loop = asyncio.get_running_loop()
        timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        return Holding(
            descriptors=fds, threads=own_threads(), processes=len(mine) - pool,
            zombies=len(zombies(os.getpid())),
            cgroups=sum(entry.is_dir() for entry in os.scandir(self.base)) - pool if self.base else 0,
            tasks=len(asyncio.all_tasks()), timers=len(timers), registered=len(self.registry),
        )

    async def settled(self, wanted: Callable[[Holding], bool]) -> Holding:
        """The holding when it is as wanted, or after a bounded wait."""
        end = time.monotonic() + QUIET_SECONDS
        while not wanted(found := self.holding()) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        return found


def own_threads() -> int:
    """Without the pool that asyncio keeps until the loop is closed."""
    return sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate())


def kind_of_fd(number: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/fd/{number}").partition(":")[0]
    except OSError:
        return None  # the one that lists them


@pytest.fixture
async def soak(tmp_path: Path) -> AsyncIterator[Soak]:
    base = cgroup.claim()
    store = SqliteStore(tmp_path, max_runs_per_job=50)
    await store.open()
    output = OutputFiles(store.directory / "output", 1 << 20)
    supervisors = Supervisors(base)
    yield Soak(supervisors, base, store, output)
    await supervisors.close()
    output.close()
    await store.close()
    assert base is None or cgroup.remove_tree(base), "a cgroup was left"


async def test_nothing_is_left(soak: Soak) -> None:
    """After thousands of runs of every kind all is as it was after the first few, every run has its record with the
    outcome of its kind, and each is proven gone (but for what was left behind on purpose, which has ended since)."""
    gc.collect()  # loops of earlier tests, and their descriptors
    tag = new_tag()
    every = kinds(tag)
    jobs = [job for job, _ in every.values()]
    await soak.run(jobs, 3 * len(jobs))
    quiet = await soak.settled(lambda now: (
        now.processes == 1 and now.zombies == now.cgroups == 0 and now.timers <= 1))
    assert quiet.processes == 1, "the zygote alone, beside supervisors"
    soak.records.clear()
    memory, began = rss(os.getpid()), time.monotonic()
    count = RUNS // len(jobs) * len(jobs)
    await soak.run(jobs, count)
    print(f"{count} runs in {time.monotonic() - began:.1f} s; {dict(soak.supervisors.counts)}")
    after = await soak.settled(lambda now: now == quiet)
    assert after == quiet
    assert len(named(os.getpid(), "sexton-run")) == soak.supervisors.counts["supervisors"]
    assert living(tag) == [] and rss(os.getpid()) - memory < GROWTH
    each = count // len(jobs)
    expected = Counter({(name, outcome): each for name, (_, outcome) in every.items()})
    assert soak.records - expected == Counter({("replace", Outcome.CANCELLED): 1}), "the last one was cancelled"
    assert {record.launch.job for record in soak.unproven} <= {"leftovers"}
    kept = await soak.store.recent(1000)
    assert all(len(history.runs) <= 54 for history in kept.values()), "old records were forgotten"


async def test_nothing_is_left_after_the_end(tmp_path: Path) -> None:
    """When pool and store are closed, not a descriptor, thread, process, task or cgroup remains of what they had."""
    before = (Counter(map(kind_of_fd, os.listdir("/proc/self/fd"))), descendants(os.getpid()),
              len(asyncio.all_tasks()), own_threads())
    base = cgroup.claim()
    marks = 0 if base is None else 1  # the lock that marks the directory as ours stays for the life of the process
    store = SqliteStore(tmp_path)
    await store.open()
    output = OutputFiles(store.directory / "output", 1 << 20)
    supervisors = Supervisors(base)
    soak = Soak(supervisors, base, store, output)
    jobs = [job for job, _ in kinds(new_tag()).values()]
    await soak.run(jobs, 4 * len(jobs))
    await supervisors.close()
    output.close()
    await store.close()

    def now() -> tuple[Counter[str | None], list[int], int, int]:
        return (Counter(map(kind_of_fd, os.listdir("/proc/self/fd"))), descendants(os.getpid()),
                len(asyncio.all_tasks()), own_threads())

    end = time.monotonic() + QUIET_SECONDS
    while (now()[1] != before[1] or (base and not cgroup.remove_tree(base))) and time.monotonic() < end:
        await asyncio.sleep(0.05)  # what was left behind on purpose ends by itself, and keeps its cgroup so long
    assert base is None or cgroup.remove_tree(base)
    fds, processes, tasks, threads = now()
    assert (processes, tasks, threads) == before[1:]
    assert sum((fds - before[0]).values()) <= marks

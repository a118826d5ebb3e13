"""Runs and records for the tests of stores, and the stores themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from sexton.model.limits import LimitFacts, Mechanism, TreeUse
from sexton.model.run import (
    Containment,
    Exit,
    Gone,
    GoneState,
    Launch,
    Outcome,
    OutputFacts,
    Phase,
    RunRecord,
    Stop,
    StopCause,
    StreamSize,
    Survivor,
    Trigger,
    Usage,
    Witness,
)
from sexton.store.directory import DirectoryStore
from sexton.store.memory import MemoryStore
from sexton.store.postgres import PostgresStore
from sexton.store.sqlite import SqliteStore

Store = MemoryStore | SqliteStore | DirectoryStore | PostgresStore
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def run_id(number: int) -> str:
    return f"01890a5d-ac96-774b-bcce-{number:012x}"


def launch(number: int, job: str = "backup") -> Launch:
    return Launch(
        id=run_id(number),
        job=job,
        trigger=Trigger.SCHEDULE,
        node="node-1",
        scheduled_for=NOON,
        created_at=NOON + timedelta(microseconds=number),
        boot_id="boot-1",
    )


def running(number: int, job: str = "backup", *, pid: int = 4711) -> RunRecord:
    return RunRecord(
        launch=launch(number, job), phase=Phase.RUNNING, pid=pid, pid_started_ticks=99, started_at=NOON
    )


def recorded(
    number: int, job: str = "backup", *, outcome: Outcome | None = Outcome.SUCCESS, ended: float = 0.0
) -> RunRecord:
    """A final record of a run that ended `ended` seconds after noon."""
    return RunRecord(
        launch=launch(number, job),
        phase=Phase.RECORDED,
        outcome=outcome,
        finished_at=NOON + timedelta(seconds=ended),
    )


def full_record(number: int) -> RunRecord:
    """A record with every field set, and text that is easily spoiled on its way through a store."""
    text = "line\nbreak \u0000 nul \u2028 \U0001f514 \"quote\" 'single' \\ back"
    return RunRecord(
        launch=msgspec.structs.replace(launch(number), requested_by=text, attempt=2),
        phase=Phase.RECORDED,
        outcome=Outcome.FAILURE,
        exit=Exit(signal=9),
        exit_code=-100,
        stop=Stop(cause=StopCause.TIMEOUT, reason=text, requested_at=NOON, signalled_at=NOON, forced_at=NOON),
        gone=Gone(
            state=GoneState.SURVIVORS,
            witnesses=(Witness.SUPERVISOR, Witness.CGROUP),
            survivors=(Survivor(pid=7, uid=0, state="D", reason=text),),
        ),
        containment=Containment.SUPERVISOR_CGROUP,
        pid=2**31 - 1,
        pid_started_ticks=2**53 + 1,
        started_at=NOON,
        deadline_at=NOON + timedelta(microseconds=1),
        finished_at=NOON + timedelta(microseconds=2),
        duration=0.1 + 0.2,
        fail_reason=text,
        output=OutputFacts(
            stdout=StreamSize(bytes=2**40, truncated=True), log="a.log", log_dropped_bytes=1
        ),
        usage=Usage(cpu_user_seconds=0.1, cpu_system_seconds=1e-9, max_rss_bytes=2**33),
        limits=LimitFacts(
            cpu=0.1, memory_bytes=2**62, processes=1, required=True, enforced=True, mechanism=Mechanism.CGROUP_V1,
            by={"cpu": Mechanism.CGROUP_V2, "memory": Mechanism.RLIMIT}, unenforced=("memory",), reason=text,
            refused=True, memory_exceeded=True, process_limit_hits=2**31 - 1, peak_memory_bytes=2**62,
            cpu_throttled_seconds=0.1,
        ),
        tree=TreeUse(cpu_user_seconds=0.1, cpu_system_seconds=0.2, max_rss_bytes=2**40, peak_memory_bytes=2**41,
                     max_processes=3, looks=2),
    )


def ids(records: object) -> list[str]:
    return [record.launch.id for record in records]  # type: ignore[attr-defined]


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def build(kind: str, path: Path, url: str = "", **options: object) -> Store:
    if kind == "postgres":
        return PostgresStore(url, **options)  # type: ignore[arg-type]
    if kind == "memory":
        return MemoryStore(**options)  # type: ignore[arg-type]
    if kind == "directory":
        return DirectoryStore(path / "mount", **options)  # type: ignore[arg-type]
    return SqliteStore(path / "state", **options)  # type: ignore[arg-type]

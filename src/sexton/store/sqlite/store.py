"""`SqliteStore`: ledger and job state of one machine in `<path>/<deployment id>/ledger.sqlite3`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sexton.model.errors import StoreError
from sexton.model.run import Launch, Outcome, RunRecord
from sexton.store.batch import Intend, Note, Prune, PutState, Record
from sexton.store.local import LocalCoordination
from sexton.store.port import Capabilities, JobHistory, Operations
from sexton.store.sqlite.directory import DirectoryLock, deployment_directory, prepare_directory
from sexton.store.sqlite.reader import Reader
from sexton.store.sqlite.schema import open_reader, open_writer
from sexton.store.sqlite.whereabouts import Whereabouts
from sexton.store.sqlite.writer import Opened, Within, Writer, WriterStatistics, take_tally

if TYPE_CHECKING:
    from sexton.store.localqueue import QueueTable
    from sexton.store.queue import Queue

T = TypeVar("T")

FENCE = "fence"
"""Key under which the fence of a lease is kept, as a state of the lease's name."""


class SqliteStore(LocalCoordination):
    """Implements `Ledger`, `JobState` and, as the only process that has the directory, `Coordination`. Writes are
    grouped: all that is queued while the disk works on one commit goes into the next.

    `path` and `deployment_id` say where; the directory belongs to one open store at a time. Of each job the
    newest `max_runs_per_job` recorded runs are kept (0 or less: all), and up to a sixteenth more until they
    are forgotten together; `on_pruned` then hears their ids on the event loop. `close_timeout` (seconds)
    bounds `close`.
    """

    capabilities = Capabilities(durable=True, queue=True)

    def __init__(
        self,
        path: str | Path,
        deployment_id: str = "default",
        *,
        max_runs_per_job: int = 1000,
        on_pruned: Callable[[Sequence[str]], None] | None = None,
        close_timeout: float = 10.0,
    ) -> None:
        super().__init__(self._keep_fence)
        self._directory = deployment_directory(path, deployment_id)
        self._max_runs_per_job = max_runs_per_job
        self._on_pruned = on_pruned
        self._close_timeout = close_timeout
        self._lock: DirectoryLock | None = None
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._queue: Queue | None = None

    @property
    def directory(self) -> Path:
        """Where this deployment's files are."""
        return self._directory

    @property
    def statistics(self) -> WriterStatistics:
        return WriterStatistics() if self._writer is None else self._writer.statistics

    @property
    def operations(self) -> Mapping[str, Operations]:
        reader, done = self._reader, self.statistics
        write = Operations(done=done.changes, failed=done.failed_changes, rounds=done.commits, seconds=done.seconds)
        return {"read": Operations() if reader is None else reader.operations, "write": write}

    @property
    def lost_notes(self) -> int:
        return self.statistics.lost_notes

    @property
    def problem(self) -> str | None:
        return None if self._writer is None else self._writer.problem

    async def open(self) -> None:
        if self._lock is not None:
            raise StoreError("the store is open already")
        ledger = await asyncio.to_thread(prepare_directory, self._directory)
        self._lock = DirectoryLock(self._directory)
        try:
            opened, reading = await asyncio.to_thread(_connect, ledger)
        except BaseException:
            self._release()
            raise
        self._reader = Reader(reading)
        self._writer = Writer(
            opened, max_runs_per_job=self._max_runs_per_job, on_pruned=self._on_pruned, renew=self._renew
        )
        self.remember_fences({name: int(fence) for name, fence in (await self.states(FENCE)).items()})

    def _renew(self) -> Opened:
        """On the writer's thread: the directory was deleted under us. What a restart would do: take it, and begin a new
        ledger. Raises StoreError."""
        ledger = prepare_directory(self._directory)
        lock = DirectoryLock(self._directory)
        try:
            opened, reading = _connect(ledger)
        except BaseException:
            lock.release()
            raise
        if self._reader is not None:
            self._reader.turn_to(reading)
        else:
            reading.close()
        self._release()
        self._lock = lock
        return opened

    async def close(self) -> None:
        """Raises StoreError when the queue could not be written within `close_timeout`."""
        writer, reader = self._writer, self._reader
        self._writer = self._reader = None
        if reader is not None:
            await reader.close()
        if writer is not None:
            # When this fails something is still being written, and the directory stays ours.
            await writer.stop(within=self._close_timeout)
        self._release()

    async def intend(self, launch: Launch) -> None:
        await self._writing().submit(Intend(launch))

    def note(self, record: RunRecord) -> None:
        self._writing().post(Note(record))

    async def keep(self, record: RunRecord) -> None:
        await self._writing().submit(Note(record))

    async def record(self, record: RunRecord) -> None:
        await self._writing().submit(Record(record))

    async def unfinished(self) -> Sequence[RunRecord]:
        return await self._reading().unfinished()

    async def unfinished_of(self, node: str) -> Sequence[RunRecord]:
        return [record for record in await self.unfinished() if record.launch.daemon == node]

    async def get(self, run_id: str) -> RunRecord | None:
        return await self._reading().get(run_id)

    async def known(self, run_ids: Sequence[str]) -> frozenset[str]:
        return await self._reading().known(run_ids)

    async def history(self, job: str, limit: int) -> JobHistory:
        return await self._reading().history(job, limit)

    async def recent(self, per_job: int) -> Mapping[str, JobHistory]:
        return await self._reading().recent(per_job)

    async def runs(
        self, *, job: str | None = None, outcome: Outcome | None = None, node: str | None = None, limit: int,
        before: str | None = None, after: str | None = None,
    ) -> Sequence[RunRecord]:
        return await self._reading().runs(
            job=job, outcome=outcome, node=node, limit=limit, before=before, after=after)

    async def prune(self, job: str, keep: int) -> Sequence[str]:
        return await self._writing().submit(Prune(job, keep)) or []

    async def get_state(self, job: str, key: str) -> str | None:
        return await self._reading().get_state(job, key)

    async def states(self, key: str) -> Mapping[str, str]:
        return await self._reading().states(key)

    async def put_state(self, job: str, key: str, value: str) -> None:
        if "\0" in job + key + value:
            raise StoreError("job state cannot hold a NUL character")
        await self._writing().submit(PutState(job, key, value))

    # ---------------------------------------------------------------- queue

    @property
    def queue(self) -> Queue:
        if self._queue is None:
            from sexton.store.localqueue import LocalQueue  # most daemons have none

            self._queue = LocalQueue(self._within)
        return self._queue

    async def _within(self, work: Callable[[QueueTable], T]) -> T:
        from sexton.store.localqueue import QueueTable

        def do(writer: Writer) -> T:
            return work(QueueTable(writer.connection, writer.record_now, writer.recorded))

        answer: T = await self._writing().submit(Within(do))
        return answer

    async def _keep_fence(self, name: str, fence: int) -> None:
        await self.put_state(name, FENCE, str(fence))

    def _writing(self) -> Writer:
        if self._writer is None:
            raise StoreError("the store is not open")
        return self._writer

    def _reading(self) -> Reader:
        if self._reader is None:
            raise StoreError("the store is not open")
        return self._reader

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _connect(ledger: Path) -> tuple[Opened, sqlite3.Connection]:
    writing = open_writer(ledger)
    try:
        opened = Opened(connection=writing, tally=take_tally(writing), whereabouts=Whereabouts(ledger))
        return opened, open_reader(ledger)
    except (sqlite3.Error, OSError) as error:
        writing.close()
        raise StoreError(f"{ledger} cannot be read: {error}") from error
    except StoreError:
        writing.close()
        raise

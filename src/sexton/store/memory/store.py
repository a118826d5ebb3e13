"""`MemoryStore`: ledger and job state that end with the process."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from sexton.model.errors import StoreError
from sexton.model.run import Launch, Outcome, RunRecord, intent_of
from sexton.store.local import LocalCoordination
from sexton.store.port import Capabilities, JobHistory, ended_at

if TYPE_CHECKING:
    from sexton.store.localqueue import QueueTable
    from sexton.store.queue import Queue

T = TypeVar("T")
_Place = tuple[datetime, int, str]
"""Where a recorded run stands in its job's history: when it ended, when it was recorded, its id."""


class MemoryStore(LocalCoordination):
    """Implements `Ledger`, `JobState` and, among the tasks of this process, `Coordination`.

    Of each job the newest `max_runs_per_job` recorded runs are kept (0 or less: all); `on_pruned` hears of
    the ids that had to make room.
    """

    capabilities = Capabilities(durable=False, queue=True)
    problem: str | None = None

    def __init__(
        self, *, max_runs_per_job: int = 1000, on_pruned: Callable[[Sequence[str]], None] | None = None
    ) -> None:
        super().__init__()
        self._max_runs_per_job = max_runs_per_job
        self._on_pruned = on_pruned
        self._open = False
        self._seq = 0
        self._runs: dict[str, RunRecord] = {}
        self._ids: list[str] = []
        self._ids_of_job: dict[str, list[str]] = {}
        self._places: dict[str, _Place] = {}
        """Of recorded runs only: a run that is not in here is unfinished."""
        self._history: dict[str, list[_Place]] = {}
        self._totals: dict[str, dict[Outcome, int]] = {}
        self._state: dict[tuple[str, str], str] = {}
        self._queue: Queue | None = None
        self._queued: QueueTable | None = None

    async def open(self) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False

    async def intend(self, launch: Launch) -> None:
        self._check()
        if launch.id not in self._runs:
            self._keep(intent_of(launch))

    def note(self, record: RunRecord) -> None:
        self._check()
        run_id = record.launch.id
        if run_id in self._runs and run_id not in self._places:
            self._runs[run_id] = record

    async def keep(self, record: RunRecord) -> None:
        self.note(record)

    async def record(self, record: RunRecord) -> None:
        self._check()
        self._put_record(record)

    def _put_record(self, record: RunRecord) -> None:
        job, run_id = record.launch.job, record.launch.id
        if run_id in self._places:
            self._forget_record(run_id)
        self._keep(record)
        self._seq += 1
        place = (ended_at(record), self._seq, run_id)
        self._places[run_id] = place
        insort(self._history.setdefault(job, []), place)
        if record.outcome is not None:
            totals = self._totals.setdefault(job, {})
            totals[record.outcome] = totals.get(record.outcome, 0) + 1
        if 0 < self._max_runs_per_job < len(self._history[job]):
            gone = self._prune(job, self._max_runs_per_job)
            if self._on_pruned is not None:
                self._on_pruned(gone)

    async def unfinished(self) -> Sequence[RunRecord]:
        self._check()
        return [self._runs[i] for i in sorted(self._runs.keys() - self._places.keys())]

    async def unfinished_of(self, node: str) -> Sequence[RunRecord]:
        return [record for record in await self.unfinished() if record.launch.daemon == node]

    async def get(self, run_id: str) -> RunRecord | None:
        self._check()
        return self._runs.get(run_id)

    async def known(self, run_ids: Sequence[str]) -> frozenset[str]:
        self._check()
        return frozenset(self._runs.keys() & set(run_ids))

    async def history(self, job: str, limit: int) -> JobHistory:
        self._check()
        return self._history_of(job, limit)

    async def recent(self, per_job: int) -> Mapping[str, JobHistory]:
        self._check()
        return {job: self._history_of(job, per_job) for job in self._history}

    async def runs(
        self, *, job: str | None = None, outcome: Outcome | None = None, node: str | None = None, limit: int,
        before: str | None = None, after: str | None = None,
    ) -> Sequence[RunRecord]:
        self._check()
        ids = self._ids if job is None else self._ids_of_job.get(job, [])
        end = len(ids) if before is None else bisect_left(ids, before)
        first = 0 if after is None else bisect_right(ids, after)
        newest_first = (self._runs[ids[n]] for n in range(end - 1, first - 1, -1))
        fitting = (r for r in newest_first
                   if (outcome is None or r.outcome is outcome) and node in (None, r.launch.node))
        return list(islice(fitting, max(limit, 0)))

    async def prune(self, job: str, keep: int) -> Sequence[str]:
        self._check()
        return self._prune(job, keep)

    async def get_state(self, job: str, key: str) -> str | None:
        self._check()
        return self._state.get((job, key))

    async def states(self, key: str) -> Mapping[str, str]:
        self._check()
        return {job: value for (job, kept), value in self._state.items() if kept == key}

    async def put_state(self, job: str, key: str, value: str) -> None:
        self._check()
        self._state[job, key] = value

    # ---------------------------------------------------------------- queue

    @property
    def queue(self) -> Queue:
        if self._queue is None:
            from sexton.store.localqueue import LocalQueue  # a queue in memory is SQLite's

            self._queue = LocalQueue(self._within)
        return self._queue

    async def _within(self, work: Callable[[QueueTable], T]) -> T:
        self._check()
        if self._queued is None:
            from sexton.store.localqueue import in_memory

            self._queued = in_memory(self._record_all, self._recorded)
        with self._queued.transaction():
            return work(self._queued)

    def _record_all(self, records: Sequence[RunRecord]) -> None:
        for record in records:
            self._put_record(record)

    def _recorded(self, run_id: str) -> RunRecord | None:
        return self._runs[run_id] if run_id in self._places else None

    def _check(self) -> None:
        if not self._open:
            raise StoreError("the store is not open")

    def _keep(self, record: RunRecord) -> None:
        run_id = record.launch.id
        if run_id not in self._runs:
            insort(self._ids, run_id)
            insort(self._ids_of_job.setdefault(record.launch.job, []), run_id)
        self._runs[run_id] = record

    def _history_of(self, job: str, limit: int) -> JobHistory:
        places = self._history.get(job, [])
        newest = places[max(len(places) - max(limit, 0), 0) :]
        totals = {outcome: count for outcome, count in self._totals.get(job, {}).items() if count}
        return JobHistory(runs=tuple(self._runs[i] for _, _, i in newest), totals=totals)

    def _prune(self, job: str, keep: int) -> list[str]:
        places = self._history.get(job, [])
        gone = [i for _, _, i in reversed(places[: max(len(places) - max(keep, 0), 0)])]
        for run_id in gone:
            self._forget_record(run_id)
            del self._runs[run_id]
            for ids in (self._ids, self._ids_of_job[job]):
                del ids[bisect_left(ids, run_id)]
        return gone

    def _forget_record(self, run_id: str) -> None:
        record, place = self._runs[run_id], self._places.pop(run_id)
        job = record.launch.job
        places = self._history[job]
        del places[bisect_left(places, place)]
        if not places:
            del self._history[job]
        if record.outcome is not None:
            self._totals[job][record.outcome] -= 1

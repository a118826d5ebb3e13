"""Questions to the ledger, answered from its files. A file that cannot be read hides no other."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from heapq import merge
from itertools import takewhile
from typing import Final, TypeVar

import msgspec

from sexton.model.errors import StoreError
from sexton.model.run import Outcome, RunRecord
from sexton.store.directory.files import Files, names, read
from sexton.store.directory.names import Entry, encoded
from sexton.store.directory.shelves import Shelf, Shelves
from sexton.store.port import JobHistory

log = logging.getLogger(__name__)

RECORDS_IN_MEMORY: Final = 4096
"""The latest that were asked for: a recorded run's file is never changed."""

T = TypeVar("T")

_record = msgspec.json.Decoder(RunRecord).decode


class Knowledge(Enum):
    """How far a run has come in the ledger."""

    OPEN = "open"
    """Intended, not recorded."""
    RECORDED = "recorded"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are asked for: `Ledger.runs`."""

    job: str | None = None
    outcome: Outcome | None = None
    node: str | None = None
    before: str | None = None
    after: str | None = None

    def takes(self, record: RunRecord) -> bool:
        """All but the outcome."""
        launch = record.launch
        return (self.job in (None, launch.job) and self.node in (None, launch.node)
                and (self.before is None or launch.id < self.before)
                and (self.after is None or launch.id > self.after))


class StateValue(msgspec.Struct, frozen=True):
    """What a file of job state holds."""

    job: str
    key: str
    value: str


_state = msgspec.json.Decoder(StateValue).decode


class Reading:
    """For the threads that read. Raises OSError, and StoreError where one run was asked for that cannot be read."""

    def __init__(self, files: Files, shelves: Shelves) -> None:
        self._files = files
        self._shelves = shelves
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, RunRecord] = OrderedDict()
        self._foreign: set[str] = set()
        self._told: dict[str, Shelf] = {}
        """By folder: as it was when its recent runs were last asked for."""

    def unfinished(self) -> list[RunRecord]:
        """What another node records meanwhile may be in it or not, but is never half there."""
        return sorted(self._open(), key=lambda record: record.launch.id)

    def get(self, run_id: str) -> RunRecord | None:
        likely = self._shelves.folder_of(run_id)
        unfinished = None if likely is not None else self._read(self.open_path(run_id))
        if likely is not None:
            folders = [likely]
        elif unfinished is not None:
            folders = [encoded(unfinished.launch.job)]
        else:
            folders = self._shelves.folders()
        for folder in folders:
            if (entry := self._shelves.at(folder).get(run_id)) is not None:
                record = self._recorded(folder, entry)
                if record is None:
                    raise StoreError(f"the record of run {run_id} cannot be read")
                return record
        return unfinished

    def present(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Intents first: one that becomes a record meanwhile is found as one or the other."""
        intended = {run_id for run_id in run_ids if os.path.exists(self.open_path(run_id))}
        shelves = [self._shelves.at(folder) for folder in self._shelves.folders()]
        return frozenset(run_id for run_id in run_ids
                         if run_id in intended or any(shelf.get(run_id) is not None for shelf in shelves))

    def history(self, job: str, limit: int) -> JobHistory:
        return self._history(encoded(job), limit)

    def recorded_jobs(self) -> list[str]:
        return self._shelves.folders()

    def changed_jobs(self) -> list[str]:
        """Folders that have changed since `recent` was asked for them."""
        return [folder for folder in self._shelves.folders() if self._shelves.at(folder) is not self._told.get(folder)]

    def recent(self, folder: str, limit: int) -> tuple[str, JobHistory] | None:
        """The history of the job that has this folder; None when there is none."""
        self._told[folder] = self._shelves.at(folder)
        history = self._history(folder, limit)
        job = self._shelves.job_of(folder, self._recorded)
        if job is None or not (history.totals or self._shelves.at(folder)):
            return None
        return job, history

    def runs(self, wanted: Wanted, limit: int) -> list[RunRecord]:
        # What is unfinished comes first: a run that is recorded meanwhile is then found twice, otherwise not at all.
        unfinished = [] if wanted.outcome is not None else [record for record in self._open() if wanted.takes(record)]
        unfinished.sort(key=lambda record: record.launch.id, reverse=True)
        newest_first = takewhile(
            lambda row: wanted.after is None or row[1].id > wanted.after,
            self._shelves.newest_first(wanted.job, wanted.before))
        recorded = (
            record for folder, entry in newest_first
            if (wanted.outcome is None or entry.outcome is wanted.outcome)
            and (record := self._recorded(folder, entry)) is not None and wanted.node in (None, record.launch.node)
        )
        both = merge(recorded, unfinished, key=lambda record: record.launch.id, reverse=True)
        return _first(both, limit)

    def get_state(self, job: str, key: str) -> str | None:
        return self._read_state(self.state_path(job, key))

    def states(self, key: str) -> dict[str, str]:
        folder = self._files.path("state", encoded(key))
        found: dict[str, str] = {}
        for name in names(folder):
            path = os.path.join(folder, name)
            if (kept := self._state_at(path)) is not None:
                found[kept.job] = kept.value
        return found

    def open_path(self, run_id: str) -> str:
        return self._files.path("open", encoded(run_id) + ".json")

    def state_path(self, job: str, key: str) -> str:
        return self._files.path("state", encoded(key), encoded(job) + ".json")

    def known(self, run_id: str, job: str) -> Knowledge | None:
        """What the ledger has of a run; None when it has nothing."""
        if self._shelves.of(job).get(run_id) is not None:
            return Knowledge.RECORDED
        return Knowledge.OPEN if os.path.exists(self.open_path(run_id)) else None

    def outlived_intents(self) -> list[str]:
        """Files of intents whose records are there: of a crash between the two, or of this very moment."""
        return [self.open_path(record.launch.id) for record in self._intents() if self._is_recorded(record)]

    def _open(self) -> Iterator[RunRecord]:
        """An intent that outlived its record counts for nothing."""
        return (record for record in self._intents() if not self._is_recorded(record))

    def _intents(self) -> list[RunRecord]:
        folder = self._files.path("open")
        return [record for name in names(folder) if (record := self._read(os.path.join(folder, name))) is not None]

    def _is_recorded(self, record: RunRecord) -> bool:
        return self._shelves.of(record.launch.job).get(record.launch.id) is not None

    def _history(self, folder: str, limit: int) -> JobHistory:
        shelf = self._shelves.at(folder)
        records = (self._recorded(folder, entry) for entry in shelf.newest(limit))
        return JobHistory(runs=tuple(record for record in records if record is not None), totals=shelf.totals)

    def _recorded(self, folder: str, entry: Entry) -> RunRecord | None:
        with self._lock:
            if (cached := self._cache.get(entry.file)) is not None:
                self._cache.move_to_end(entry.file)
                return cached
        record = self._read(self._files.path("runs", folder, entry.file))
        if record is not None:
            with self._lock:
                self._cache[entry.file] = record
                if len(self._cache) > RECORDS_IN_MEMORY:
                    self._cache.popitem(last=False)
        return record

    def _read(self, path: str) -> RunRecord | None:
        return self._decoded(path, _record)

    def _state_at(self, path: str) -> StateValue | None:
        return self._decoded(path, _state)

    def _decoded(self, path: str, decode: Callable[[bytes], T]) -> T | None:
        """None for a file that is gone, or cannot be read."""
        try:
            content = read(path)
        except FileNotFoundError:
            return None
        try:
            return decode(content)
        except msgspec.MsgspecError as error:
            self._set_aside(path, content, error)
            return None

    def _read_state(self, path: str) -> str | None:
        kept = self._state_at(path)
        return None if kept is None else kept.value

    def _set_aside(self, path: str, content: bytes, error: Exception) -> None:
        """Torn files go to the quarantine. One that is whole but not understood is a newer Sexton's, and stays."""
        try:
            msgspec.json.decode(content)
        except msgspec.MsgspecError:
            self._files.quarantine(path, error)
            return
        with self._lock:
            first = path not in self._foreign
            self._foreign.add(path)
        if first:
            log.error("%s cannot be understood and was left out (%s)", path, error)


def _first(records: Iterator[RunRecord], limit: int) -> list[RunRecord]:
    """Each run once: of two that follow each other with one id, what was recorded comes first and counts."""
    found: list[RunRecord] = []
    for record in records:
        if len(found) >= max(limit, 0):
            break
        if not found or found[-1].launch.id != record.launch.id:
            found.append(record)
    return found

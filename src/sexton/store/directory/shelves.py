"""What recorded runs there are, by job, in memory: kept fresh by looking at the folders, which other nodes fill too.

File names say all that puts a history in order and counts it, so a folder is listed and none of its files is read.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import islice
from typing import Final

from sexton.model.run import Outcome, RunRecord
from sexton.store.directory.files import Files, names
from sexton.store.directory.names import Entry, decoded, encoded, entry_of

UNSETTLED_SECONDS: Final = 3.0
"""A folder may change once more within the grain of its modification time (2 s on some file systems) and look as
before: for so long after a change was seen, it is listed again at each look."""


class Shelf:
    """The recorded runs of one job as they were at one look. Never changed."""

    __slots__ = ("_by_id", "by_end", "ids", "totals")

    def __init__(self, entries: dict[str, Entry]) -> None:
        """By file name. Of two files for one run the one recorded later counts: the other is about to go."""
        by_id: dict[str, Entry] = {}
        for entry in entries.values():
            other = by_id.get(entry.id)
            if other is None or other.seq < entry.seq:
                by_id[entry.id] = entry
        self._by_id = by_id
        self.by_end: list[Entry] = sorted(by_id.values(), key=lambda entry: entry[:3])
        self.ids: list[str] = sorted(by_id)
        counted = Counter(entry.outcome for entry in by_id.values() if entry.outcome is not None)
        self.totals: dict[Outcome, int] = dict(counted)

    def __len__(self) -> int:
        return len(self.by_end)

    def get(self, run_id: str) -> Entry | None:
        return self._by_id.get(run_id)

    def newest(self, limit: int) -> list[Entry]:
        """Oldest first."""
        return self.by_end[max(len(self.by_end) - max(limit, 0), 0):]

    def all_but_newest(self, keep: int) -> list[Entry]:
        """Newest first."""
        return self.by_end[: max(len(self.by_end) - max(keep, 0), 0)][::-1]

    def next_seq(self) -> int:
        return 1 + max((entry.seq for entry in self.by_end), default=0)

    def newest_first_by_id(self, before: str | None) -> Iterator[Entry]:
        end = len(self.ids) if before is None else bisect_left(self.ids, before)
        return (self._by_id[self.ids[n]] for n in range(end - 1, -1, -1))


class _Watched:
    """A folder and when it was looked at."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: dict[str, Entry] = {}
        self.shelf = Shelf({})
        self.stamp: tuple[int, int] | None = None
        self.stamp_seen = 0.0
        self.listed = 0.0


class Shelves:
    """For any of the store's threads. Raises OSError."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._folders: dict[str, _Watched] = {}
        self._jobs: dict[str, str] = {}
        """Names of jobs whose folders do not tell them."""

    def folders(self) -> list[str]:
        present = names(self._files.path("runs"))
        with self._lock:
            for gone in self._folders.keys() - set(present):
                del self._folders[gone]
        return present

    def of(self, job: str) -> Shelf:
        return self.at(encoded(job))

    def at(self, folder: str) -> Shelf:
        """As the folder is now."""
        with self._lock:
            watched = self._folders.setdefault(folder, _Watched())
        with watched.lock:
            self._refresh(watched, self._files.path("runs", folder))
            return watched.shelf

    def folder_of(self, run_id: str) -> str | None:
        """Where the run was when its folder was last looked at; None when it was nowhere."""
        with self._lock:
            folders = list(self._folders.items())
        return next((folder for folder, watched in folders if watched.shelf.get(run_id) is not None), None)

    def newest_first(self, job: str | None, before: str | None) -> Iterator[tuple[str, Entry]]:
        """Of one job or of all, by id."""
        folders = self.folders() if job is None else [encoded(job)]
        rows = [_tagged(folder, self.at(folder).newest_first_by_id(before)) for folder in folders]
        return merge(*rows, key=lambda row: row[1].id, reverse=True)

    def job_of(self, folder: str, read: Callable[[str, Entry], RunRecord | None]) -> str | None:
        """None when no record can be read that would tell it."""
        if (name := decoded(folder)) is not None:
            return name
        with self._lock:
            known = self._jobs.get(folder)
        if known is None:
            records = (read(folder, entry) for entry in reversed(self.at(folder).by_end))
            known = next((record.launch.job for record in islice(records, 20) if record is not None), None)
            if known is not None:
                with self._lock:
                    self._jobs[folder] = known
        return known

    def _refresh(self, watched: _Watched, path: str) -> None:
        now = time.monotonic()
        try:
            found = os.stat(path)
        except FileNotFoundError:
            watched.entries, watched.shelf, watched.stamp = {}, Shelf({}), None
            return
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp != watched.stamp:
            watched.stamp, watched.stamp_seen = stamp, now
        elif watched.listed > watched.stamp_seen + UNSETTLED_SECONDS:
            return
        before = watched.entries
        present = names(path)
        watched.listed = now
        if len(present) == len(before) and all(name in before for name in present):
            return
        entries = {name: entry for name in present if (entry := before.get(name) or entry_of(name)) is not None}
        watched.entries, watched.shelf = entries, Shelf(entries)


def _tagged(folder: str, entries: Iterator[Entry]) -> Iterator[tuple[str, Entry]]:
    return ((folder, entry) for entry in entries)

"""The whole output of a run in one file: size-capped (the beginning and the end), written off the event loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sexton.execution.birth.outfile import OutFile, tails_of
from sexton.execution.writer import WriterThread

logger = logging.getLogger("sexton.output")

HIGH_WATER = 4 * 1024 * 1024
"""Bytes that may wait for the disk before the run's pipes are left unread (the run then waits, not the daemon)."""

ABSENT = (FileNotFoundError, NotADirectoryError)


def log_name(run_id: str) -> str:
    """Where the output of a run lies below the output directory; ids of one quarter of a day share a folder."""
    return f"{run_id[:6]}/{run_id}.log"


class RunLog:
    """One run's file. `write` and `finish` return at once; the thread does the work, in order."""

    def __init__(self, directory: Path, run_id: str, cap: int, thread: WriterThread) -> None:
        self.name = log_name(run_id)
        self._file = OutFile(str(directory / self.name), cap)
        self._thread = thread
        self._failed = False
        self._lost = 0
        self.waiting = 0
        self.touched = False

    @property
    def dropped(self) -> int:
        """Bytes that the cap or a failing disk kept out."""
        return self._lost + self._file.dropped

    def write(self, data: bytes) -> None:
        self.touched = True
        self.waiting += len(data)
        self._thread.put(lambda: self._write(data))

    @property
    def full(self) -> bool:
        return self.waiting > HIGH_WATER

    def _write(self, data: bytes) -> None:
        size = len(data)
        try:
            self._file.store(data)
        except OSError as failure:
            self._lost += size
            if not self._failed:
                self._failed = True
                logger.error("%s: cannot write the run's output: %s; it goes on without", self.name, failure)
        finally:
            self.waiting -= size

    def finish(self, done: Callable[[], None]) -> None:
        """Put the parts together; `done` is called on the thread when the file is whole."""
        self._thread.put(lambda: self._finish(done))

    def _finish(self, done: Callable[[], None]) -> None:
        try:
            self._file.finish(self.dropped)
        except OSError as failure:
            logger.error("%s: cannot finish the run's output file: %s", self.name, failure)
        finally:
            done()


class OutputFiles:
    """The output directory of a store: opens run logs, finds and deletes them."""

    def __init__(self, directory: Path, cap: int) -> None:
        self.directory = directory
        self._earlier: list[Path] = []
        self._cap = cap
        self._thread = WriterThread("output")

    def move(self, directory: Path, cap: int) -> None:
        """Runs that start from now on have their output there; that of earlier ones is found where it is."""
        if directory != self.directory:
            self._earlier = [self.directory, *(path for path in self._earlier if path != directory)]
        self.directory, self._cap = directory, cap

    def start(self, run_id: str) -> RunLog:
        return RunLog(self.directory, run_id, self._cap, self._thread)

    def path(self, run_id: str) -> Path:
        """Where it is, or would be."""
        places = [directory / log_name(run_id) for directory in (self.directory, *self._earlier)]
        return next((path for path in places if path.exists()), places[0])

    def parts(self, run_id: str) -> list[Path]:
        """The files that hold the output, in order; more than one while the run lives or after a crash."""
        path = self.path(run_id)
        written: list[tuple[int, Path]] = []
        for tail in tails_of(str(path)):
            with suppress(*ABSENT):
                written.append((os.stat(tail).st_mtime_ns, Path(tail)))
        return [part for part in (path, *(tail for _, tail in sorted(written))) if part.exists()]

    def folders(self) -> list[str]:
        """Newest first. Blocking, as `quiet`; raises OSError."""
        try:
            return sorted(os.listdir(self.directory), reverse=True)
        except FileNotFoundError:
            return []

    def quiet(self, folder: str, since: float) -> list[str]:
        """The runs with output in a folder to which nothing was written since then (`time.time()`), newest first. Files
        that are not the output of a run are none."""
        written: dict[str, float] = {}
        with os.scandir(self.directory / folder) as entries:
            for entry in entries:
                run_id = entry.name.partition(".")[0]
                if entry.name.startswith(f"{run_id}.log") and log_name(run_id) == f"{folder}/{run_id}.log":
                    written[run_id] = max(written.get(run_id, 0.0), entry.stat().st_mtime)
        return sorted((run_id for run_id, at in written.items() if at < since), reverse=True)

    def forget(self, run_ids: list[str]) -> None:
        """Delete the output of runs that the ledger has forgotten."""

        def delete() -> None:
            for run_id in run_ids:  # by their names: a folder may have very many files of others
                path = str(self.path(run_id))
                for part in (path, *tails_of(path)):
                    with suppress(*ABSENT):
                        os.unlink(part)
                with suppress(OSError):  # others live there
                    os.rmdir(os.path.dirname(path))

        if run_ids:
            self._thread.put(delete)

    def close(self) -> None:
        if not self._thread.close(10.0):
            logger.error("output is still being written after 10 seconds; the rest is lost")

"""The whole output of a run in one file: size-capped (the beginning and the end), written off the event loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from sexton.execution.writer import WriterThread

logger = logging.getLogger("sexton.output")

HIGH_WATER = 4 * 1024 * 1024
"""Bytes that may wait for the disk before the run's pipes are left unread (the run then waits, not the daemon)."""


def log_name(run_id: str) -> str:
    """Where the output of a run lies below the output directory; ids of one quarter of a day share a folder."""
    return f"{run_id[:6]}/{run_id}.log"


class RunLog:
    """One run's file. `write` and `finish` return at once; the thread does the work, in order."""

    def __init__(self, directory: Path, run_id: str, cap: int, thread: WriterThread) -> None:
        self.name = log_name(run_id)
        self._path = directory / self.name
        self._half = max(cap // 2, 4096)
        self._thread = thread
        self._head: int | None = None
        self._written = 0
        self._tails: list[tuple[Path, int]] = []  # finished and current tail segment: file, bytes
        self._tail: int | None = None
        self._failed = False
        self.waiting = 0
        self.dropped = 0
        self.touched = False

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
            self._store(data)
        except OSError as failure:
            self.dropped += size
            if not self._failed:
                self._failed = True
                logger.error("%s: cannot write the run's output: %s; it goes on without", self._path.name, failure)
        finally:
            self.waiting -= size

    def _store(self, data: bytes) -> None:
        if self._head is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._head = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        room = self._half - self._written
        if room > 0:
            first = data[:room] if len(data) > room else data
            self._written += _write_all(self._head, first)
            data = data[len(first):]
        if data:
            self._store_tail(data)

    def _store_tail(self, data: bytes) -> None:
        """Beyond the first half three segments take turns: the last third of the cap, at least, is always there."""
        segment = self._half // 3
        while data:
            if self._tail is None or self._tails[-1][1] >= segment:
                self._next_tail()
            assert self._tail is not None
            path, size = self._tails[-1]
            part = data[: segment - size]
            self._tails[-1] = (path, size + _write_all(self._tail, part))
            data = data[len(part):]

    def _next_tail(self) -> None:
        if self._tail is not None:
            os.close(self._tail)
            self._tail = None
        if len(self._tails) == 3:
            old, size = self._tails.pop(0)
            old.unlink(missing_ok=True)
            self.dropped += size
        free = {0, 1, 2} - {int(path.suffix[1:]) for path, _ in self._tails}
        path = Path(f"{self._path}.{min(free)}")
        self._tail = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._tails.append((path, 0))

    def finish(self, done: Callable[[], None]) -> None:
        """Put the parts together; `done` is called on the thread when the file is whole."""
        self._thread.put(lambda: self._finish(done))

    def _finish(self, done: Callable[[], None]) -> None:
        try:
            if self._tail is not None:
                os.close(self._tail)
            if self._head is not None:
                if self.dropped:
                    _write_all(self._head, b"\n[.... %d bytes dropped here: maxOutputBytes ....]\n" % self.dropped)
                for path, _ in self._tails:
                    _append(self._head, path)
                    path.unlink(missing_ok=True)
        except OSError as failure:
            logger.error("%s: cannot finish the run's output file: %s", self._path.name, failure)
        finally:
            if self._head is not None:
                os.close(self._head)
            done()


def _write_all(fd: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]
    return len(data)


def _append(fd: int, path: Path) -> None:
    with path.open("rb") as part:
        while chunk := part.read(1 << 20):
            _write_all(fd, chunk)


class OutputFiles:
    """The output directory of a store: opens run logs, finds and deletes them."""

    def __init__(self, directory: Path, cap: int) -> None:
        self.directory = directory
        self._cap = cap
        self._thread = WriterThread("output")

    def start(self, run_id: str) -> RunLog:
        return RunLog(self.directory, run_id, self._cap, self._thread)

    def path(self, run_id: str) -> Path:
        return self.directory / log_name(run_id)

    def parts(self, run_id: str) -> list[Path]:
        """The files that hold the output, in order; more than one while the run lives or after a crash."""
        path = self.path(run_id)
        tails = sorted(path.parent.glob(f"{path.name}.?"), key=lambda part: part.stat().st_mtime_ns)
        return [part for part in (path, *tails) if part.exists()]

    def forget(self, run_ids: list[str]) -> None:
        """Delete the output of runs that the ledger has forgotten."""

        def delete() -> None:
            for run_id in run_ids:
                for part in self.parts(run_id):
                    part.unlink(missing_ok=True)
                try:
                    self.path(run_id).parent.rmdir()
                except OSError:
                    pass  # others live there

        if run_ids:
            self._thread.put(delete)

    def close(self) -> None:
        if not self._thread.close(10.0):
            logger.error("output is still being written after 10 seconds; the rest is lost")

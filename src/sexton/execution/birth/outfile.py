"""The file of one run's output: the beginning and the end of it, within a cap. Blocking; used by the daemon's writer
thread and, for runs that outlive the daemon, by their supervisors.
"""

from __future__ import annotations

import os

SEGMENTS = 3
LEAST_HALF = 4096
COPY_BYTES = 1 << 20


def tails_of(path: str) -> list[str]:
    """The files that the end of the output may be in, while it is written and after a crash."""
    return [f"{path}.{number}" for number in range(SEGMENTS)]


class OutFile:
    """Half of `cap` bytes is for the beginning; of what follows, at least the last third of the cap stays."""

    def __init__(self, path: str, cap: int) -> None:
        self.path = path
        self.dropped = 0
        """Bytes from the middle that the cap kept out."""
        self._half = max(cap // 2, LEAST_HALF)
        self._head = self._tail = -1
        self._written = 0
        self._tails: list[tuple[str, int]] = []  # finished and current tail segment: file, bytes

    def store(self, data: bytes) -> None:
        """Raises OSError; what was not written then is lost."""
        if self._head < 0:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            self._head = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        room = self._half - self._written
        if room > 0:
            first = data[:room] if len(data) > room else data
            self._written += _write_all(self._head, first)
            data = data[len(first):]
        if data:
            self._store_tail(data)

    def _store_tail(self, data: bytes) -> None:
        """Beyond the first half three segments take turns: the last third of the cap, at least, is always there."""
        segment = self._half // SEGMENTS
        while data:
            if self._tail < 0 or self._tails[-1][1] >= segment:
                self._next_tail()
            path, size = self._tails[-1]
            part = data[: segment - size]
            self._tails[-1] = (path, size + _write_all(self._tail, part))
            data = data[len(part):]

    def _next_tail(self) -> None:
        if self._tail >= 0:
            os.close(self._tail)
            self._tail = -1
        if len(self._tails) == SEGMENTS:
            old, size = self._tails.pop(0)
            _unlink(old)
            self.dropped += size
        taken = {path for path, _ in self._tails}
        path = next(path for path in tails_of(self.path) if path not in taken)
        self._tail = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._tails.append((path, 0))

    def finish(self, dropped: int) -> None:
        """Put the parts together, with a mark where `dropped` bytes are missing. Raises OSError."""
        try:
            if self._tail >= 0:
                os.close(self._tail)
            if self._head >= 0:
                if dropped:
                    _write_all(self._head, b"\n[.... %d bytes dropped here: maxOutputBytes ....]\n" % dropped)
                for path, _ in self._tails:
                    _append(self._head, path)
                    _unlink(path)
        finally:
            if self._head >= 0:
                os.close(self._head)
            self._head = self._tail = -1


def _write_all(fd: int, data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]
    return len(data)


def _append(fd: int, path: str) -> None:
    part = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while chunk := os.read(part, COPY_BYTES):
            _write_all(fd, chunk)
    finally:
        os.close(part)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

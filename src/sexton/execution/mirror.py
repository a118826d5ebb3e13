"""Captured output repeated on the daemon's own standard output, each line behind the job's prefix."""

from __future__ import annotations

import logging
import os
import select
import time
from collections import deque

from sexton.execution.writer import WriterThread

logger = logging.getLogger("sexton.output")

HIGH_WATER = 2 * 1024 * 1024
"""Bytes that may wait for the reader of our standard output before runs are made to wait for it, too."""
STALLED_SECONDS = 2.0
"""A reader that takes nothing for so long is stalled: lines for it are dropped (and counted), and no run waits."""
STALL_POLL_MS = 500


class Mirror:
    """Never blocks and never grows. A slow reader slows down the runs that write much; a stalled one loses lines."""

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self._nowhere = _is_null_device(fd)
        self._thread = WriterThread("mirror")
        self._waiting = 0
        self._pieces: deque[tuple[bytes, bytes]] = deque()
        self._scheduled = False
        self._closed = False
        self.dropped_bytes = 0
        self._told = False
        self._progress = time.monotonic()

    @property
    def stalled(self) -> bool:
        return self._waiting > 0 and time.monotonic() - self._progress > STALLED_SECONDS

    @property
    def full(self) -> bool:
        """Whether whoever reads from a run should hold back for a moment."""
        return self._waiting > HIGH_WATER and not self.stalled

    def write(self, prefix: bytes, lines: bytes) -> None:
        """Queue complete lines; `prefix` goes before each of them."""
        if self._nowhere:
            return
        size = len(lines)
        if self._waiting > HIGH_WATER and self.stalled:
            self.dropped_bytes += size
            if not self._told:
                self._told = True
                logger.warning("standard output is not being read: captured output is no longer repeated there")
            return
        if self._waiting == 0:
            self._progress = time.monotonic()
        self._waiting += size
        self._pieces.append((prefix, lines))
        if not self._scheduled:
            self._scheduled = True
            self._thread.put(self._flush)

    def _flush(self) -> None:
        """On the thread: everything that is queued."""
        while self._pieces:
            prefix, lines = self._pieces.popleft()
            try:
                self._write_all(_prefixed(prefix, lines))
                self._told = False
            except OSError:
                self.dropped_bytes += len(lines)
            self._waiting -= len(lines)
            if not self._pieces:
                self._scheduled = False  # set before the last look: a piece that comes now schedules itself

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view and not self._closed:
            try:
                view = view[os.write(self._fd, view):]
                self._progress = time.monotonic()
            except BlockingIOError:
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll(STALL_POLL_MS)

    def close(self) -> None:
        """Give the queue a second to drain: a reader that stalls must not hold up the end of the daemon."""
        if not self._thread.close(1.0):
            self._closed = True


def _prefixed(prefix: bytes, lines: bytes) -> bytes:
    if not prefix:
        return lines if lines.endswith(b"\n") else lines + b"\n"
    body = lines[:-1] if lines.endswith(b"\n") else lines
    return prefix + body.replace(b"\n", b"\n" + prefix) + b"\n"


def _is_null_device(fd: int) -> bool:
    """What nobody can read need not be formatted."""
    try:
        return os.fstat(fd).st_rdev == os.stat(os.devnull).st_rdev
    except OSError:
        return False

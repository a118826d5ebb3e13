"""Captured output repeated on the daemon's own standard output, each line behind the job's prefix."""

from __future__ import annotations

import logging
import os
import select

from sexton.execution.writer import WriterThread

logger = logging.getLogger("sexton.output")

LIMIT = 8 * 1024 * 1024
"""Bytes that may wait for a reader of our standard output before lines are dropped (and counted)."""
STALL_POLL_MS = 500


class Mirror:
    """Never blocks and never grows: what a stalled reader does not take is dropped and counted in `dropped_bytes`."""

    def __init__(self, fd: int = 1) -> None:
        self._fd = fd
        self._thread = WriterThread("mirror")
        self._waiting = 0
        self._closed = False
        self.dropped_bytes = 0
        self._told = False

    def write(self, prefix: bytes, lines: bytes) -> None:
        """Queue complete lines; `prefix` goes before each of them."""
        size = len(lines)
        if self._waiting + size > LIMIT and self._waiting:
            self.dropped_bytes += size
            if not self._told:
                self._told = True
                logger.warning("standard output is not being read: captured output is no longer repeated there")
            return
        self._waiting += size
        self._thread.put(lambda: self._emit(prefix, lines, size))

    def _emit(self, prefix: bytes, lines: bytes, size: int) -> None:
        try:
            if prefix:
                ended = lines.endswith(b"\n")
                body = lines[:-1] if ended else lines
                lines = prefix + body.replace(b"\n", b"\n" + prefix) + b"\n"
            elif not lines.endswith(b"\n"):
                lines += b"\n"
            view = memoryview(lines)
            while view and not self._closed:
                try:
                    view = view[os.write(self._fd, view):]
                except BlockingIOError:
                    poll = select.poll()
                    poll.register(self._fd, select.POLLOUT)
                    poll.poll(STALL_POLL_MS)
            self._told = False
        except OSError:
            self.dropped_bytes += size
        finally:
            self._waiting -= size

    def close(self) -> None:
        """Give the queue a second to drain: a reader that stalls must not hold up the end of the daemon."""
        if not self._thread.close(1.0):
            self._closed = True

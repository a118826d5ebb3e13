"""The daemon's own log: written by a thread, so that a stalled reader of our output cannot stall the daemon."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from sexton.daemon.loglines import JsonLines, Repeats

QUEUE_LIMIT = 10_000
GATHER_SECONDS, GATHER_MOST = 0.1, 1.0
"""Lines below WARNING wait until no more have come for so long, but never longer than that: writing them while a burst
is under way would hold up its last starts."""
BATCH = 1000
CLOSE_SECONDS = 2.0


def _one_line(message: str) -> str:
    """What people hand us (a reason, a name) may hold line ends and terminal codes: it must not look like lines of
    ours."""
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)  # a codec would be a file to open


class _Dropping(logging.Handler):
    """Hands lines to the thread that writes. Counts what does not fit instead of waiting for a reader that may never
    come. (The handler for queues of the standard library would bring pickle and sockets to every start.)"""

    def __init__(self, lines: SimpleQueue[logging.LogRecord | None]) -> None:
        super().__init__()
        self.lines = lines
        self.urgent = threading.Event()
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._put(self._prepared(record))
        except Exception:  # a line whose arguments do not fit it: said on standard error, as logging does
            self.handleError(record)

    @staticmethod
    def _prepared(record: logging.LogRecord) -> logging.LogRecord:
        record.template, record.arguments = record.msg, record.args
        record.message = _one_line(record.getMessage())
        record.msg, record.args = record.message, None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        return record

    def _put(self, record: logging.LogRecord) -> None:
        if self.lines.qsize() >= QUEUE_LIMIT:
            self.dropped += 1
        else:
            self.lines.put(record)
            if record.levelno >= logging.WARNING:
                self.urgent.set()


class _Stderr(logging.StreamHandler[Any]):
    """Standard error, written once for each batch and not for each line."""

    def __init__(self) -> None:
        super().__init__(open(2, "w", buffering=256 * 1024, errors="backslashreplace", closefd=False))  # noqa: SIM115

    def flush(self) -> None:
        """Left to `flush_batch`."""

    def flush_batch(self) -> None:
        try:
            self.stream.flush()
        except OSError:
            pass  # nobody reads: there is nobody to tell


class _Lines(logging.Formatter):
    """Our own format, with the second written out once and not for each line of it."""

    def __init__(self) -> None:
        super().__init__()
        self._second = -1
        self._text = ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second, self._text = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        milliseconds = int(record.msecs)
        line = f"{self._text},{milliseconds:03d} {record.levelname} {record.name}: {record.getMessage()}"
        return f"{line}\n{record.exc_text}" if record.exc_text else line


class LogThread:
    """Puts a queue between every logger and the handlers of the root logger."""

    def __init__(self, level: str, settings: dict[str, Any] | None) -> None:
        """`settings` is the section `logging`: a dictConfig, or `format` and `level` of lines to stderr; without it
        they are for people and at `level`.

        Raises ValueError when the dictConfig is not acceptable.
        """
        root = logging.getLogger()
        if settings is None or "version" not in settings:
            chosen = settings or {}
            as_json = chosen.get("format") == "json"
            self._plain(root, chosen.get("level") or level, JsonLines(socket.gethostname()) if as_json else _Lines())
        else:
            from logging.config import dictConfig

            try:
                dictConfig({"disable_existing_loggers": False, **settings})
            except (ValueError, TypeError, AttributeError, ImportError) as refused:
                raise ValueError(f"logging: {refused}") from None
        self._handlers = root.handlers[:] or [_Stderr()]
        self._queue: SimpleQueue[logging.LogRecord | None] = SimpleQueue()
        self._repeats = Repeats()
        self._closing = False
        self._front = _Dropping(self._queue)
        root.handlers[:] = [self._front]
        self.mask: Callable[[str], str] = lambda text: text
        """Takes secrets out of each line; asked on the thread that writes."""
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    @staticmethod
    def _plain(root: logging.Logger, level: str, lines: logging.Formatter) -> None:
        handler = _Stderr()
        handler.setFormatter(lines)
        root.handlers[:] = [handler]
        root.setLevel(level)
        # What our format does not show need not be found out for each line (logging howto, "Optimization").
        logging._srcfile = None
        logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False

    @property
    def suppressed(self) -> int:
        """Lines that only repeated others."""
        return self._repeats.suppressed

    @property
    def dropped(self) -> int:
        return self._front.dropped

    def _write(self) -> None:
        while True:
            try:
                record = self._queue.get(timeout=1.0 if self._repeats.waiting else None)
            except Empty:
                self._tell_repeats()
                self._flush()
                continue
            if record is not None and record.levelno < logging.WARNING and not self._closing:
                self._gather()
            self._front.urgent.clear()
            more = self._write_batch(record)
            self._tell_repeats(all_of_them=not more)
            self._flush()
            if not more:
                return

    def _write_batch(self, record: logging.LogRecord | None) -> bool:
        """This line and what is queued behind it, a batch at most. False at the end of all lines."""
        for further in range(BATCH - 1, -1, -1):
            if record is None:
                return False
            if self._repeats.lets_pass(record, time.monotonic()):
                self._hand_out(record)
            if not further or self._queue.empty():  # what is taken from the queue must be written
                break
            record = self._queue.get()
        return True

    def _hand_out(self, record: logging.LogRecord) -> None:
        self._mask(record)
        for handler in self._handlers:
            if record.levelno >= handler.level:
                handler.handle(record)

    def _tell_repeats(self, *, all_of_them: bool = False) -> None:
        if self._repeats.waiting:
            for record in self._repeats.summaries(time.monotonic(), all_of_them=all_of_them):
                self._hand_out(record)

    def _mask(self, record: logging.LogRecord) -> None:
        record.msg = record.message = self.mask(record.message)
        if record.exc_text:
            record.exc_text = self.mask(record.exc_text)

    def _gather(self) -> None:
        """Until it is quiet, somebody has something urgent, or it has been long enough."""
        limit = time.monotonic() + GATHER_MOST
        count = -1
        while count != self._queue.qsize() and time.monotonic() < limit:
            count = self._queue.qsize()
            if self._front.urgent.wait(GATHER_SECONDS):
                return

    def _flush(self) -> None:
        for handler in self._handlers:
            if isinstance(handler, _Stderr):
                handler.flush_batch()

    def hurry(self) -> None:
        """The end is near: write what has been gathered."""
        self._front.urgent.set()

    def close(self) -> bool:
        """Write what is queued, but wait no longer than a stalled reader deserves; False when it stalls."""
        self._closing = True
        self._queue.put(None)
        self.hurry()
        self._thread.join(CLOSE_SECONDS)
        return not self._thread.is_alive()

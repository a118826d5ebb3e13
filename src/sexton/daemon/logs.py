"""The daemon's own log: written by a thread, so that a stalled reader of our output cannot stall the daemon."""

from __future__ import annotations

import logging
import logging.config
import logging.handlers
import queue
import sys
from typing import Any

QUEUE_LIMIT = 10_000
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class _Dropping(logging.handlers.QueueHandler):
    """Counts what does not fit instead of waiting for a reader that may never come."""

    dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        record.message = record.getMessage()
        record.msg, record.args = record.message, None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
            record.exc_info = None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class LogThread:
    """Puts a queue between every logger and the handlers of the root logger."""

    def __init__(self, level: str, settings: dict[str, Any] | None) -> None:
        """`settings` is a dictConfig (section `logging`); without it, lines go to stderr at `level`.

        Raises ValueError when the dictConfig is not acceptable; stderr logging is set up all the same.
        """
        logging.basicConfig(level=level.upper(), format=FORMAT, stream=sys.stderr, force=True)
        failure: Exception | None = None
        if settings is not None:
            try:
                logging.config.dictConfig({"disable_existing_loggers": False, **settings})
            except (ValueError, TypeError, AttributeError, ImportError) as refused:
                failure = refused
        root = logging.getLogger()
        handlers = root.handlers[:]
        logging.getLogger("aiohttp").setLevel(logging.WARNING)
        self._handler = _Dropping(queue.Queue(QUEUE_LIMIT))
        self._listener = logging.handlers.QueueListener(
            self._handler.queue, *handlers, respect_handler_level=True
        )
        root.handlers[:] = [self._handler]
        self._listener.start()
        if failure is not None:
            raise ValueError(f"logging: {failure}")

    @property
    def dropped(self) -> int:
        return self._handler.dropped

    def close(self) -> None:
        """Write what is queued, but wait no longer than a stalled reader deserves."""
        import threading

        stopper = threading.Thread(target=self._listener.stop, daemon=True)
        stopper.start()
        stopper.join(2.0)

"""A thread that writes bytes, so that a slow disk or a stalled pipe is never the event loop's problem."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

logger = logging.getLogger("sexton.output")


class WriterThread:
    """Runs small blocking jobs in order, one thread for all. Jobs must catch what they expect to fail."""

    def __init__(self, name: str) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._ready = threading.Condition()
        self._closed = False
        self._waiting = False
        self._thread: threading.Thread | None = None
        self._name = name

    def put(self, job: Callable[[], None]) -> None:
        self._jobs.append(job)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        elif self._waiting:
            with self._ready:
                self._ready.notify()

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                with self._ready:
                    if self._closed:
                        return
                    self._waiting = True
                    if not self._jobs:
                        self._ready.wait(0.5)
                    self._waiting = False
                continue
            try:
                job()
            except Exception:
                logger.exception("internal error in the %s thread", self._name)

    def close(self, seconds: float) -> bool:
        """Finish what is queued; False when that takes longer than the bound (the thread is a daemon thread)."""
        if self._thread is None:
            return True
        with self._ready:
            self._closed = True
            self._ready.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

"""A thread that writes bytes, so that a slow disk or a stalled pipe is never the event loop's problem."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable

logger = logging.getLogger("sexton.output")
RETRY_SECONDS = 0.5


class WriterThread:
    """Runs small blocking jobs in order, one thread for all. Jobs must catch what they expect to fail."""

    def __init__(self, name: str) -> None:
        self._jobs: deque[Callable[[], None]] = deque()
        self._ready = threading.Condition()
        self._closed = False
        self._waiting = False
        self._trying = False
        self._thread: threading.Thread | None = None
        self._name = name

    def put(self, job: Callable[[], None]) -> None:
        self._jobs.append(job)
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as refused:
                self._without_thread(refused)
                return
            self._thread = thread
        elif self._waiting:
            with self._ready:
                self._ready.notify()

    def _without_thread(self, refused: RuntimeError) -> None:
        """The system has no thread for us now. What is queued is kept, in order, and tried again with the next job or,
        where there is an event loop, in a moment."""
        if self._trying:
            return
        try:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._try_again)
        except RuntimeError:
            return
        self._trying = True
        logger.warning("no thread for the %s: %s; trying again", self._name, refused)

    def _try_again(self) -> None:
        self._trying = False
        if self._thread is None and self._jobs:
            self.put(self._jobs.pop())  # the last one again, at its place

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

"""Threads that wait for the mount, so that nobody else does. What hangs keeps its thread; when all of them hang, the
next question is refused at once instead of waiting too."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from sexton.model.errors import StoreError

ANSWER_SECONDS: Final = 10.0
"""How long anybody waits for the store."""

T = TypeVar("T")
V = TypeVar("V")


class NoAnswer(StoreError):
    """The store hangs. What it was asked for may have been done, or be done yet."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where} did not answer within {ANSWER_SECONDS:g} seconds")


class GivenUp(StoreError):
    """Whoever asked for it has stopped waiting: it must not be done any more."""


class _Call(Generic[T]):
    def __init__(self, work: Callable[[], T], answer: Callable[[T | Exception], None]) -> None:
        self.work = work
        self.answer = answer
        self.given_up = False


_mine = threading.local()


def check_wanted() -> None:
    """For work that has come to the point of no return. Raises GivenUp when nobody waits for it any more."""
    call = getattr(_mine, "call", None)
    if call is not None and call.given_up:
        raise GivenUp("the store answered too late; nothing was done")


class Threads:
    """A few threads with one queue. They never keep the process from ending."""

    def __init__(self, name: str, count: int, where: str) -> None:
        self._where = where
        self._count = count
        self._queue: SimpleQueue[_Call[object] | None] = SimpleQueue()
        self._busy_since: list[float | None] = [None] * count
        self._stopped = False
        for seat in range(count):
            threading.Thread(target=self._work, args=(seat,), name=f"sexton-store-{name}-{seat}", daemon=True).start()

    @property
    def hang(self) -> bool:
        """Every thread waits for an answer that is overdue."""
        now = time.monotonic()
        return all(since is not None and now - since >= ANSWER_SECONDS for since in self._busy_since)

    async def ask(self, work: Callable[[], T]) -> T:
        """Do it in a thread. Raises StoreError, also where the work raises OSError; NoAnswer after ANSWER_SECONDS."""
        if self._stopped:
            raise StoreError("the store is not open")
        if self.hang:
            raise NoAnswer(self._where)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def answer(result: T | Exception) -> None:
            _tell(loop, _settle, future, result)

        call = _Call(work, answer)
        self._queue.put(call)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await future
        except TimeoutError:
            raise NoAnswer(self._where) from None
        finally:
            call.given_up = True

    def all(self, work: Callable[[V], T], items: Sequence[V], progress: Callable[[], None]) -> list[T | Exception]:
        """For a thread of its own kind: do it for each item, side by side, and wait for all."""
        results: list[T | Exception] = [StoreError("the store was closed")] * len(items)
        left = threading.Semaphore(0)

        def put(number: int, result: T | Exception) -> None:
            results[number] = result
            progress()
            left.release()

        for number, item in enumerate(items):
            self._queue.put(_Call(lambda item=item: work(item), lambda result, n=number: put(n, result)))  # type: ignore[misc]
        for _ in items:
            left.acquire()
        return results

    def stop(self) -> None:
        """Threads end when they have done what is queued; those that hang, when the mount lets them."""
        self._stopped = True
        for _ in range(self._count):
            self._queue.put(None)

    def _work(self, seat: int) -> None:
        while (call := self._queue.get()) is not None:
            if call.given_up:
                continue
            self._busy_since[seat] = time.monotonic()
            _mine.call = call
            try:
                result: object = call.work()
            except Exception as error:
                result = explained(error, self._where)
            self._busy_since[seat] = None
            call.answer(result)


def explained(error: Exception, where: str) -> Exception:
    """A StoreError with the reason, for what a file system answers."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, OSError):
        about = f" ({error.filename})" if error.filename else ""
        failure = StoreError(f"{where} cannot be used: {error.strerror or error}{about}")
    else:
        failure = StoreError(f"{where} did not take it: {error}")
    failure.__cause__ = error
    return failure


def _settle(future: asyncio.Future[T], result: T | Exception) -> None:
    if future.done():
        return  # nobody waits any more
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        pass  # the loop is closed: nobody is left to hear of it

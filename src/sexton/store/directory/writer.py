"""The one thread through which all writes to the ledger go: it takes what is queued, has it written side by side, and
answers all at once."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

import msgspec

from sexton.model.errors import StoreError
from sexton.store.batch import Change, Prune
from sexton.store.directory.changes import RunWrite, StateWrite, fold
from sexton.store.directory.files import Files, sync
from sexton.store.directory.names import Entry
from sexton.store.directory.root import Root
from sexton.store.directory.threads import ANSWER_SECONDS, GivenUp, NoAnswer, Threads, explained
from sexton.store.directory.writing import Placed, Writing, clear

log = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 1024
LOOK_SECONDS: Final = 15.0
"""How long it may go unnoticed, while nothing is written, that the store is gone or is back."""
SIDE_BY_SIDE: Final = 8
"""Files being written at a time: most of it is waiting for the disk, which takes several together."""

Answer = list[str] | None


class Pending:
    """A queued change and who waits for it."""

    def __init__(self, change: Change, future: asyncio.Future[Answer] | None) -> None:
        self.change = change
        self.future = future
        self.given_up = False
        self.result: Answer | Exception = None


class _Task(msgspec.Struct, frozen=True):
    write: RunWrite[Pending] | StateWrite[Pending]
    entry: Entry | None

    def wanted(self) -> bool:
        return any(not pending.given_up for pending in self.write.waiting)


class Writer:
    """`submit`, `post` and `stop` are for the event loop's thread only."""

    def __init__(
        self, files: Files, root: Root, writing: Writing, *, max_runs_per_job: int,
        on_pruned: Callable[[Sequence[str]], None] | None,
    ) -> None:
        self._files = files
        self._root = root
        self._writing = writing
        self._max_runs = max_runs_per_job
        self._on_pruned = on_pruned
        self._problem: str | None = None
        self._queue: SimpleQueue[Pending | None] = SimpleQueue()
        self._working_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._crew = Threads("crew", SIDE_BY_SIDE, files.root)
        threading.Thread(target=self._work, name="sexton-store-writer", daemon=True).start()

    @property
    def problem(self) -> str | None:
        """Why nothing can be written now; None while it can. Never waits."""
        return str(NoAnswer(self._files.root)) if self._hangs else self._problem

    @property
    def _hangs(self) -> bool:
        since = self._working_since
        return since is not None and time.monotonic() - since >= ANSWER_SECONDS

    async def submit(self, change: Change) -> Answer:
        """Returns when it is durable. Raises StoreError: at once while nothing moves, else after ANSWER_SECONDS at the
        latest."""
        if self._hangs:
            raise NoAnswer(self._files.root)
        pending = Pending(change, self._loop.create_future())
        assert pending.future is not None
        self._queue.put(pending)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await pending.future
        except TimeoutError:
            pending.given_up = True
            raise NoAnswer(self._files.root) from None

    def post(self, change: Change) -> None:
        """Queue a change that nobody waits for. A failure is logged."""
        self._queue.put(Pending(change, None))

    def abandon(self) -> None:
        """End the threads of a store that was never used."""
        self._queue.put(None)

    async def stop(self, *, within: float) -> None:
        """Write what is queued and end the threads. Raises StoreError when that takes longer than `within` seconds."""
        self._queue.put(None)
        try:
            await asyncio.wait_for(asyncio.shield(self._stopped), within)
        except TimeoutError:
            raise StoreError(f"queued writes were not finished within {within:g} s") from None

    def _work(self) -> None:
        more = True
        while more:
            pending, more = self._take()
            self._working_since = time.monotonic()
            try:
                retired = self._carry_out([one for one in pending if not one.given_up]) if pending else []
            except Exception as error:
                retired = self._fail(pending, error)
            if not pending and more:
                self._look()
            self._working_since = None
            self._tell(self._settle, pending, retired)
        self._crew.stop()
        self._tell(_resolve, self._stopped)

    def _take(self) -> tuple[list[Pending], bool]:
        """All that is queued (waiting for something to be), and whether there will be more. A prune comes last: it must
        not see what was asked for after it."""
        taken: list[Pending] = []
        while len(taken) < MOST_AT_ONCE:
            try:
                one = self._queue.get_nowait() if taken else self._queue.get(timeout=LOOK_SECONDS)
            except Empty:
                break
            if one is None:
                return taken, False
            taken.append(one)
            if isinstance(one.change, Prune):
                break
        return taken, True

    def _carry_out(self, pending: list[Pending]) -> list[str]:
        """Returns the ids that the bound per job retired."""
        self._root.check()
        tasks = self._number(fold((one.change, one) for one in pending if not isinstance(one.change, Prune)))
        failures = [error for error in self._write(tasks) if error is not None]
        for one in pending:
            if isinstance(one.change, Prune):
                failures += self._prune(one, one.change)
        retired = self._retire({task.write.job for task in tasks if isinstance(task.write, RunWrite) and task.entry})
        if failures:
            self._trouble(failures)
        else:
            self._settled()
        return retired

    def _number(self, writes: Sequence[RunWrite[Pending] | StateWrite[Pending]]) -> list[_Task]:
        numbered = []
        for write in writes:
            try:
                entry = self._writing.number(write) if isinstance(write, RunWrite) else None  # type: ignore[arg-type]
                numbered.append(_Task(write, entry))
            except ValueError as error:  # a name that cannot be written
                _answer(write.waiting, explained(error, self._files.root))
        return numbered

    def _write(self, tasks: list[_Task]) -> list[Exception | None]:
        """Each by itself: what is wrong with one does not keep the others from being written."""
        placed = self._crew.all(self._place, tasks, self._progress)
        folders = sorted({one.folder for one in placed if isinstance(one, Placed)})
        synced = dict(zip(folders, self._crew.all(sync, folders, self._progress), strict=True))
        outcome: list[Exception | None] = []
        obsolete: list[str] = []
        for task, result in zip(tasks, placed, strict=True):
            if isinstance(result, Placed):
                sync_result = synced[result.folder]
                error = sync_result if isinstance(sync_result, Exception) else None
                if error is None:
                    obsolete += result.obsolete
            else:
                error = result
            if error is not None:
                _answer(task.write.waiting, error)
            outcome.append(error)
        clear(obsolete)
        return outcome

    def _place(self, task: _Task) -> Placed | None:
        if isinstance(task.write, RunWrite):
            return self._writing.place_run(task.write, task.entry, task.wanted)  # type: ignore[arg-type]
        return self._writing.place_state(task.write, task.wanted)  # type: ignore[arg-type]

    def _prune(self, pending: Pending, prune: Prune) -> list[Exception]:
        try:
            pending.result = self._writing.forget(prune.job, prune.keep)
        except OSError as error:
            pending.result = explained(error, self._files.root)
            return [pending.result]
        return []

    def _retire(self, jobs: set[str]) -> list[str]:
        """A margin makes forgetting rare: many files at once instead of one with each record."""
        if self._max_runs <= 0:
            return []
        gone: list[str] = []
        for job in jobs:
            if self._writing.count(job) > self._max_runs + self._max_runs // 16:
                try:
                    gone += self._writing.forget(job, self._max_runs)
                except OSError as error:
                    log.warning("old records of %s could not be removed: %s", job, error)
        return gone

    def _look(self) -> None:
        """Nothing is to be written: is the store still there, and could it be?"""
        try:
            self._root.check()
            if self._problem is not None:
                self._files.now()
                self._settled()
        except Exception as error:
            self._trouble([explained(error, self._files.root)])

    def _fail(self, pending: list[Pending], error: Exception) -> list[str]:
        """Nothing may end this thread while somebody waits for it."""
        failure = explained(error, self._files.root)
        _answer([one for one in pending if one.result is None], failure)
        self._trouble([failure])
        return []

    def _trouble(self, failures: Sequence[Exception]) -> None:
        grave = [error for error in failures if _concerns_all(error)]
        if grave and self._problem is None:
            log.error("the ledger takes no records: %s", grave[0])
        if grave:
            self._problem = str(grave[0])

    def _settled(self) -> None:
        if self._problem is not None:
            log.warning("the ledger takes records again")
            self._problem = None

    def _progress(self) -> None:
        self._working_since = time.monotonic()

    def _settle(self, pending: Sequence[Pending], retired: Sequence[str]) -> None:
        unheard = [one.result for one in pending if one.future is None and isinstance(one.result, Exception)]
        if unheard:
            log.warning("%d notes on live runs were lost: %s", len(unheard), unheard[0])
        for one in pending:
            if one.future is None or one.future.done():  # done before its time: the waiting task was cancelled
                continue
            if isinstance(one.result, Exception):
                one.future.set_exception(one.result)
            else:
                one.future.set_result(one.result)
        if retired and self._on_pruned is not None:
            self._on_pruned(retired)

    def _tell(self, function: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # the loop is closed: nobody is left to hear of it


def _answer(waiting: Sequence[Pending], error: Exception) -> None:
    for one in waiting:
        one.result = error


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _concerns_all(error: Exception) -> bool:
    """Whether the file system is at fault, and not what was to be written."""
    return not isinstance(error, GivenUp) and isinstance(error.__cause__, OSError | None)



"""The thread that reads: its own connection, so that no question waits for a commit."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TypeVar

import msgspec

from sexton.model.errors import StoreError
from sexton.model.run import Outcome, RunRecord
from sexton.store.port import JobHistory, Operations
from sexton.store.sqlite import statements
from sexton.store.sqlite.fairness import Fairness

log = logging.getLogger(__name__)

T = TypeVar("T")
Values = Mapping[str, str | int | None] | tuple[str, ...]

_record = msgspec.json.Decoder(RunRecord)
_totals = msgspec.json.Decoder(dict[Outcome, int])


class Reader:
    """Answers questions from the ledger. Each question is one statement: it sees one moment of the file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sexton-store-reader")
        self._fairness = Fairness(asyncio.get_running_loop())
        self._done = self._failed = 0
        self._seconds = 0.0

    @property
    def operations(self) -> Operations:
        rounds = self._done + self._failed
        return Operations(done=self._done, failed=self._failed, rounds=rounds, seconds=self._seconds)

    async def unfinished(self) -> list[RunRecord]:
        return await self._ask(lambda db: _lines(_one(db, statements.UNFINISHED, ())[0]))

    async def get(self, run_id: str) -> RunRecord | None:
        rows = await self._ask(lambda db: db.execute(statements.GET_RUN, (run_id,)).fetchall())
        try:
            return _record.decode(rows[0][0]) if rows else None
        except msgspec.MsgspecError as error:
            raise StoreError(f"the record of run {run_id} cannot be read: {error}") from error

    async def known(self, run_ids: Sequence[str]) -> frozenset[str]:
        asked = (msgspec.json.encode(run_ids).decode(),)
        rows = await self._ask(lambda db: db.execute(statements.KNOWN_RUNS, asked).fetchall())
        return frozenset(str(row[0]) for row in rows)

    async def history(self, job: str, limit: int) -> JobHistory:
        return await self._ask(
            lambda db: _history(*_one(db, statements.HISTORY, {"job": job, "limit": max(limit, 0)}))
        )

    async def recent(self, per_job: int) -> dict[str, JobHistory]:
        def ask(db: sqlite3.Connection) -> dict[str, JobHistory]:
            rows = db.execute(statements.RECENT, {"limit": max(per_job, 0)}).fetchall()
            return {job: _history(runs, totals) for job, runs, totals in rows}

        return await self._ask(ask)

    async def runs(
        self, *, job: str | None, outcome: Outcome | None, node: str | None, limit: int, before: str | None,
        after: str | None,
    ) -> list[RunRecord]:
        sql = statements.runs(job=job is not None, outcome=outcome, node=node is not None, before=before is not None,
                              after=after is not None)
        values: Values = {
            "job": job,
            "outcome": None if outcome is None else outcome.value,
            "before": before,
            "after": after,
            "node": node,
            "limit": max(limit, 0),
        }
        return await self._ask(lambda db: _lines(_one(db, sql, values)[0]))

    async def get_state(self, job: str, key: str) -> str | None:
        rows = await self._ask(lambda db: db.execute(statements.GET_STATE, (job, key)).fetchall())
        return str(rows[0][0]) if rows else None

    async def states(self, key: str) -> dict[str, str]:
        return dict(await self._ask(lambda db: db.execute(statements.GET_STATES, (key,)).fetchall()))

    def turn_to(self, connection: sqlite3.Connection) -> None:
        """Read from here on from another file. For any thread."""
        before, self._connection = self._connection, connection
        self._thread.submit(before.close)

    async def close(self) -> None:
        """Break off what is being read, and let go of the connection."""
        self._connection.interrupt()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown(wait=False)

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        loop = asyncio.get_running_loop()
        self._fairness.asked()
        began = perf_counter()
        try:
            answer = await loop.run_in_executor(self._thread, question, self._connection)
            self._done += 1
            return answer
        except (sqlite3.Error, UnicodeError) as error:
            self._failed += 1
            raise StoreError(f"the ledger could not be read: {error}") from error
        finally:
            self._seconds += perf_counter() - began
            self._fairness.answered(1)


def _one(
    db: sqlite3.Connection, sql: str, values: Values
) -> tuple[str | None, ...]:
    row: tuple[str | None, ...] = db.execute(sql, values).fetchone()
    return row


def _history(runs: str | None, totals: str | None) -> JobHistory:
    newest_first = _lines(runs)
    return JobHistory(runs=tuple(reversed(newest_first)), totals=_totals.decode(totals or "{}"))


def _lines(text: str | None) -> list[RunRecord]:
    if not text:
        return []
    try:
        return _record.decode_lines(text)
    except msgspec.MsgspecError:
        return _readable(text)


def _readable(text: str) -> list[RunRecord]:
    """The records that can be read: one that cannot must not hide the others."""
    records: list[RunRecord] = []
    for line in text.split("\n"):
        try:
            records.append(_record.decode(line))
        except msgspec.MsgspecError as error:
            log.error("a record in the ledger cannot be read and was left out (%s): %.200s", error, line)
    return records

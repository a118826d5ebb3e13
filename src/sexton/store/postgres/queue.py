"""`Queue` in the database: any number of workers on any number of nodes, whose claims skip what others are at.

A step names itself (`claim`): one that is done again because its connection broke finds what it had claimed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from sexton.model.node import NodeIdentity
from sexton.model.run import RunRecord
from sexton.store.postgres import queue_statements as statements
from sexton.store.postgres.database import LET_GO, Connection, Database, with_patience
from sexton.store.postgres.writer import record_orders
from sexton.store.queue import (
    MOST_AT_ONCE,
    CancelAnswer,
    Cancelling,
    Claim,
    Depth,
    Entry,
    Finish,
    Reaped,
    Step,
    checked,
    lost_with_worker,
    never_started,
)

LOOK_SECONDS = 1.0
"""How long a hint is waited for at most: behind a pooler none comes."""
LISTEN_AGAIN, LISTEN_LATEST = 1.0, 60.0

_entry = msgspec.json.Decoder(Entry).decode
_cancelling = msgspec.json.Decoder(Cancelling).decode
_record = msgspec.json.Decoder(RunRecord).decode
_encode = msgspec.json.Encoder().encode
Cursor = Any


class PostgresQueue:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._channel = f"{database.schema}_queue"
        self._arrived = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    async def end(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})

    async def enqueue(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        kept = [checked(entry) for entry in entries]
        values = {
            "ids": [entry.launch.id for entry in kept], "queues": [entry.queue for entry in kept],
            "priorities": [entry.priority for entry in kept], "instants": [entry.available_at for entry in kept],
            "once": [entry.once for entry in kept], "bodies": [_encode(entry).decode() for entry in kept],
            "channel": self._channel,
        }
        await self._database.rows(statements.ENQUEUE, values)

    async def step(
        self, by: NodeIdentity, queues: Sequence[str], want: int, finished: Sequence[Finish] = (),
    ) -> Step:
        name = os.urandom(8).hex()
        wanted = {"queues": list(dict.fromkeys(queues)), "want": max(0, min(want, MOST_AT_ONCE)), "by": by.id,
                  "claim": name}

        async def do(connection: Connection) -> Step:
            async with _transaction(connection) as cursor:
                await self._execute(cursor, statements.SEEN, (by.id,))
                stale = await self._finish(cursor, finished)
                if not wanted["want"]:
                    return Step(stale=stale)
                await self._execute(cursor, statements.PROMOTE)
                rows = (await self._rows(cursor, statements.CLAIMED, (by.id, name))
                        or await self._rows(cursor, statements.CLAIM, wanted))
                rows.sort(key=lambda row: (-row[2], row[3], row[4]))
                return Step(claimed=tuple(Claim(entry=_entry(row[0]), by=by.id, fence=row[1]) for row in rows),
                            stale=stale)

        return await self._database.run(do)

    async def _finish(self, cursor: Cursor, finished: Sequence[Finish]) -> tuple[str, ...]:
        if not finished:
            return ()
        ids = [one.record.launch.id for one in finished]
        gone = {row[0] for row in await self._rows(
            cursor, statements.FINISHED, (ids, [one.by for one in finished], [one.fence for one in finished]))}
        await self._record(cursor, [one.record for one in finished if one.record.launch.id in gone])
        left = {one.record.launch.id: one.record for one in finished if one.record.launch.id not in gone}
        if not left:
            return ()
        # Recorded already: this is done again.
        ended = {run_id: _record(body) for run_id, body in await self._rows(cursor, statements.ENDED, (list(left),))}
        return tuple(run_id for run_id, record in left.items() if ended.get(run_id) != record)

    async def _record(self, cursor: Cursor, records: Sequence[RunRecord]) -> None:
        for text, columns in record_orders(records):
            await cursor.execute(self._database.statement(text), columns)

    async def give_back(self, claims: Sequence[Claim]) -> None:
        values = ([claim.entry.launch.id for claim in claims], [claim.by for claim in claims],
                  [claim.fence for claim in claims], self._channel)

        async def do(connection: Connection) -> None:
            async with _transaction(connection) as cursor:
                rows = await self._rows(cursor, statements.GIVE_BACK, values)
                # What somebody wanted cancelled meanwhile has not begun, and is.
                unwanted = [(run_id, _entry(body), _cancelling(why)) for run_id, body, why in rows if why is not None]
                await self._execute(cursor, statements.DELETE, ([run_id for run_id, _, _ in unwanted],))
                now = datetime.now(UTC)
                await self._record(cursor, [never_started(entry, why, now) for _, entry, why in unwanted])

        await self._database.run(do)

    async def held(self, by: str) -> Sequence[Claim]:
        return [Claim(entry=_entry(body), by=by, fence=fence)
                for body, fence in await self._database.rows(statements.HELD, (by,))]

    async def cancel(self, run_id: str, why: Cancelling) -> CancelAnswer:
        """One statement marks the entry, whoever has it at that moment: row locks make it exact against claims."""

        async def do(connection: Connection) -> CancelAnswer:
            async with _transaction(connection) as cursor:
                rows = await self._rows(cursor, statements.CANCEL, (_encode(why).decode(), run_id))
                if not rows:
                    ended = await self._rows(cursor, statements.ENDED, ([run_id],))
                    mine = [row for row in ended if _is_ours(_record(row[1]), why)]  # this is done again
                    return CancelAnswer.NEVER_STARTED if mine else CancelAnswer.UNKNOWN
                (body, claimed_by), = rows
                if claimed_by is not None:
                    return CancelAnswer.ASKED
                await self._execute(cursor, statements.DELETE, ([run_id],))
                await self._record(cursor, [never_started(_entry(body), why, datetime.now(UTC))])
                return CancelAnswer.NEVER_STARTED

        return await self._database.run(do)

    async def alive(self, by: NodeIdentity) -> Mapping[str, Cancelling]:
        rows = await self._database.rows(statements.ALIVE, {"by": by.id})
        return {run_id: _cancelling(why) for run_id, why in rows if run_id is not None}

    async def leave(self, by: str) -> None:
        await self._database.rows(statements.LEAVE, {"by": by})

    async def reap(self, silent_for: float) -> Reaped:
        async def do(connection: Connection) -> Reaped:
            async with _transaction(connection) as cursor:
                workers = [row[0] for row in await self._rows(cursor, statements.SILENT, (silent_for,))]
                if not workers:
                    return Reaped()
                ends = await self._rows(cursor, statements.TAKE_LOST, (workers,))
                now = datetime.now(UTC)
                lost = [lost_with_worker(_entry(body), worker, None if why is None else _cancelling(why), now)
                        for body, worker, why in ends]
                await self._record(cursor, lost)
                again = await self._rows(cursor, statements.TAKE_BACK, (workers, self._channel))
                await self._execute(cursor, statements.FORGET_WORKERS, (workers,))
                return Reaped(again=tuple(row[0] for row in again), lost=tuple(lost))

        return await self._database.run(do)

    async def entry(self, run_id: str) -> Entry | Claim | None:
        rows = await self._database.rows(statements.ONE, (run_id,))
        if not rows:
            return None
        body, worker, fence = rows[0]
        return _entry(body) if worker is None else Claim(entry=_entry(body), by=worker, fence=fence)

    async def depths(self) -> Mapping[str, Depth]:
        return {queue: Depth(waiting=waiting, delayed=delayed, active=active, oldest=oldest)
                for queue, waiting, delayed, active, oldest in await self._database.rows(statements.DEPTHS)}

    async def enqueued(self, queues: Sequence[str], within: float) -> None:
        if self._listening is None:
            listen = lambda: self._database.listen(self._channel, lambda _: self._arrived.set())  # noqa: E731
            self._listening = asyncio.get_running_loop().create_task(
                with_patience(listen, LISTEN_AGAIN, LISTEN_LATEST), name="postgres queue notifications")
        try:
            async with asyncio.timeout(min(within, LOOK_SECONDS)):
                await self._arrived.wait()
        except TimeoutError:
            pass
        self._arrived.clear()

    async def _execute(self, cursor: Cursor, text: str, values: Any = ()) -> None:
        await cursor.execute(self._database.statement(text), values)

    async def _rows(self, cursor: Cursor, text: str, values: Any = ()) -> list[tuple[Any, ...]]:
        await cursor.execute(self._database.statement(text), values)
        rows: list[tuple[Any, ...]] = await cursor.fetchall()
        return rows


@asynccontextmanager
async def _transaction(connection: Connection) -> AsyncIterator[Cursor]:
    async with connection.transaction(), connection.cursor() as cursor:
        await cursor.execute(LET_GO)
        yield cursor


def _is_ours(record: RunRecord, why: Cancelling) -> bool:
    stop = record.stop
    return (record.started_at is None and stop is not None and record.gone is None
            and (stop.reason, stop.requested_by) == (why.reason, why.requested_by))

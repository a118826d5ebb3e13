"""Connections to the database: two small pools, errors in our words, and one more try where a connection was stale.

Nothing here needs a session: no session locks, no prepared statements, no settings. So a pooler in transaction mode may
stand in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from sexton.model.errors import StoreError

T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[Any, ...]]

CONNECT_SECONDS = 5
"""For each host of the URL."""
OPEN_SECONDS = 30.0
"""For the first connection of the pool, right after one could be had: a host of the URL may be down."""
RECONNECT_SECONDS = 5.0
"""How long the pool tries again by itself, pausing twice as long each time. Afterwards the next call begins anew: so a
database that was away for hours is found as soon as one that was away for seconds."""
WAIT_SECONDS = CONNECT_SECONDS + 2.0
"""For a free connection: one host may be silent, and the next one be the primary."""
ANSWER_SECONDS = 10.0
LONGEST_IDENTIFIER = 63
"""Bytes, of PostgreSQL."""
KEEP_ALIVE = {
    "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3,
    "tcp_user_timeout": 5_000,
}  # fmt: skip
"""A connection whose other end is gone without a word is noticed within seconds."""
LET_GO = "SET LOCAL idle_in_transaction_session_timeout = '5s'"
"""First in every transaction of several statements: of a client that was cut off in its midst the server knows nothing
for hours, and its locks would stand in the way of all other nodes. LOCAL: a pooler may give the session to others."""


def schema_of(deployment_id: str) -> str:
    """The schema that a deployment has for itself. Raises StoreError for an id that cannot be part of its name."""
    name = "sexton" if deployment_id == "default" else f"sexton_{deployment_id}"
    if not deployment_id or "\0" in name or len(name.encode()) > LONGEST_IDENTIFIER - len("_signals"):
        raise StoreError(f"deployment id {deployment_id!r} cannot be part of the name of a schema")
    return name


class _Link(psycopg.AsyncConnection[tuple[Any, ...]]):
    @classmethod
    async def connect(  # type: ignore[override]
        cls, conninfo: str = "", *, turns: asyncio.Semaphore | None = None, **kwargs: Any,
    ) -> _Link:
        """What the pool calls; one after the other where there are `turns`."""
        try:
            async with turns or contextlib.nullcontext():
                return await super().connect(conninfo, **kwargs)
        except psycopg.Error as failure:
            # The frames below hold the error, and the error them: with the socket, until garbage is collected. A
            # database that cannot be reached would cost descriptors.
            failure.__traceback__ = None
            raise


class Database:
    """One deployment's schema in the database at `url`. The URL may hold a password and is never told."""

    def __init__(self, url: str, schema: str, *, most: int, name: str) -> None:
        self.url = url
        self.schema = schema
        self._name = sql.Identifier(schema)
        self._run_seq = sql.Literal(f"{sql.Identifier(schema).as_string()}.run_seq")
        self._most = most
        self._composed: dict[str, sql.Composed] = {}
        self._breaking_off: set[asyncio.Future[Any]] = set()
        arguments: dict[str, Any] = {
            "autocommit": True, "prepare_threshold": None, "connect_timeout": CONNECT_SECONDS,
            "application_name": "sexton", **KEEP_ALIVE,
            # A name that cannot be resolved costs a thread of the event loop's pool for as long as the resolver takes,
            # which nothing bounds. Several at once would leave none for the rest of the daemon.
            "turns": asyncio.Semaphore(1),
        }
        self._arguments = arguments
        self._pool: AsyncConnectionPool[_Link] = AsyncConnectionPool(
            url, kwargs=arguments, min_size=1, max_size=most, open=False, timeout=WAIT_SECONDS, name=name,
            reconnect_timeout=RECONNECT_SECONDS, connection_class=_Link,
        )

    def statement(self, text: str) -> sql.Composed:
        """With `{schema}` and `{run_seq}` filled in."""
        composed = self._composed.get(text)
        if composed is None:
            composed = self._composed[text] = sql.SQL(text).format(schema=self._name, run_seq=self._run_seq)
        return composed

    async def open(self) -> None:
        """Raises StoreError when no connection can be had, with the reason: the pool would only say that it waited."""
        shown(self.url)
        _only_where_we_may_write(self.url, self._arguments)
        try:
            async with await _Link.connect(self.url, **self._arguments):
                pass
            await self._pool.open(wait=True, timeout=OPEN_SECONDS)
        except psycopg.Error as failure:
            await self._pool.close()
            raise told(failure) from None

    async def close(self) -> None:
        await self._pool.close(timeout=WAIT_SECONDS)

    async def run(self, work: Callable[[Connection], Awaitable[T]], within: float | None = None) -> T:
        """Do something with a connection; again where it was broken, which a restart of the server leaves behind. So
        `work` must be one that may be done twice. Raises StoreError, also where there is no answer in time (seconds;
        ANSWER_SECONDS by default): then it may have been done or not."""
        within = ANSWER_SECONDS if within is None else within
        asked = asyncio.ensure_future(self._try(work))
        try:
            await asyncio.wait({asked}, timeout=within)
        finally:
            if not asked.done():  # to cancel means to ask the server, which may hang: that is not waited for
                self._breaking_off.add(asked)
                asked.add_done_callback(self._forget)
                asked.cancel()
        if not asked.done():
            raise StoreError(f"the database did not answer within {within:g} seconds")
        return asked.result()

    def _forget(self, asked: asyncio.Future[Any]) -> None:
        self._breaking_off.discard(asked)
        if not asked.cancelled():
            asked.exception()  # nobody waits for it

    async def _try(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        left = self._most + 1  # of the connections each may be broken
        while True:
            try:
                async with self._pool.connection() as connection:
                    try:
                        return await work(connection)
                    except psycopg.errors.ReadOnlySqlTransaction:
                        await connection.close()  # it has become a standby: the primary is elsewhere by now
                        raise
            except (
                psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.ReadOnlySqlTransaction,
            ) as failure:
                left -= 1
                if left <= 0 or isinstance(failure, PoolTimeout):
                    raise told(failure) from failure
            except psycopg.Error as failure:
                raise told(failure) from failure

    async def rows(self, text: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """What a statement returns. Raises StoreError."""
        statement = self.statement(text)

        async def ask(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(statement, values)
            return await cursor.fetchall() if cursor.description is not None else []

        return await self.run(ask)

    async def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        """For as long as the connection lasts: call with each payload. A connection of its own. Raises StoreError."""
        try:
            async with await _Link.connect(self.url, **{**self._arguments, "turns": None}) as connection:
                await connection.execute(sql.SQL("LISTEN {channel}").format(channel=sql.Identifier(channel)))
                async for notice in connection.notifies():
                    heard(notice.payload)
        except psycopg.Error as failure:
            raise told(failure) from failure


def shown(url: str) -> str:
    """The database without its password, to be told. Raises StoreError for what is no connection string."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        raise StoreError("what should be the URL of a database cannot be read as one") from None
    host, port, name = (parts.get(part) for part in ("host", "port", "dbname"))
    if any(not piece.isdigit() for piece in str(port or "5432").split(",")):
        # A password with a `/` or `@` in it that is not escaped makes such ports. It must not be repeated.
        raise StoreError("the URL of the database cannot be read: escape special characters of the password as %XX")
    return f"database {name or '(default)'} at {host or 'the local socket'}{f':{port}' if port else ''}"


def _only_where_we_may_write(url: str, arguments: dict[str, Any]) -> None:
    """Of several hosts the primary is meant, if the URL does not say otherwise; a standby would refuse every write."""
    if "target_session_attrs" not in conninfo_to_dict(url) and "PGTARGETSESSIONATTRS" not in os.environ:
        arguments["target_session_attrs"] = "read-write"


def told(failure: Exception, done: str = "used") -> StoreError:
    """In a line; libpq's messages name host and user and never the password."""
    text = " ".join(str(failure).split()) or type(failure).__name__
    return StoreError(f"the database could not be {done}: {text}")


async def with_patience(again: Callable[[], Awaitable[None]], shortest: float, longest: float) -> None:
    """For ever: after a failure wait, longer each time."""
    pause = shortest
    while True:
        try:
            await again()
            pause = shortest
        except StoreError:
            pause = min(pause * 2, longest)
        await asyncio.sleep(pause)

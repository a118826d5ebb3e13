"""A deployment's schema for backups and checks: one transaction that only reads, and that sees one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC
from typing import Any

import psycopg
from psycopg import sql

from sexton.model.errors import StoreError
from sexton.store.archive import (
    Counts,
    Fence,
    Fired,
    Item,
    NoStore,
    Recorded,
    Remark,
    StateValue,
    StoreKind,
    Unfinished,
    queued,
    readable,
)
from sexton.store.postgres.database import CONNECT_SECONDS, KEEP_ALIVE, schema_of, told
from sexton.store.postgres.schema import migrations

ROWS_AT_ONCE = 500
QUEUE_SINCE = 2
"""Version of the schema."""
SILENT_SECONDS = 60.0
"""A node whose latest heartbeat is older is gone, or as good as that."""


_COUNTS = """
SELECT (SELECT count(*) FROM {schema}.run WHERE ended_at IS NOT NULL),
       (SELECT count(*) FROM {schema}.run WHERE ended_at IS NULL),
       (SELECT count(*) FROM {schema}.job_state), (SELECT count(*) FROM {schema}.lease),
       (SELECT count(*) FROM {schema}.fire)
"""
_RECORDED = "SELECT id, body FROM {schema}.run WHERE ended_at IS NOT NULL ORDER BY job, ended_at, seq"
_UNFINISHED = "SELECT id, body FROM {schema}.run WHERE ended_at IS NULL ORDER BY id"
_QUEUED = "SELECT id, body FROM {schema}.queue_entry ORDER BY id"
_STATES = "SELECT job, key, value FROM {schema}.job_state ORDER BY key, job"
_FENCES = "SELECT name, fence FROM {schema}.lease ORDER BY name"
_FIRES = "SELECT job, scheduled_for, claimed_by FROM {schema}.fire ORDER BY job, scheduled_for"
_NODES = "SELECT id, extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM {schema}.node"
_UNLISTED = """
SELECT string_agg(job, ', ') FROM (
    SELECT DISTINCT job FROM {schema}.run
    WHERE ended_at IS NOT NULL AND job NOT IN (SELECT name FROM {schema}.job) LIMIT 5
) AS it
"""


class PostgresArchive:
    """Implements `Archive`."""

    kind = StoreKind.POSTGRES
    one_moment = True

    def __init__(self, url: str, deployment_id: str = "default") -> None:
        """Raises StoreError; NoStore where the schema is not there. The URL is never told."""
        self.schema = schema_of(deployment_id)
        self.damaged: list[str] = []
        with _explained():
            self._connection = psycopg.connect(
                url, connect_timeout=CONNECT_SECONDS, application_name="sexton state", prepare_threshold=None,
                **KEEP_ALIVE)  # type: ignore[arg-type]
        try:
            self.schema_version = self._begin()
            with _explained():
                rows = self._connection.execute(self._statement(_NODES)).fetchall()
            self._silent: dict[str, float] = dict(rows)
        except BaseException:
            self._connection.close()
            raise

    def _begin(self) -> int:
        newest = migrations()[-1].version
        self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self._connection.read_only = True
        with _explained():
            found = self._connection.execute("SELECT to_regclass(%s)", (f'"{self.schema}".meta',)).fetchone()
            if found is None or found[0] is None:
                raise NoStore(f"the database has no schema {self.schema} of Sexton")
            version = int(self._one("SELECT coalesce(max(version), 0) FROM {schema}.meta"))
        if version > newest:
            raise StoreError(f"schema {self.schema} is at version {version}, written by a newer Sexton; this one knows "
                             f"versions up to {newest}")
        return version

    def counts(self) -> Counts:
        with _explained():
            row = self._connection.execute(self._statement(_COUNTS)).fetchone()
        assert row is not None
        with _explained():
            waiting = self._one("SELECT count(*) FROM {schema}.queue_entry") if self._has_queue else 0
        return Counts(recorded=row[0], unfinished=row[1], states=row[2], fences=row[3], fires=row[4], waiting=waiting)

    @property
    def _has_queue(self) -> bool:
        return self.schema_version >= QUEUE_SINCE

    def items(self) -> Iterator[Item]:
        if self._has_queue:
            yield from queued(self._rows(_QUEUED), self.damaged)
        yield from (Recorded(record) for record in readable(self._rows(_RECORDED), self.damaged))
        yield from (Unfinished(record) for record in readable(self._rows(_UNFINISHED), self.damaged))
        for job, key, value in self._rows(_STATES):
            yield StateValue(job, key, value)
        for name, fence in self._rows(_FENCES):
            yield Fence(name, fence)
        for job, scheduled_for, by in self._rows(_FIRES):
            yield Fired(job, scheduled_for.astimezone(UTC), by)

    def is_live(self, daemon: str) -> bool | None:
        return self._silent.get(daemon, SILENT_SECONDS) < SILENT_SECONDS

    def examine(self) -> Sequence[Remark]:
        with _explained():
            unlisted = self._one(_UNLISTED)
        remarks = [] if unlisted is None else [
            Remark(damage=True, text=f"jobs with records that are not in the list of jobs: {unlisted}")]
        for node, silent in sorted(self._silent.items()):
            remarks.append(Remark(damage=False, text=f"node {node}: heartbeat {silent:.0f} s ago"))
        return remarks

    def close(self) -> None:
        self._connection.close()

    def _rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """By a cursor of the server: never more than a few rows are here."""
        with _explained(), self._connection.cursor(name="sexton_archive") as cursor:
            cursor.itersize = ROWS_AT_ONCE
            cursor.execute(self._statement(statement))
            yield from cursor

    def _one(self, statement: str) -> Any:
        row = self._connection.execute(self._statement(statement)).fetchone()
        return None if row is None else row[0]

    def _statement(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self.schema))


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as failure:
        raise told(failure, "read") from None

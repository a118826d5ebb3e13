"""The ledger file for backups and checks: a connection of its own that only reads, beside the daemon's."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sexton.model.errors import StoreError
from sexton.store.archive import (
    Counts,
    Fence,
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
from sexton.store.sqlite.directory import LEDGER_FILE, LOCK_FILE, deployment_directory
from sexton.store.sqlite.schema import APPLICATION_ID, BUSY_TIMEOUT, migrations
from sexton.store.sqlite.store import FENCE

ROWS_AT_ONCE = 500
QUEUE_SINCE = 2
"""Version of the schema."""


_COUNTS = """
SELECT (SELECT count(*) FROM run WHERE ended_at IS NOT NULL), (SELECT count(*) FROM run WHERE ended_at IS NULL),
       (SELECT count(*) FROM job_state WHERE key <> ?), (SELECT count(*) FROM job_state WHERE key = ?)
"""
_RECORDED = "SELECT id, body FROM run WHERE ended_at IS NOT NULL ORDER BY job, ended_at, seq"
_UNFINISHED = "SELECT id, body FROM run WHERE ended_at IS NULL ORDER BY id"
_QUEUED = "SELECT id, body FROM queue_entry ORDER BY id"
_STATES = "SELECT job, key, value FROM job_state WHERE key <> ? ORDER BY key, job"
_FENCES = "SELECT job, value FROM job_state WHERE key = ? ORDER BY job"
_MISCOUNTED = """
SELECT group_concat(job, ', ') FROM (
    SELECT job FROM (SELECT job, coalesce(outcome, '') AS outcome, count(*) AS runs FROM run
                     WHERE ended_at IS NOT NULL GROUP BY job, coalesce(outcome, '')) AS counted
    LEFT JOIN run_total USING (job, outcome) WHERE run_total.runs IS NOT counted.runs LIMIT 5
)
"""


class SqliteArchive:
    """Implements `Archive`. All of it is of the moment at which it was opened."""

    kind = StoreKind.SQLITE
    one_moment = True

    def __init__(self, path: str | Path, deployment_id: str = "default") -> None:
        """Raises StoreError; NoStore where there is no ledger."""
        self.directory = deployment_directory(path, deployment_id)
        self.damaged: list[str] = []
        self._ledger = self.directory / LEDGER_FILE
        if not os.path.exists(self._ledger):
            raise NoStore(f"there is no ledger in {self.directory}")
        with self._explained():
            self._connection = _connect(self._ledger)
        try:
            self.schema_version = self._begin()
        except BaseException:
            self._connection.close()
            raise

    def _begin(self) -> int:
        newest = migrations()[-1].version
        with self._explained():
            self._connection.execute("BEGIN")
            application = int(self._one("PRAGMA application_id"))
            version = int(self._one("PRAGMA user_version"))  # a read: from here on the transaction sees one moment
            tables = int(self._one("SELECT count(*) FROM sqlite_schema"))
        if not tables and not version:
            raise NoStore(f"{self._ledger} is empty")
        if application != APPLICATION_ID:
            raise StoreError(f"{self._ledger} is a database of another program")
        if version > newest:
            raise StoreError(f"{self._ledger} has schema {version}, written by a newer Sexton; this one knows schemas "
                             f"up to {newest}")
        return version

    def counts(self) -> Counts:
        with self._explained():
            row = self._connection.execute(_COUNTS, (FENCE, FENCE)).fetchone()
            waiting = self._one("SELECT count(*) FROM queue_entry") if self.schema_version >= QUEUE_SINCE else 0
        return Counts(recorded=row[0], unfinished=row[1], states=row[2], fences=row[3], waiting=waiting)

    def items(self) -> Iterator[Item]:
        if self.schema_version >= QUEUE_SINCE:
            yield from queued(self._rows(_QUEUED), self.damaged)
        yield from (Recorded(record) for record in readable(self._rows(_RECORDED), self.damaged))
        yield from (Unfinished(record) for record in readable(self._rows(_UNFINISHED), self.damaged))
        for job, key, value in self._rows(_STATES, FENCE):
            yield StateValue(job, key, value)
        for name, value in self._rows(_FENCES, FENCE):
            if value.isdigit():
                yield Fence(name, int(value))
            else:
                self.damaged.append(f"the fence of {name}")

    def is_live(self, daemon: str) -> bool | None:
        return holder_of(self.directory) is not None

    def examine(self) -> Sequence[Remark]:
        with self._explained():
            verdict = str(self._one("PRAGMA quick_check(1)"))
            miscounted = self._one(_MISCOUNTED) if verdict == "ok" else None
        remarks = []
        if verdict != "ok":
            remarks.append(Remark(damage=True, text=f"the file is damaged: {verdict}"))
        if miscounted is not None:
            remarks.append(Remark(damage=True, text=f"the totals are not those of the runs there are: {miscounted}"))
        if (pid := holder_of(self.directory)) is not None:
            remarks.append(Remark(damage=False, text=f"a daemon has it open (pid {pid})"))
        return remarks

    def close(self) -> None:
        self._connection.close()

    def _rows(self, statement: str, *values: str) -> Iterator[tuple[Any, ...]]:
        with self._explained():
            cursor = self._connection.execute(statement, values)
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                yield from rows

    def _one(self, statement: str) -> Any:
        return self._connection.execute(statement).fetchone()[0]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            raise StoreError(f"{self._ledger} cannot be read: {error}") from error


def _connect(ledger: Path) -> sqlite3.Connection:
    """That cannot write. A file without a log whose folder we may not write to is read as it is."""
    where = f"file:{quote(str(ledger.absolute()))}?mode=ro"
    connection = sqlite3.connect(where, uri=True, timeout=BUSY_TIMEOUT, isolation_level=None)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if os.path.exists(f"{ledger}-wal"):
            raise
        connection = sqlite3.connect(f"{where}&immutable=1", uri=True, isolation_level=None)
    return connection


def holder_of(directory: Path) -> str | None:
    """The pid, as far as it is known, of the daemon that has the directory."""
    try:
        with keep_off(directory):
            return None
    except StoreError:
        try:
            return (directory / LOCK_FILE).read_text("ascii", "replace").strip() or "unknown"
        except OSError:
            return "unknown"


@contextmanager
def keep_off(directory: Path) -> Iterator[None]:
    """No daemon takes the directory meanwhile, and nothing in it is changed for that. Raises StoreError when one has
    it."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield  # no daemon has ever been here, or it is not ours to say
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise StoreError(f"{directory} is in use by a daemon (pid {pid})") from None
        yield
    finally:
        os.close(descriptor)

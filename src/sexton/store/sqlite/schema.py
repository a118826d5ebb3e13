"""Opening the ledger file: is it ours, is it whole, and is it at our schema?"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

import msgspec

from sexton.model.errors import StoreError

APPLICATION_ID = 0x5358544E
CHECK_WHOLE_FILE_BELOW = 256 * 1024 * 1024
"""Bytes. A larger file is not read from end to end at each start: that would take longer than a start may."""

BUSY_TIMEOUT = 5.0
"""Seconds a statement waits for a lock that some other program (a shell, a backup) holds on the file."""

WAL_PAGES_BEFORE_CHECKPOINT = 4000
"""16 MiB at 4 KiB a page: rarer, larger checkpoints keep their fsyncs out of most commits."""


class Migration(msgspec.Struct, frozen=True):
    """One numbered step of the schema: `version` is the PRAGMA user_version it leads to."""

    version: int
    name: str
    sql: str


def migrations() -> tuple[Migration, ...]:
    """All steps this version of Sexton knows, in order, from the .sql files beside this module."""
    files = resources.files(__package__).joinpath("migrations").iterdir()
    sql = [file for file in files if file.name.endswith(".sql")]
    steps = [Migration(int(file.name[:4]), file.name, file.read_text("utf-8")) for file in sql]
    return tuple(sorted(steps, key=lambda step: step.version))


def open_writer(ledger: Path, steps: Sequence[Migration] | None = None) -> sqlite3.Connection:
    """A connection for the writer thread, to a file that was checked and brought to our schema by `steps` (by default
    those of this Sexton), each in a transaction of its own.

    Raises StoreError for a damaged file, a file of something else, and a schema newer than ours; such a file
    is left exactly as it is. Also for a step that fails: the file is then at the version before it.
    """
    steps = migrations() if steps is None else steps
    with _explained(ledger):
        # Nothing that writes may come before the check.
        with closing(_connect(ledger)) as probe:
            version = _check(probe, ledger, newest=steps[-1].version)
        connection = _connect(ledger)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES_BEFORE_CHECKPOINT}")
            for step in steps:
                if step.version > version:
                    _apply(connection, step)
        except BaseException:
            connection.close()
            raise
        return connection


def open_reader(ledger: Path) -> sqlite3.Connection:
    """A connection that can only read. Raises StoreError."""
    with _explained(ledger):
        connection = _connect(ledger)
        connection.execute("PRAGMA query_only = ON")
        return connection


def _connect(ledger: Path) -> sqlite3.Connection:
    # Each connection is used by one thread at a time, but is made in another.
    return sqlite3.connect(ledger, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)


def _check(probe: sqlite3.Connection, ledger: Path, *, newest: int) -> int:
    """The file's schema version (0: nothing in it yet)."""
    application = int(probe.execute("PRAGMA application_id").fetchone()[0])
    version = int(probe.execute("PRAGMA user_version").fetchone()[0])
    tables = int(probe.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    if application != APPLICATION_ID and (application or version or tables):
        raise StoreError(f"{ledger} is a database of another program; it was left as it is")
    if version > newest:
        raise StoreError(
            f"{ledger} has schema {version}, written by a newer Sexton; this one knows schemas up to {newest}"
        )
    if ledger.stat().st_size < CHECK_WHOLE_FILE_BELOW:
        verdict = probe.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise StoreError(f"{ledger} is damaged ({verdict}); it was left as it is")
    return version


def _apply(connection: sqlite3.Connection, step: Migration) -> None:
    try:
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{step.sql}\nPRAGMA user_version = {step.version};\nCOMMIT;"
        )
    except sqlite3.Error as error:
        if connection.in_transaction:
            connection.rollback()
        raise StoreError(f"migration {step.name} failed: {error}") from error


@contextmanager
def _explained(ledger: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreError(f"{ledger} cannot be used as a ledger: {error}; it was left as it is") from error
    except OSError as error:
        raise StoreError(f"{ledger} cannot be read: {error.strerror or error}") from error

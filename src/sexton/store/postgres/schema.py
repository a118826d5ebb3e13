"""Bringing a database to our schema: numbered files, each applied once, by one node at a time."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Sequence
from importlib import resources

import msgspec
import psycopg

from sexton.model.errors import StoreError
from sexton.store.postgres.database import LET_GO, Connection, Database

log = logging.getLogger(__name__)

MIGRATION_SECONDS = 600.0
"""For all steps, and for waiting until another node has done them: a large table takes its time."""
CREATE_SCHEMA = "CREATE SCHEMA IF NOT EXISTS {schema}"
CREATE_META = "CREATE TABLE IF NOT EXISTS {schema}.meta (version integer NOT NULL)"
IS_OURS = """
SELECT count(*) FILTER (WHERE tablename = 'meta') > 0, count(*),
       EXISTS (SELECT FROM pg_namespace WHERE nspname = %(schema)s)
FROM pg_tables WHERE schemaname = %(schema)s
"""


class Migration(msgspec.Struct, frozen=True):
    """One numbered step: `version` is what the schema is at after it."""

    version: int
    name: str
    sql: str


def migrations() -> tuple[Migration, ...]:
    """All steps that this Sexton knows, in order."""
    files = [file for file in resources.files(__package__).joinpath("migrations").iterdir()
             if file.name.endswith(".sql")]
    steps = [Migration(int(file.name[:4]), file.name, file.read_text("utf-8")) for file in files]
    return tuple(sorted(steps, key=lambda step: step.version))


async def migrate(database: Database, steps: Sequence[Migration] | None = None) -> None:
    """All `steps` (by default those of this Sexton) in one transaction, under a lock that ends with it, so that a
    pooler cannot keep it. Raises StoreError when one fails, and for a schema that is somebody else's or a newer
    Sexton's; it is then left as it was."""
    steps = migrations() if steps is None else steps

    async def apply(connection: Connection) -> None:
        async with connection.transaction():
            await connection.execute(LET_GO)
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (zlib.crc32(database.schema.encode()),))
            version = await _version(connection, database)
            if version > steps[-1].version:
                raise StoreError(f"schema {database.schema} is at version {version}, written by a newer Sexton; this "
                                 f"one knows versions up to {steps[-1].version}")
            if 0 < version < steps[-1].version:
                log.warning("schema %s is brought from version %d to %d; daemons of an older Sexton go on with it, and "
                            "are refused when they are started again", database.schema, version, steps[-1].version)
            for step in steps:
                if step.version > version:
                    await _apply(connection, database, step)
            if version < steps[-1].version:
                await connection.execute(database.statement("DELETE FROM {schema}.meta"))
                await connection.execute(
                    database.statement("INSERT INTO {schema}.meta VALUES (%s)"), (steps[-1].version,))

    await database.run(apply, within=MIGRATION_SECONDS)


async def _apply(connection: Connection, database: Database, step: Migration) -> None:
    try:
        await connection.execute(database.statement(step.sql))
    except (psycopg.OperationalError, psycopg.InterfaceError):
        raise  # the connection, not the step
    except psycopg.Error as failure:
        raise StoreError(f"migration {step.name} of schema {database.schema} failed, and nothing was changed: "
                         f"{' '.join(str(failure).split())}") from failure


async def _version(connection: Connection, database: Database) -> int:
    """0 for a schema that is not there yet."""
    cursor = await connection.execute(IS_OURS, {"schema": database.schema})
    found = await cursor.fetchone()
    ours, tables, made = found if found is not None else (False, 0, False)
    if tables and not ours:
        raise StoreError(f"schema {database.schema} of the database holds tables that are not Sexton's")
    if not ours:
        try:
            if not made:  # IF NOT EXISTS, too, asks for the right to create one
                await connection.execute(database.statement(CREATE_SCHEMA))
        except psycopg.errors.InsufficientPrivilege:
            raise StoreError(
                f"the database user may not create schema {database.schema}; create it for that user: "
                f"CREATE SCHEMA {database.schema} AUTHORIZATION ...") from None
        await connection.execute(database.statement(CREATE_META))
        return 0
    cursor = await connection.execute(database.statement("SELECT max(version) FROM {schema}.meta"))
    row = await cursor.fetchone()
    return int(row[0] or 0) if row is not None else 0

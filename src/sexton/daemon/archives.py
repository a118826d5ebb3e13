"""The store that a configuration means, for whoever reads all of it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, cast

from sexton.daemon.stores import make_store
from sexton.model.errors import StoreError
from sexton.model.settings import StateSettings
from sexton.store.archive import Archive
from sexton.store.mounts import is_shared

if TYPE_CHECKING:
    from sexton.store.transfer import Target

NO_DRIVER = "PostgreSQL needs the package psycopg: install sexton[postgres]"


def open_archive(state: StateSettings) -> Archive:
    """Raises StoreError; NoStore where there is none yet. Blocking."""
    if state.url is not None:
        try:
            from sexton.store.postgres.archive import PostgresArchive
        except ImportError:
            raise StoreError(NO_DRIVER) from None
        shown_store(state)  # refuses what must not come to libpq, which would repeat it
        return PostgresArchive(state.url, state.deployment_id)
    assert state.path is not None
    if is_shared(state):
        from sexton.store.directory.archive import DirectoryArchive

        return DirectoryArchive(state.path, state.deployment_id)
    from sexton.store.sqlite.archive import SqliteArchive

    return SqliteArchive(state.path, state.deployment_id)


def make_target(state: StateSettings) -> Target:
    """The store, not opened yet, that takes contents of another one. It forgets nothing: the daemon will."""
    from msgspec.structs import replace

    try:
        return cast("Target", make_store(replace(state, max_runs_per_job=0), lambda gone: None))
    except ImportError:
        raise StoreError(NO_DRIVER) from None


def shown_store(state: StateSettings) -> str:
    """What the store is and where, without a password. Raises StoreError for a URL that cannot be understood."""
    if state.url is not None:
        try:
            from sexton.store.postgres.database import shown
        except ImportError:
            raise StoreError(NO_DRIVER) from None
        return f"PostgreSQL, {shown(state.url)}, deployment {state.deployment_id}"
    kind = "shared directory" if is_shared(state) else "SQLite"
    return f"{kind} in {state.path}, deployment {state.deployment_id}"


def without_daemon(state: StateSettings) -> AbstractContextManager[None]:
    """While this lasts no daemon takes a store of one node. Raises StoreError when one has it; shared stores are never
    closed to anybody."""
    if is_shared(state):
        return nullcontext()
    from sexton.store.sqlite.archive import keep_off
    from sexton.store.sqlite.directory import deployment_directory

    assert state.path is not None
    return keep_off(deployment_directory(state.path, state.deployment_id))

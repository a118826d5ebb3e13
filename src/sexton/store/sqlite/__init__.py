"""The embedded store for one machine: a SQLite file with one writer thread and group commit."""

from sexton.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]

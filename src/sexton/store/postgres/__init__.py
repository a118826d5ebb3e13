"""Records and coordination of any number of nodes in a PostgreSQL database."""

from sexton.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]

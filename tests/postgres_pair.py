"""Two PostgreSQL servers, one of which follows the other."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

from postgres_server import START_SECONDS, PostgresServer


class Pair:
    """A primary and a standby that follows it."""

    def __init__(self, programs: Path) -> None:
        self._deaf: list[int] = []
        self.primary = PostgresServer(programs)
        self.primary.start()
        self.standby = PostgresServer(programs, copy_of=self.primary)
        self.standby.start()
        self._until(lambda: self._walsenders() != [], "replication")

    @property
    def url(self) -> str:
        return f"postgresql://sexton@127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}/postgres"

    def be_synchronous(self) -> None:
        """From now on nothing is acknowledged that the standby does not show."""
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("ALTER SYSTEM SET synchronous_commit = 'remote_apply'")
            connection.execute("SELECT pg_reload_conf()")
        self._until(lambda: "sync" in self._walsenders("sync_state"), "synchronous replication")

    def _walsenders(self, column: str = "pid") -> list[object]:
        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            return [row[0] for row in connection.execute(f"SELECT {column} FROM pg_stat_replication").fetchall()]

    def stop_replication(self) -> None:
        """What is committed from now on is acknowledged, and the standby will never hear of it."""
        self._deaf = [int(str(pid)) for pid in self._walsenders()]
        for pid in self._deaf:
            os.kill(pid, signal.SIGSTOP)

    @staticmethod
    def _until(look: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + START_SECONDS
        while not look():
            assert time.monotonic() < end, what
            time.sleep(0.02)

    def fail_over(self) -> None:
        """SIGKILL of the primary, and the standby takes its place."""
        assert self.primary.pid is not None
        os.kill(self.primary.pid, signal.SIGKILL)
        for pid in self._deaf:
            os.kill(pid, signal.SIGKILL)
        self.primary.pid = None
        self.standby.promote()

    def end(self) -> None:
        self.standby.end()
        self.primary.end()

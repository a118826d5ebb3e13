"""A database behind PgBouncer in transaction mode."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from nodes_kit import TTL, nodes_on, start_until
from rig import free_port, until

KILLS = int(os.environ.get("SEXTON_POOLER_KILLS", "3"))


@pytest.fixture
def pooler(tmp_path: Path, database: str) -> Iterator[str]:
    """The URL of the database through a pooler with three connections, each given away after every transaction."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("there is no pgbouncer here")
    port, server = free_port(), psycopg.conninfo.conninfo_to_dict(database)
    folder = tmp_path / "pooler"
    folder.mkdir()
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host=127.0.0.1 port={server['port']}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n"
        "unix_socket_dir =\nmax_client_conn = 100\n" + "[databases]\n" +
        f"{server['dbname']} = host=127.0.0.1 port={server['port']} user=sexton\n")
    for parent in (folder, *folder.parents[:4]):
        if parent.owner() == "root" and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)
    user = "nobody" if os.geteuid() == 0 else None
    log = (folder / "log").open("wb")
    process = subprocess.Popen([program, folder / "pgbouncer.ini"], user=user, stdout=log, stderr=log)
    try:
        url = f"postgresql://sexton@127.0.0.1:{port}/{server['dbname']}"
        until(lambda: _answers(url), 10, f"the pooler: {(folder / 'log').read_text()}")
        yield url
    finally:
        process.terminate()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        with psycopg.connect(url, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return False


def test_55_a_pooler_in_between(tmp_path: Path, pooler: str, database: str) -> None:
    """55: Two nodes behind a pooler in transaction mode, one of them killed again and again while it works: the other
    always gets the slot, no lock is left without an owner, and Replace hands over in under two seconds although nobody
    hears notifications."""
    with nodes_on(tmp_path, "postgres", pooler) as nodes:
        a, b = nodes.start([nodes.job("Replace"), nodes.job("Forbid", 0.2, name="k")], slotTtlSeconds=TTL)
        for number in range(KILLS):
            assert b.start_job("k")[0] in (200, 409)
            time.sleep(0.03 * (number % 20))
            b.kill9()
            start_until(a, 200, 2 * TTL, "k")
            b.start()
        assert a.start_job()[0] == 200
        until(lambda: a.slot()["held"], what="a's slot")
        began = time.monotonic()
        assert b.start_job()[0] == 202
        until(lambda: b.slot()["held"], 5, "b's slot")
        assert time.monotonic() - began < 2.5
        for one in (a, b):
            one.stop()
        with psycopg.connect(database, autocommit=True) as connection:
            assert connection.execute("SELECT * FROM pg_locks WHERE locktype = 'advisory'").fetchall() == []

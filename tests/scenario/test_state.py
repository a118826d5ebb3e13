"""`sexton state` beside real daemons: backup, restore, check and migrate, as an operator types them."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rig import NEVER, Rig

Run = Callable[..., subprocess.CompletedProcess[bytes]]
JOBS: list[dict[str, Any]] = [
    {"name": "j", "command": "echo done", "schedule": NEVER},
    {"name": "long", "command": "sleep 600", "schedule": NEVER},
]


@pytest.fixture
def state(rig: Rig) -> Run:
    """Type `sexton state ...`, with the daemon's configuration unless another is given."""

    def run(*words: str, config: Path | None = None, status: int | None = 0,
            **variables: str) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [sys.executable, "-m", "sexton", "state", *words, "-c", str(config or rig.config)], capture_output=True,
            env={**os.environ, **variables}, timeout=60, check=False, cwd=rig.folder,
        )
        assert status is None or done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return done

    return run


def begin(rig: Rig, state: str = "state") -> tuple[str, str]:
    """A daemon with a recorded run and one that lives."""
    rig.start(JOBS, state={"path": str(rig.folder / state)})
    first = rig.fire()
    rig.recorded(first)
    second = rig.fire("long")
    rig.running(second)
    return first, second


def configuration(rig: Rig, name: str, state: dict[str, Any]) -> Path:
    path = rig.folder / name
    path.write_text(json.dumps({"web": {"listen": [f"http://127.0.0.1:{rig.port}"]}, "jobs": JOBS, "state": state}))
    return path


def test_a_backup_made_beside_the_daemon_brings_its_runs_to_an_empty_store(rig: Rig, state: Run) -> None:
    """The file is private; a daemon that starts on what was restored has the history, and settles what lived then."""
    first, second = begin(rig)
    file = rig.folder / "backup.gz"
    told = state("backup", "-o", str(file)).stderr.decode()
    assert "1 recorded and 1 unfinished" in told and "output files" in told
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and not list(rig.folder.glob(".backup*"))
    other = configuration(rig, "other.yaml", {"path": str(rig.folder / "elsewhere")})
    state("restore", str(file), config=other)
    rig.kill9()
    rig.config = other
    rig.start()
    assert rig.run(first)["outcome"] == "success"
    assert rig.recorded(second)["outcome"] == "unknown"


def test_a_restore_refuses_a_daemon_and_a_store_that_is_not_empty(rig: Rig, state: Run) -> None:
    """`--force` merges: what ran since the backup stays."""
    begin(rig)
    file = rig.folder / "backup.gz"
    state("backup", "-o", str(file))
    assert b"in use by another daemon" in state("restore", str(file), "--force", status=1).stderr
    later = rig.fire()
    rig.recorded(later)
    rig.stop()
    assert b"not empty" in state("restore", str(file), status=1).stderr
    state("restore", str(file), "--force")
    rig.start()
    assert {run["outcome"] for run in rig.runs()} == {"success"} and later in {run["id"] for run in rig.runs()}
    assert [run["outcome"] for run in rig.runs("long")] == ["cancelled"], "its true record is newer than the intent"


def test_a_damaged_backup_changes_nothing(rig: Rig, state: Run) -> None:
    """Not even an empty store is made of it."""
    begin(rig)
    file = rig.folder / "backup.gz"
    state("backup", "-o", str(file))
    file.write_bytes(file.read_bytes()[:-9])
    other = configuration(rig, "other.yaml", {"path": str(rig.folder / "elsewhere")})
    assert b"cut off" in state("restore", str(file), config=other, status=1).stderr
    assert not (rig.folder / "elsewhere").exists()


def test_a_backup_that_fails_leaves_the_last_one(rig: Rig, state: Run) -> None:
    """And no draft of it. Standard output takes one, too."""
    begin(rig)
    file = rig.folder / "backup.gz"
    state("backup", "-o", str(file))
    whole = file.read_bytes()
    nowhere = configuration(rig, "nowhere.yaml", {"path": str(rig.folder / "nowhere")})
    assert b"no ledger" in state("backup", "-o", str(file), config=nowhere, status=1).stderr
    assert file.read_bytes() == whole and not list(rig.folder.glob(".backup*"))
    (rig.folder / "piped").write_bytes(state("backup", "-o", "-").stdout)
    state("restore", str(rig.folder / "piped"), config=nowhere)


def test_check_tells_what_is_there_and_what_is_damaged(rig: Rig, state: Run) -> None:
    """Beside the daemon and without it; the intents of one that was killed; a damaged record is status 1."""
    first, _ = begin(rig)
    found = json.loads(state("check", "--json").stdout)
    assert found["sound"] and (found["counts"]["recorded"], found["counts"]["unfinished"]) == (1, 1)
    assert any(f"pid {rig.pid}" in remark["text"] for remark in found["remarks"])
    assert not any("gone" in remark["text"] for remark in found["remarks"])
    rig.kill9()
    assert "1 unfinished runs are of daemons that are gone" in state("check").stdout.decode()
    with sqlite3.connect(rig.folder / "state" / "default" / "ledger.sqlite3") as ledger:
        ledger.execute("UPDATE run SET body = '{' WHERE id = ?", (first,))
    ledger.close()
    told = state("check", status=1).stdout.decode()
    assert first in told and told.rstrip().endswith("damaged")
    assert b"damaged" in state("backup", "-o", "b", status=1).stderr


def test_check_tries_the_locks_of_a_directory(rig: Rig, state: Run) -> None:
    """And names its nodes, and files that were set aside."""
    rig.start(JOBS, state={"path": str(rig.folder / "mount"), "topology": "shared", "nodeName": "here"})
    rig.recorded(rig.fire())
    (rig.folder / "mount" / "default" / "quarantine").mkdir()
    (rig.folder / "mount" / "default" / "quarantine" / "open.x").write_text("{")
    told = state("check").stdout.decode()
    assert "can be trusted" in told and "node here#" in told and "is there" in told and "1 damaged files" in told
    torn = rig.folder / "mount" / "default" / "open" / "x.json"
    torn.write_text("{")
    assert "open/x.json" in state("check", status=1).stdout.decode() and torn.exists()


def test_migrate_to_postgres_and_start_there(rig: Rig, state: Run, database: str) -> None:
    """It refuses a daemon at work, leaves the source as it was, says what to write, and tells no password."""
    first, second = begin(rig)
    secret = database.replace("sexton@", "sexton:hunter2@")
    busy = state("migrate", "--to-env", "STORE", status=1, STORE=secret).stderr
    assert b"in use by a daemon" in busy
    live = state("migrate", "--to-env", "STORE", "--live", STORE=secret).stderr
    assert b"not copied" in live and b"1 recorded and 1 unfinished" in live
    rig.kill9()
    ledger = rig.folder / "state" / "default" / "ledger.sqlite3"
    files = ledger, ledger.with_name("ledger.sqlite3-wal"), ledger.with_name("ledger.lock")
    before = [file.read_bytes() for file in files]
    full = state("migrate", "--to-env", "STORE", status=1, STORE=secret).stderr
    done = state("migrate", "--to-env", "STORE", "--force", STORE=secret).stderr
    assert b"not empty" in full and b"url: ${STORE}" in done and b"path: " in done
    assert b"hunter2" not in busy + live + full + done
    assert [file.read_bytes() for file in files] == before
    wrong = state("migrate", "--to", "postgresql://sexton:hunter/2@nowhere/x", status=1).stderr
    assert b"hunter" not in wrong and b"escape" in wrong
    rig.config = configuration(rig, "other.yaml", {"url": secret, "localPath": str(rig.folder / "own")})
    told = state("check").stdout
    assert b"hunter2" not in told and b"1 recorded and 1 unfinished" in told
    rig.start()
    assert rig.run(first)["outcome"] == "success" and rig.runs()[0]["id"] == first
    assert second in {run["id"] for run in rig.http("GET", "/runs")[1]["runs"]}


def test_migrate_back_from_a_directory(rig: Rig, state: Run) -> None:
    """Any kind to any other; the store itself is no target."""
    rig.start(JOBS, state={"path": str(rig.folder / "mount"), "topology": "shared"})
    first = rig.fire()
    rig.recorded(first)
    rig.stop()
    state("migrate", "--to", str(rig.folder / "mount"), "--topology", "shared", status=2)
    told = state("migrate", "--to", "ledger", "--topology", "single-node", "--deployment-id", "moved").stderr.decode()
    assert f"path: {rig.folder}/ledger" in told and "topology: single-node" in told and "deploymentId: moved" in told
    rig.config = configuration(rig, "other.yaml", {"path": str(rig.folder / "ledger"), "deploymentId": "moved"})
    rig.start()
    assert [run["id"] for run in rig.runs()] == [first]


def test_without_a_store_there_is_nothing_to_do(rig: Rig, state: Run) -> None:
    """It says so; a configuration with errors is refused as well."""
    rig.write(JOBS)
    assert b"no `state` section" in state("check", status=1).stderr
    rig.write_text("jobs: 7")
    assert b"sexton check" in state("check", status=1).stderr

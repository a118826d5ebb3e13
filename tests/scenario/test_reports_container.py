"""Kinds of fault at the top of a container: whose status a reaper takes, and whom a stop reaches. Numbers are those of
the table in README.md."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from probes import descendants, holdings, zombies
from rig import NEVER, Rig, always, living, new_tag, until

OKAY = {"name": "okay", "schedule": NEVER, "concurrencyPolicy": "Allow",
        "command": "for i in 1 2 3; do (setsid sh -c 'sleep 0.1' &) ; done; exit 0"}
SEVEN = {"name": "seven", "schedule": NEVER, "concurrencyPolicy": "Allow", "command": "exit 7"}


def starts(rig: Rig, rounds: int, at_once: int) -> None:
    for _ in range(rounds):
        runs = {rig.fire(name): name for _ in range(at_once) for name in ("okay", "seven")}
        for run, name in runs.items():
            record = rig.recorded(run)
            assert (name, record["exit_code"]) in (("okay", 0), ("seven", 7)), record


def test_103_orphans_take_no_status(rig: Rig) -> None:
    """Runs that leave orphans behind, many at a time: every status is the run's own, and no zombie stays."""
    rig.start([OKAY, SEVEN])
    starts(rig, 8, 8)
    until(lambda: zombies(rig.pid) == [], 5, "no zombies")


def namespace(rig: Rig) -> None:
    """Let the daemon be process 1 of a pid namespace of its own."""
    tool = shutil.which("unshare")
    if os.geteuid() != 0 or tool is None:
        pytest.skip("a pid namespace needs root and unshare")
    rig.prefix = (tool, "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*rig.prefix, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("pid namespaces are not permitted here")


def first_process(rig: Rig) -> int:
    return until(lambda: next(iter(descendants(rig.pid)), None), 5, "process 1") or 0


def test_103_as_process_1(rig: Rig) -> None:
    """The same as process 1 of a container; orphans of strangers (somebody's `exec` into it) are collected, too."""
    namespace(rig)
    rig.start([OKAY, SEVEN])
    one = first_process(rig)
    starts(rig, 4, 8)
    enter = shutil.which("nsenter")
    if enter is not None:
        stranger = "for i in 1 2 3; do (setsid sleep 0.2 &) ; done"
        subprocess.run([enter, "-t", str(one), "-p", "sh", "-c", stranger], check=True)
        starts(rig, 2, 4)
    until(lambda: zombies(one) == [], 5, "no zombies")
    assert holdings(one).children <= 2
    os.kill(one, signal.SIGTERM)
    assert rig.wait(20) == 0


def test_daemons_of_other_namespaces_are_let_live(rig: Rig) -> None:
    """A daemon in another pid namespace but in the same cgroup, whose pids mean nothing here, is no dead daemon:
    neither of the two sweeps away the runs of the other when it starts."""
    tag = new_tag()
    other = Rig(rig.folder / "other")
    other.folder.mkdir()
    namespace(other)
    job = {"name": "j", "schedule": NEVER, "command": f"sleep {tag}", "killTimeout": 0.2}
    try:
        rig.start([job])
        here = rig.fire()
        rig.running(here)
        other.start([job])
        there = other.fire()
        other.running(there)
        third = Rig(rig.folder / "third")
        third.folder.mkdir()
        try:
            third.start([job])
        finally:
            third.close()
        assert rig.run(here)["phase"] == "running" and other.run(there)["phase"] == "running"
        assert "had left" not in other.log() or len(living(tag)) == 4
    finally:
        os.kill(first_process(other), signal.SIGTERM)
        other.close()


def tidying(tag: str, lock: Path) -> dict[str, object]:
    """It must take its lock away, or the next one refuses."""
    return {
        "name": "backup", "schedule": NEVER, "killTimeout": 4,
        "command": f"mkdir {lock} || exit 9\ntrap 'rmdir {lock}; exit 0' TERM INT\ntrap 'rmdir {lock}' EXIT\n"
                   f"sleep {tag} & wait; sleep {tag}",
    }


def test_105_a_stop_reaches_the_runs(rig: Rig, tmp_path: Path) -> None:
    """SIGTERM to process 1 reaches a run that must tidy up, in time; started again, the run finds no lock in its
    way."""
    namespace(rig)
    tag, lock = new_tag(), tmp_path / "state.lock"
    rig.start([tidying(tag, lock)], shutdownTimeout=0.3, state={"path": str(tmp_path / "state")})
    for _ in range(2):
        run = rig.fire("backup")
        until(lambda: lock.exists(), 10, "the lock")
        asked = time.monotonic()
        os.kill(first_process(rig), signal.SIGTERM)
        assert rig.wait(10) == 0 and time.monotonic() - asked < 6
        assert not lock.exists() and living(tag) == []
        rig.start()
        record = rig.run(run)
        assert record["stop"]["cause"] == "shutdown" and record["exit_code"] == 0 and record["outcome"] == "cancelled"


@pytest.mark.parametrize("line", ['exec "$@"', '"$@"; true'])
def test_105_a_shell_at_the_top(rig: Rig, tmp_path: Path, line: str) -> None:
    """A shell as process 1 needs `exec`. Without it nobody hears SIGTERM, and what the runtime does then cuts the run
    off: nothing of it is left, and the next start records it as unknown."""
    namespace(rig)
    rig.prefix = (*rig.prefix, "sh", "-c", line, "sh")
    tag, lock = new_tag(), tmp_path / "state.lock"
    rig.start([tidying(tag, lock)], shutdownTimeout=0.3, state={"path": str(tmp_path / "state")})
    run = rig.fire("backup")
    until(lambda: lock.exists(), 10, "the lock")
    os.kill(first_process(rig), signal.SIGTERM)
    if line.startswith("exec"):
        assert rig.wait(10) == 0 and not lock.exists()
    else:
        always(lambda: rig.http("GET", "/health")[1]["status"] != "shutting down", 0.5, "nobody has heard it")
        rig.kill9()
        until(lambda: living(tag) == [], 5, "the namespace ends whole")
    rig.start()
    record = rig.recorded(run)
    assert record["outcome"] == ("cancelled" if line.startswith("exec") else "unknown")
    assert record["gone"]["state"] == "proven" and living(tag) == []

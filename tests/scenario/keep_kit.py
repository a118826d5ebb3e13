"""For tests of runs that outlive their daemon: the job, where it is found again, what must not stay after a test."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from rig import NEVER, living, until

GONE_SECONDS = 3.0


def kept(command: str, **more: Any) -> dict[str, Any]:
    return {"name": "j", "schedule": NEVER, "command": command, "onDaemonLoss": "keep", "captureStdout": True,
            "concurrencyPolicy": "Forbid", "killTimeout": 2, **more}


def state(tmp_path: Path) -> dict[str, Any]:
    return {"path": str(tmp_path / "state")}


def supervisor_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def nothing_left(tag: str) -> None:
    until(lambda: not living(tag), GONE_SECONDS, f"nothing of {tag}")


def runtime(tmp_path: Path) -> list[str]:
    return sorted(os.listdir(tmp_path / "state" / "default" / "kept"))


def cgroup_of(pid: int) -> Path | None:
    """The cgroup v2 directory of a process, if it is one of Sexton's that we may freeze."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    name = next((line[3:] for line in lines if line.startswith("0::")), "/")
    for row in Path("/proc/self/mountinfo").read_text().splitlines():
        if row.split(" - ")[1].split()[0] == "cgroup2":
            freezer = Path(row.split()[4] + name)
            return freezer if "sexton-" in name and os.access(freezer / "cgroup.freeze", os.W_OK) else None
    return None


def processes_in(folder: Path) -> list[int]:
    """Everything that was started by the daemon of a test: its working directory is the test's."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd") == str(folder):
                found.append(int(entry))
        except OSError:
            continue
    return found


def end_processes_in(folder: Path) -> None:
    """A failed test must not leave a run that nobody will ever take over."""
    for _ in range(200):
        pids = processes_in(folder)
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        until(lambda left=pids: not set(left) & set(processes_in(folder)), 5.0, "their end")

"""Jobs of a pool, and what they wrote down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rig import NEVER, Rig, until


def member(name: str, folder: Path, *, gate: bool = True, seconds: float = 0.0, **options: Any) -> dict[str, Any]:
    """A job that notes its start and its end. With a gate it goes on until `open` is called for it."""
    wait = f"while [ ! -e {folder}/{name}.open ]; do sleep 0.02; done" if gate else f"sleep {seconds}"
    command = f"echo +{name} >> {folder}/marks; {wait}; echo -{name} >> {folder}/marks"
    return {"name": name, "command": command, "schedule": NEVER, "pool": "p", **options}


def open_gate(folder: Path, *names: str) -> None:
    for name in names:
        (folder / f"{name}.open").touch()


def marks(folder: Path) -> list[str]:
    path = folder / "marks"
    return path.read_text().splitlines() if path.exists() else []


def starts(folder: Path) -> list[str]:
    return [mark[1:] for mark in marks(folder) if mark.startswith("+")]


def most_at_once(folder: Path) -> int:
    """How many ran at the same time, at most."""
    running = most = 0
    for mark in marks(folder):
        running += 1 if mark.startswith("+") else -1
        most = max(most, running)
    return most


def ask(rig: Rig, name: str) -> str:
    """Start a run of a job with a pool: 202, and its id."""
    status, body = rig.http("POST", f"/jobs/{name}/start")
    assert status == 202, body
    assert body["queued"] == name and body["queueId"] == body["run"]
    run: str = body["run"]
    return run


def pool(rig: Rig, name: str = "p") -> Any:
    status, body = rig.http("GET", f"/pools/{name}")
    assert status == 200, body
    return body


def waiting(rig: Rig) -> list[str]:
    """Ids of the runs that wait, in the order of their turns."""
    return [entry["id"] for entry in pool(rig)["entries"]]


def begun(rig: Rig, *names: str) -> None:
    """Wait until these, and no others, have started, in this order."""
    until(lambda: len(starts(rig.folder)) >= len(names), 10, f"{names}")
    assert starts(rig.folder) == list(names)

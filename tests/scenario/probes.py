"""What a process holds, as /proc tells: descriptors, threads, children, memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rig import state_of


def children(pid: int) -> list[int]:
    """Direct children, zombies too."""
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except OSError:
            continue
    return found


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    todo = [pid]
    while todo:
        try:
            below = children(todo.pop())
        except OSError:
            continue
        found += below
        todo += below
    return found


def zombies(pid: int) -> list[int]:
    """Dead and not collected processes anywhere below."""
    return [child for child in descendants(pid) if state_of(child) == "Z"]


def named(pid: int, name: str) -> list[int]:
    """Descendants whose process name is `name`."""
    found = []
    for child in descendants(pid):
        try:
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                found.append(child)
        except OSError:
            continue
    return found


def rss(pid: int) -> int:
    """Resident bytes now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_rss(pid: int) -> int:
    """The most resident bytes there have been."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@dataclass(frozen=True)
class Holdings:
    fds: int
    threads: int
    children: int
    zombies: int


def holdings(pid: int) -> Holdings:
    return Holdings(
        fds=len(os.listdir(f"/proc/{pid}/fd")), threads=len(os.listdir(f"/proc/{pid}/task")),
        children=len(children(pid)), zombies=len(zombies(pid)),
    )

"""Finding a cgroup v2 directory that Sexton may use, and clearing what a dead daemon left in it.

Layout: `<own cgroup>/sexton-<pid>-<start ticks>/s<number>`, one directory for each supervisor and the run it holds. The
name carries the daemon's identity, so that a later daemon knows which directories belong to nobody any more.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import time
from collections.abc import Container

from sexton.execution.birth import kernel
from sexton.execution.birth.place import remove_tree as remove_tree
from sexton.execution.birth.wire import KEEPER_ATTRIBUTE, KEPT_ATTRIBUTE, SUPERVISOR_NAME
from sexton.execution.processes import start_ticks

logger = logging.getLogger("sexton.containment")

PREFIX = "sexton-"
SWEEP_SECONDS = 5.0


def own_directory() -> str | None:
    """The directory of our own cgroup in the v2 hierarchy, wherever it is mounted (hybrid layouts too)."""
    try:
        with open("/proc/self/mountinfo") as mounts:
            rows = [line.split(" - ", 1) for line in mounts]
        with open("/proc/self/cgroup") as groups:
            inside = next((line.rstrip("\n")[3:] for line in groups if line.startswith("0::")), None)
    except OSError:
        return None
    if inside is None:
        return None
    for left, right in rows:
        if right.split()[0] != "cgroup2":
            continue
        fields = left.split()
        root, mount = fields[3], re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        relative = os.path.relpath(inside, root)
        if not relative.startswith(".."):
            return os.path.normpath(os.path.join(mount, relative))
    return None


def claim() -> str | None:
    """Make this daemon's directory for run cgroups; None where that is not permitted or not there.

    Creating a directory and reading its events file is the whole need: killing and counting work without controllers.
    """
    own = own_directory()
    if own is None:
        return None
    try:
        path = claim_in(own)
        try:
            with open(os.path.join(path, "cgroup.events")) as events:
                events.read()
        except OSError:
            remove_tree(path)
            raise
    except OSError as refused:
        logger.debug("no cgroup v2 for runs: %s", refused)
        return None
    return path


def claim_in(own: str) -> str:
    """Make this daemon's directory in one hierarchy of any version. Raises OSError where that is not permitted."""
    path = os.path.join(own, f"{PREFIX}{os.getpid()}-{start_ticks(os.getpid())}")
    os.mkdir(path)
    try:
        _mark_as_ours(path)
        with open(os.path.join(path, "cgroup.procs"), "wb"):
            pass
    except OSError:
        remove_tree(path)
        raise
    return path


def _mark_as_ours(path: str) -> None:
    """Lock the directory for as long as this process lives: the descriptor is never closed. Pid and start time tell a
    live daemon from a dead one only within one pid namespace; the lock tells it to daemons in others, too."""
    fcntl.flock(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), fcntl.LOCK_EX)


def is_held(path: str) -> bool:
    """Whether a living daemon, or a supervisor whose run outlives its daemon, in whatever pid namespace, has marked the
    directory as its own."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def remove_numbered(base: str, below: int, living: Container[int]) -> None:
    """Remove the directories of supervisors that a dead zygote had made, except those that live: nobody else will."""
    try:
        names = os.listdir(base)
    except OSError:
        return
    for name in names:
        if name[1:].isdigit() and int(name[1:]) < below and int(name[1:]) not in living:
            remove_tree(os.path.join(base, name))


def populated(path: str) -> bool:
    try:
        with open(os.path.join(path, "cgroup.events")) as events:
            return "populated 1" in events.read()
    except OSError:
        return False


def kill(path: str) -> None:
    """End everything in the cgroup and below it (kernel 5.14 and later; else one by one)."""
    try:
        with open(os.path.join(path, "cgroup.kill"), "w") as file:
            file.write("1")
    except OSError:
        for pid in members(path):
            try:
                os.kill(pid, 9)
            except OSError:
                pass


def members(path: str) -> list[int]:
    found: list[int] = []
    for directory, _, _ in os.walk(path):
        try:
            with open(os.path.join(directory, "cgroup.procs")) as procs:
                found += [int(line) for line in procs]
        except OSError:
            continue
    return found


def kept(path: str) -> bool:
    """Whether what is in it was left behind on purpose."""
    return _marked(path, KEPT_ATTRIBUTE) and not _marked(path, KEEPER_ATTRIBUTE)


def _marked(path: str, name: str) -> bool:
    try:
        return os.getxattr(path, name) == b"1"
    except OSError:
        return False


def abandoned(own: str | None = None) -> list[str]:
    """Directories of daemons that are dead; in our cgroup of the v2 hierarchy, or in another one."""
    own = own or own_directory()
    if own is None:
        return []
    try:
        names = os.listdir(own)
    except OSError:
        return []
    found = []
    for name in names:
        match = re.fullmatch(re.escape(PREFIX) + r"(\d+)-(\d+)", name)
        path = os.path.join(own, name)
        if match and start_ticks(int(match[1])) != int(match[2]) and not is_held(path):
            found.append(path)
    return found


def _entries(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []  # another daemon that starts now has swept it


def _rouse(path: str) -> None:
    """A supervisor that was stopped would never see that what it was kept for has ended; its daemon and its zygote,
    which would set it going, may both have been killed."""
    for pid in members(path):
        if kernel.name_of(pid) == SUPERVISOR_NAME:
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError as failure:
                logger.debug("supervisor %d cannot be set going: %s", pid, failure)


def sweep() -> tuple[int, list[int]]:
    """End what dead daemons left in their run cgroups, except what was kept on purpose; blocking, bounded.

    Returns how many directories were cleared, and the pids that could not be ended.
    """
    doomed = []
    for top in abandoned():
        for entry in _entries(top):
            path = os.path.join(top, entry)
            if os.path.isdir(path) and kept(path) and populated(path):
                _rouse(path)
            elif os.path.isdir(path) and not is_held(path):
                doomed.append(path)
                if populated(path):
                    kill(path)
    deadline = time.monotonic() + SWEEP_SECONDS
    while any(populated(path) for path in doomed) and time.monotonic() < deadline:
        time.sleep(0.002)
    survivors = [pid for path in doomed for pid in members(path)]
    cleared = sum(remove_tree(path) for path in doomed)
    for top in abandoned():
        remove_tree(top)
    return cleared, survivors

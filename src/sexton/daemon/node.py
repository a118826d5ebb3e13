"""Who this daemon is among those that share a store, and where it keeps what is its own."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from sexton.execution import processes
from sexton.execution.birth import kernel
from sexton.execution.keeping import KeptRuns
from sexton.execution.lastwords import LastWords
from sexton.execution.runlog import OutputFiles
from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity

LOCK_FILE = "node.lock"
MOST_NAMESAKES = 1000


class NodeHome(msgspec.Struct, frozen=True):
    """A node with a folder of its own: runs that outlive the daemon, and the last words of zygotes, are found there by
    the next daemon of the same node."""

    identity: NodeIdentity
    directory: Path | None = None
    lock: int | None = None
    """Descriptor of the lock on the folder; the kernel lets go of it when we die."""

    def leave(self) -> None:
        if self.lock is not None:
            os.close(self.lock)


class Belongings(msgspec.Struct, frozen=True):
    """What a node that has a folder keeps there, and beside the store."""

    output_files: OutputFiles
    kept: KeptRuns
    words: LastWords


def this_process(name: str) -> NodeIdentity:
    """The identity of this process under that name. No other process ever gets the same."""
    pid = os.getpid()
    return NodeIdentity(
        id=f"{name}#{os.urandom(8).hex()}", name=name, pid=pid, pid_started_ticks=processes.start_ticks(pid) or 0,
        boot_id=processes.boot_id(), pid_namespace=_pid_namespace(),
    )


def move_in(base: Path, name: str) -> NodeHome:
    """Take the folder of the node below `base`. A second daemon on the same machine becomes `NAME-2`, and so on: two
    that live at once never share what is a node's own. Raises StoreError. Blocking."""
    for number in range(1, MOST_NAMESAKES):
        own = name if number == 1 else f"{name}-{number}"
        directory = base / own
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as failure:
            why = failure.strerror or failure
            raise StoreError(f"this node cannot have {directory} for itself: {why}") from failure
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        except OSError as failure:
            os.close(lock)
            raise StoreError(f"{directory / LOCK_FILE} cannot be locked: {failure.strerror}") from failure
        return NodeHome(this_process(own), directory, lock)
    raise StoreError(f"{MOST_NAMESAKES} daemons are called {name} here")


def is_provably_dead(other: NodeIdentity, me: NodeIdentity) -> bool:
    """Whether that process is no more, as this machine's kernel says. False: it may live, or nobody here can tell."""
    if other.boot_id != me.boot_id or other.pid_namespace != me.pid_namespace:
        return False
    return not (processes.start_ticks(other.pid) == other.pid_started_ticks and kernel.is_alive(other.pid))


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0

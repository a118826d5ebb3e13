"""The store's directory on disk: who may look into it, and which one daemon owns it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from sexton.model.errors import StoreError

LEDGER_FILE = "ledger.sqlite3"
LOCK_FILE = "ledger.lock"
SHARED_STORE_FILE = "meta.json"
"""Of a directory store: nothing of ours may be put beside it, not even a lock."""


def deployment_directory(path: str | Path, deployment_id: str) -> Path:
    """Where a deployment keeps its files. Raises StoreError for an id that is not one plain file name."""
    if deployment_id in ("", ".", "..") or "/" in deployment_id or "\0" in deployment_id:
        raise StoreError(f"deployment id {deployment_id!r} cannot be the name of a directory")
    return Path(path) / deployment_id


def prepare_directory(directory: Path) -> Path:
    """Make `directory` (0700) and the ledger file in it (0600), and return the file's path.

    Modes are set on what exists as well: records hold names and reasons that are nobody else's business.
    SQLite gives its -wal and -shm files the mode of the ledger. Raises StoreError.
    """
    ledger = directory / LEDGER_FILE
    if os.path.exists(directory / SHARED_STORE_FILE):
        raise StoreError(f"{directory} holds a store that nodes share ({SHARED_STORE_FILE}); a ledger of one node "
                         "needs another path or deploymentId")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.mkdir(exist_ok=True, mode=0o700)
        directory.chmod(0o700)
        os.close(_open_private(ledger))
    except OSError as error:
        raise StoreError(f"cannot use {directory} for state: {error.strerror or error}") from error
    return ledger


class DirectoryLock:
    """Holds a directory for this process: an advisory flock that the kernel drops when the holder dies."""

    def __init__(self, directory: Path) -> None:
        """Take the lock. Raises StoreError, naming the holder's pid, when another store holds it."""
        path = directory / LOCK_FILE
        try:
            descriptor = _open_private(path)
        except OSError as error:
            raise StoreError(f"cannot open the lock file {path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreError(f"{directory} is in use by another daemon (pid {holder})") from error
        except OSError as error:
            os.close(descriptor)
            raise StoreError(f"cannot lock {path}: {error.strerror}") from error
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Let go. The file stays: removing it would let two daemons lock two different files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _open_private(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor

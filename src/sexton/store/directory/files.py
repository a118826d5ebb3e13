"""Small files that are there whole or not at all, on a file system that several machines use at once.

Everything here may wait for a disk or a server: for the store's threads only. Raises OSError.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sexton.store.directory.threads import check_wanted

log = logging.getLogger(__name__)

TEMPORARY = "tmp"
QUARANTINE = "quarantine"
ATTEMPTS = 5

T = TypeVar("T")


class Draft:
    """A file that nobody looks for yet. `now` is the file system's time of its making, in nanoseconds: the one clock
    that all nodes share."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self.now = self._stamp(b" ")
        except OSError:
            os.close(self._file)
            raise

    def write(self, content: bytes) -> None:
        """Durably; the modification time is of after the call."""
        os.ftruncate(self._file, 0)
        self.now = self._stamp(content)
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def _stamp(self, content: bytes) -> int:
        """Write, and ask when that was: a network file system then asks its server. (utime() would do as well, but for
        those who run a daemon under a clock that lies.)"""
        written = 0
        while written < len(content):
            written += os.pwrite(self._file, content[written:], written)
        return os.fstat(self._file).st_mtime_ns


class Files:
    """The files below one folder."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._ours = secrets.token_hex(6)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.quarantined = 0

    def path(self, *parts: str) -> str:
        return os.path.join(self.root, *parts)

    @contextmanager
    def draft(self, folder: str | None = None) -> Iterator[Draft]:
        """A new draft, in `folder` (made where it is missing) or where drafts usually are; removed in the end."""
        path = os.path.join(folder or self.path(TEMPORARY), f".{self._ours}-{next(self._numbers)}")
        try:
            draft = Draft(path)
        except FileNotFoundError:
            self.make(os.path.dirname(path))
            draft = Draft(path)
        try:
            yield draft
        finally:
            draft.close()
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass  # it was renamed

    def make(self, folder: str) -> None:
        """A folder, private to us. The store's own is never made here: when that is missing, something has happened."""
        parent = os.path.dirname(folder)
        if parent != self.root and not os.path.isdir(parent):
            self.make(parent)
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            return  # another node's
        sync(parent)

    def put(self, content: bytes, path: str) -> None:
        """Whatever was there before is replaced."""
        with self.draft() as draft:
            draft.write(content)
            self.move(draft, path)
        sync(os.path.dirname(path))

    def move(self, draft: Draft, path: str) -> None:
        """To its place, which is not synced yet."""
        self._in_its_folder(lambda: os.rename(draft.path, path), path)

    def put_once(self, content: bytes, path: str) -> bool:
        """False when something is there already: of any number of contenders one is told True."""
        with self.draft() as draft:
            draft.write(content)
            check_wanted()
            first = self._in_its_folder(lambda: link(draft.path, path), path)
        if first:
            sync(os.path.dirname(path))
        return first

    def _in_its_folder(self, put: Callable[[], T], path: str) -> T:
        """Makes the folder where there is none; again where another node has cleared it away as empty."""
        for _ in range(ATTEMPTS):
            try:
                return put()
            except FileNotFoundError:
                self.make(os.path.dirname(path))
        return put()

    def now(self) -> int:
        """The file system's clock, in nanoseconds."""
        with self.draft() as draft:
            return draft.now

    def quarantine(self, path: str, why: object) -> None:
        """Put a damaged file where it is in nobody's way. Of several who find it one moves it."""
        folder = self.path(QUARANTINE)
        name = os.path.relpath(path, self.root).replace(os.sep, ".")[-200:]
        self.make(folder)
        try:
            os.rename(path, os.path.join(folder, f"{name}~{self._ours}{next(self._numbers)}"))
        except FileNotFoundError:
            return
        with self._lock:
            self.quarantined += 1
        log.error("%s is damaged (%s) and was moved to %s", path, why, folder)


def read(path: str) -> bytes:
    """A file on NFS that another node has replaced meanwhile is opened again."""
    try:
        return _read(path)
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError):
            raise
        return _read(path)


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def link(source: str, target: str) -> bool:
    """Give a file its name unless that is taken: atomic among all nodes, on every file system that has hard links."""
    try:
        os.link(source, target)
    except FileExistsError:
        return os.stat(source).st_nlink > 1  # an answer that was lost on the network, and a question asked twice
    return True


def names(folder: str) -> list[str]:
    """What is in a folder, but for drafts; nothing where there is none."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except FileNotFoundError:
        return []


def remove(path: str) -> bool:
    """False when it was gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def sync(folder: str) -> None:
    """What was renamed, linked or removed in it is durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):  # such a file system syncs folders by itself
            raise
    finally:
        os.close(descriptor)

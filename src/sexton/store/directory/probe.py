"""Can this file system keep two openers apart? Tried once per opening, with files of its own."""

from __future__ import annotations

import fcntl
import os

from sexton.store.directory.files import Files, link, remove


def examine(files: Files) -> str | None:
    """Why what it grants cannot be trusted; None when nothing speaks against it. Raises OSError.

    A file system without locks is none that lies: nothing here depends on them. One that grants two exclusive locks on
    one file answers without asking whoever would have to know, and its other promises are worth as little.
    """
    with files.draft() as one, files.draft() as other:
        if _grants_two_locks(one.path):
            return f"{files.root}: two exclusive locks on one file were granted at the same time"
        name = one.path + "-link"
        try:
            if link(one.path, name) and link(other.path, name):
                return f"{files.root}: one name was given to two files"
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                raise
            return f"{files.root}: the file system has no hard links ({error.strerror})"
        finally:
            remove(name)
    return None


def _grants_two_locks(path: str) -> bool:
    with open(path, "rb+") as first, open(path, "rb+") as second:
        try:
            fcntl.flock(first.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        try:
            fcntl.flock(second.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return os.path.exists(path)

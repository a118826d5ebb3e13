"""What a zygote says at its end to a later daemon: that nothing of its runs is left.

A daemon that dies leaves the end of its runs to its supervisors and its zygote, which see to it and then are gone as
well. So that a later daemon need not believe that they did, each zygote has a file below the state directory, which it
locks for as long as it lives and in which it writes when its last supervisor is buried. Docs: decision 0013.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from pathlib import Path

from sexton.execution.birth.wire import NOTHING_LEFT

logger = logging.getLogger("sexton.containment")

PATIENCE_SECONDS = 5.0
"""For zygotes that still end what they have."""
LOOK_SECONDS = 0.005
ELSEWHERE = "elsewhere"
"""The file that names the folders in which a daemon's zygotes had begun before its store was moved."""


class LastWords:
    """The files of one state directory. One daemon at a time uses them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._paths: list[Path] = []
        """Of our own zygotes, the newest last."""
        self._heard: list[Path] = []
        """Of those before ours, and the word where they are."""

    def leave_word(self, directory: Path) -> None:
        """Say in another state directory, which the next daemon will use, where the files are that we have begun or are
        about to begin. Raises OSError. Blocking."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours = {self._directory, *(path.parent for path in self._paths)}
        places = {str(place.absolute()) for place in ours}
        places.update(_elsewhere(self._directory), _elsewhere(directory))
        places.discard(str(directory.absolute()))
        (directory / ELSEWHERE).write_text("".join(f"{place}\n" for place in sorted(places)), encoding="utf-8")

    def move(self, directory: Path) -> None:
        """Zygotes begin their files there from now on. Word was left there."""
        self._directory = directory

    def begin(self) -> int | None:
        """A locked file for a new zygote: to be inherited by it, and closed here. None where it cannot be made; then
        nothing is proven by it after a crash."""
        path = self._directory / f"{os.getpid()}-{len(self._paths) + 1}"
        self._paths.append(path)
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as failure:
            logger.warning("no zygote can say at its end that nothing is left: %s: %s", path, failure.strerror)
            return None
        return fd

    def settle(self, keep_last: bool) -> None:
        """We have seen the end of all that our earlier zygotes had: nobody need ask for it."""
        for path in self._paths[:-1] if keep_last else self._paths:
            path.unlink(missing_ok=True)

    def hear(self, patience: float = PATIENCE_SECONDS) -> bool:
        """Whether every zygote of the daemons before us has said it; waits for those at work. Blocking, bounded. Until
        `forget` a later daemon hears the same."""
        paths = _files(self._directory)
        for place in _elsewhere(self._directory):
            paths += _files(Path(place))
        self._heard = [*paths, self._directory / ELSEWHERE]
        limit = time.monotonic() + patience
        said = [_heard(path, limit) for path in paths]
        return all(said)

    def forget(self) -> None:
        """Remove what was heard: every run that it is about is recorded. Should we die before that, silence must not
        pass for a word."""
        for path in self._heard:
            path.unlink(missing_ok=True)
        self._heard = []


def _files(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if path.name != ELSEWHERE]
    except OSError:
        return []  # no daemon before us has had a zygote


def _elsewhere(directory: Path) -> list[str]:
    try:
        return (directory / ELSEWHERE).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _heard(path: Path, limit: float) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        while os.pread(fd, 64, 0) != NOTHING_LEFT:
            if _is_free(fd):
                return os.pread(fd, 64, 0) == NOTHING_LEFT
            if time.monotonic() >= limit:
                return False
            time.sleep(LOOK_SECONDS)
        return True
    finally:
        os.close(fd)


def _is_free(fd: int) -> bool:
    """Whether whoever had it locked is gone."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

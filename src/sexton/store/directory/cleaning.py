"""What nobody needs any more, removed when a store is opened: by the file system's clock, by several nodes at once."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime, timedelta

from sexton.store.directory.files import QUARANTINE, TEMPORARY, Files, remove
from sexton.store.directory.post import Occurrences
from sexton.store.directory.reading import Reading

LEFTOVER_SECONDS = 24 * 3600.0
"""Age of a draft, an inbox or an intent beside its record that whoever made it cannot be at work on any more."""
FIRES_KEPT = timedelta(days=7)
QUARANTINE_KEPT = 30 * 24 * 3600.0


def clean(files: Files, reading: Reading, occurrences: Occurrences) -> None:
    """Raises OSError. Records, leases and fences are never touched."""
    now = files.now()
    occurrences.forget(datetime.fromtimestamp(now / 1e9, UTC) - FIRES_KEPT)
    _remove_old(files.path(TEMPORARY), now, LEFTOVER_SECONDS)
    _remove_old(files.path(QUARANTINE), now, QUARANTINE_KEPT)
    for lease in _folders(files.path("leases")):
        _remove_old(lease, now, LEFTOVER_SECONDS, drafts_only=True)
    for inbox in _folders(files.path("signals")):
        if not os.path.exists(files.path("nodes", os.path.basename(inbox) + ".json")):
            _remove_old(inbox, now, LEFTOVER_SECONDS)
        _remove_if_empty(inbox, now)
    for folder in _folders(files.path("runs")):
        _remove_if_empty(folder, now)
    for path in reading.outlived_intents():
        _remove_if_old(path, now, LEFTOVER_SECONDS)


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _remove_old(folder: str, now: int, seconds: float, *, drafts_only: bool = False) -> None:
    try:
        present = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in present:
        if name.startswith(".") or not drafts_only:
            _remove_if_old(os.path.join(folder, name), now, seconds)


def _remove_if_old(path: str, now: int, seconds: float) -> None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISREG(found.st_mode) and (now - found.st_mtime_ns) / 1e9 > seconds:
        remove(path)


def _remove_if_empty(folder: str, now: int) -> None:
    try:
        if (now - os.stat(folder).st_mtime_ns) / 1e9 > LEFTOVER_SECONDS:
            os.rmdir(folder)
    except OSError:
        pass  # it is in use, or gone

"""Is the ledger that we have open still the one at its path? A deleted or replaced directory takes every write without
a complaint, and all of them are lost.
"""

from __future__ import annotations

import os
from pathlib import Path

from sexton.model.errors import StoreError


class LedgerMissing(StoreError):
    """Nothing is at the path, and the file system is the one it was: a new ledger may be begun there."""


class Whereabouts:
    """The file that was opened, by device and inode. For the writer's thread."""

    def __init__(self, ledger: Path) -> None:
        """Raises OSError."""
        self._ledger = ledger
        found = os.stat(ledger)
        self._known = (found.st_dev, found.st_ino)

    def check(self) -> None:
        """Two microseconds. Raises LedgerMissing, or StoreError when something else is there now."""
        try:
            found = os.stat(self._ledger)
        except FileNotFoundError:
            self._why_missing()
        except OSError as failure:
            raise StoreError(f"{self._ledger} cannot be looked at: {failure.strerror}") from failure
        else:
            if (found.st_dev, found.st_ino) != self._known:
                raise StoreError(f"{self._ledger} was replaced while the daemon had it open: put the old one back, or "
                                 "restart the daemon to use this one")

    def _why_missing(self) -> None:
        existing = self._ledger.parent
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        if os.stat(existing).st_dev != self._known[0]:
            raise StoreError(f"{self._ledger} is gone, and its file system with it: mount it again")
        raise LedgerMissing(f"{self._ledger} was deleted while the daemon had it open")

"""A note in the new home of a node while its store is moved. A daemon that dies meanwhile is started again with the new
configuration, as a rule, and must not be silent about what has stayed behind."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import msgspec

from sexton.model.settings import StateSettings

logger = logging.getLogger("sexton.store")

FILE = "moving"


class Halfway(msgspec.Struct, frozen=True):
    left: str
    """Which store, for people to read; nothing secret."""
    to: str
    """Digest of what the section says."""


def note_halfway(home: Path, left: StateSettings, to: StateSettings) -> None:
    """Raises OSError. Blocking."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    note = Halfway(left=left.path or "a database", to=_digest(to))
    (home / FILE).write_bytes(msgspec.json.encode(note))


def forget_halfway(home: Path) -> None:
    """The move is made, or given up. Raises OSError. Blocking."""
    (home / FILE).unlink(missing_ok=True)


def tell_halfway(home: Path | None, state: StateSettings | None) -> None:
    """At a start on the store that was being moved to: what was not brought is in the other one. Said once.
    Blocking."""
    if home is None or state is None:
        return
    try:
        note = msgspec.json.decode((home / FILE).read_bytes(), type=Halfway)
        forget_halfway(home)
    except (OSError, msgspec.MsgspecError):
        return  # as good as always there is none
    if note.to == _digest(state):
        logger.error("an earlier daemon died while it moved the store, from %s to this one: runs, pauses and retries "
                     "that were not brought are still there, and @reboot jobs may run a second time; to go on there, "
                     "start with the earlier configuration", note.left)


def _digest(state: StateSettings) -> str:
    return hashlib.sha256(repr((state.path, state.url, state.deployment_id)).encode()).hexdigest()

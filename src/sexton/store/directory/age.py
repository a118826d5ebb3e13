"""How old is what a file says? Decided without comparing the clocks of two hosts.

Two witnesses: the modification times that the file system has given to that file and to one that was touched just now
(its clock, the same for all nodes), and what this process has seen at earlier looks, on its own clock of elapsed time.
The second is never wrong but often knows little; it overrules the first, whose clock somebody may have set.
"""

from __future__ import annotations

import msgspec

TICK = 0.02
"""Seconds by which a modification time may be late: kernels stamp with the time of their last tick."""
COARSE = 2.0
"""The same on file systems that keep whole seconds, or every other."""

_SECOND = 1_000_000_000


class Sighting(msgspec.Struct, frozen=True):
    """What this process remembers of a file's earlier versions. Seconds of its own clock."""

    version: int
    since: float
    """When the first look that showed this version had ended: it was there by then."""
    looked_at: float
    """When the latest look began."""
    other_at: float | None = None
    """When the last look that showed another version began: this version came after it."""


def seen(before: Sighting | None, version: int, *, began: float, ended: float) -> Sighting:
    """Remember one more look."""
    if before is None:
        return Sighting(version, ended, began)
    if before.version == version:
        return Sighting(version, before.since, began, before.other_at)
    return Sighting(version, ended, began, before.looked_at)


def grain(*stamps: int) -> float:
    """How exact modification times (nanoseconds) are, in seconds: by the look of them, and rather too coarse."""
    return COARSE if all(stamp % _SECOND == 0 for stamp in stamps) else TICK


def age(stamp: int, now: int, sighting: Sighting) -> float:
    """Seconds, rather too few than too many, since the version of a file was written that has the modification time
    `stamp` while a file touched now has `now` (nanoseconds), as of the beginning of the latest look."""
    by_stamps = (now - stamp) / _SECOND - grain(stamp, now)
    if sighting.other_at is not None:
        by_stamps = min(by_stamps, sighting.looked_at - sighting.other_at)
    return max(by_stamps, sighting.looked_at - sighting.since, 0.0)

"""Has the configuration changed on disk? A signature of its sources, cheap enough for every minute."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

Signature = tuple[tuple[object, ...], ...]
"""Compare two for equality; nothing else is promised of it."""


def signature(sources: Iterable[str]) -> Signature:
    """Describe the present state of `Configuration.sources`. A source that is missing is a state too."""
    return tuple(_entry(source) for source in sources)


def _entry(source: str) -> tuple[object, ...]:
    try:
        status = os.stat(source)
        names = tuple(sorted(os.listdir(source))) if stat.S_ISDIR(status.st_mode) else ()
    except (OSError, ValueError) as error:
        return (source, type(error).__name__)
    if stat.S_ISDIR(status.st_mode):
        # The time of a folder also changes for files nobody loads, such as an editor's swap files.
        return (source, status.st_dev, status.st_ino, *(name for name in names if not name.startswith(".")))
    return (source, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)

"""What tells runs and definitions apart. UUIDv7 for runs: sorted by time, and growing within one process even when the
clock stands or steps back."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from datetime import datetime

import msgspec

from sexton.model.job import JobSpec, Place

RANDOM_BYTES = 1024


def definition_of(spec: JobSpec) -> str:
    """A digest of all that the job is, wherever it stands in the configuration."""
    told = msgspec.json.encode(msgspec.structs.replace(spec, place=Place("", 0, 0)))
    return hashlib.sha256(told).hexdigest()[:32]


def job_set_id_of(specs: Iterable[JobSpec]) -> str:
    """A digest of a set of jobs: the same on nodes that have the same jobs, in whatever order and from whatever
    files."""
    told = sorted(f"{spec.name}\0{definition_of(spec)}" for spec in specs)
    return hashlib.sha256("\0".join(told).encode()).hexdigest()[:16]


def bound_at(instant: datetime) -> str:
    """A bound between the ids that were made before an instant and those made from then on. To the millisecond."""
    value = max(0, int(instant.timestamp() * 1000)) << 80 | 0x7 << 76
    return _written(value)


def _written(value: int) -> str:
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class RunIds:
    """Makes ids. 48 bits of Unix milliseconds, 12 bits of a counter within the millisecond, 62 random bits."""

    def __init__(self) -> None:
        self._last = 0
        self._random = b""

    def next(self) -> str:
        now = time.time_ns() // 1_000_000 << 12
        self._last = max(now, self._last + 1)
        value = (self._last >> 12) << 80 | 0x7 << 76 | (self._last & 0xFFF) << 64 | 0b10 << 62
        if not self._random:
            self._random = os.urandom(RANDOM_BYTES)  # asking the kernel for each id costs more than all the rest of it
        value |= int.from_bytes(self._random[:8], "big") >> 2
        self._random = self._random[8:]
        return _written(value)

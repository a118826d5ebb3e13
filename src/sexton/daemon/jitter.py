"""How much later than its instant a scheduled launch comes. Pure."""

from __future__ import annotations

import hashlib
from datetime import datetime

from sexton.model.job import JobSpec


def jitter_of(job: JobSpec, scheduled_for: datetime) -> float:
    """Seconds from 0 to below `jitter`: by the job's name and the instant, so that it is the same whoever asks."""
    return 0.0 if not job.jitter else share(f"{job.name} {scheduled_for.isoformat()}") * job.jitter


def share(seed: str) -> float:
    """A number from 0 to below 1 that the seed decides."""
    return int.from_bytes(hashlib.sha256(seed.encode("utf-8", "surrogateescape")).digest()[:7]) / 2**56

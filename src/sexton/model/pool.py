"""Pools: slots that jobs share, and the ticket of a run that waits for some of them."""

from __future__ import annotations

from datetime import datetime

import msgspec


class PoolSettings(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One pool as the configuration defines it."""

    name: str
    slots: int
    """How many slots its runs may hold at the same time, all together."""
    max_queued: int = 1000
    """How many runs may wait; a launch beyond is refused."""


class PoolUse(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What a job takes from its pool, and how its runs wait for it."""

    name: str
    slots: int = 1
    priority: int = 0
    """Higher goes first."""
    timeout: float = 3600.0
    """Seconds a run may wait; then it is skipped."""


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A run's place in the queue of a pool. Durable with the run: its instants are wall clock, UTC."""

    pool: str
    slots: int
    priority: int
    since: datetime
    """What counts for the order. A run that replaces a waiting one takes its turn."""
    expires_at: datetime
    definition: str
    """Digest of the job's definition: after a restart a changed job's run is not started."""

"""May it start now? One pure decision for every launch, whatever asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import assert_never

import msgspec

from sexton.model.job import ConcurrencyPolicy, JobSpec
from sexton.model.run import Trigger


class Refusal(Enum):
    STILL_RUNNING = "still running"
    UNCONFIRMED = "unconfirmed"
    """A run of the job was stopped, is not proven gone, and keeps its place."""
    TOO_MANY = "too many"
    """The job may have so many instances and no more."""
    QUEUE_FULL = "queue full"
    """As many runs wait for the job's pool as may."""
    DISABLED = "disabled"
    SHUTTING_DOWN = "shutting down"
    SLOT_HELD = "slot held"
    """Another node has the job's slot in the cluster."""
    SLOT_UNKNOWN = "slot unknown"
    """The store did not say whether the job's slot is free, and nothing starts without it."""


class Start(msgspec.Struct, frozen=True):
    """Launch at once."""


class Replace(msgspec.Struct, frozen=True):
    """Stop these runs, then launch when they have ended."""

    victims: tuple[str, ...]


class Wait(msgspec.Struct, frozen=True):
    """Take a place in the queue of the job's pool. The overlap policy has its say when its turn comes."""

    pool: str


class Refuse(msgspec.Struct, frozen=True):
    """Do not launch; nothing else changes."""

    refusal: Refusal
    message: str


Turn = Start | Replace | Refuse
Admission = Turn | Wait


def decide(
    job: JobSpec, trigger: Trigger, running: Sequence[str], unconfirmed: Sequence[str] = (), *, shutting_down: bool,
) -> Admission:
    """Decide what becomes of a launch now; see `overlap` for the arguments."""
    if shutting_down:
        return Refuse(Refusal.SHUTTING_DOWN, f"job {job.name!r} is not started: the daemon is shutting down")
    if not job.enabled:
        return Refuse(Refusal.DISABLED, f"job {job.name!r} is disabled")
    return Wait(job.pool.name) if job.pool is not None else overlap(job, running, unconfirmed)


def overlap(job: JobSpec, running: Sequence[str], unconfirmed: Sequence[str] = ()) -> Turn:
    """Apply the overlap policy. `running` are the ids of the job's instances that have not ended, `unconfirmed` of
    those that were stopped and keep their place because nobody could prove them gone.

    An instance that has ended does not count, even before its run is recorded (binding page, "Concurrency policy"), and
    neither does one that waits for its pool.
    """
    if not running and not unconfirmed:
        return Start()
    match job.concurrency_policy:
        case ConcurrencyPolicy.ALLOW if job.max_instances is not None and (
            len(running) + len(unconfirmed) >= job.max_instances
        ):
            return Refuse(Refusal.TOO_MANY, _too_many(job.name, job.max_instances, unconfirmed))
        case ConcurrencyPolicy.ALLOW:
            return Start()
        case ConcurrencyPolicy.FORBID if not running:
            return Refuse(
                Refusal.UNCONFIRMED,
                f"job {job.name!r}: run {unconfirmed[0]} could not be terminated and keeps its place until it is gone "
                f"or abandoned (whenUnconfirmed: hold), and concurrencyPolicy is Forbid",
            )
        case ConcurrencyPolicy.FORBID:
            return Refuse(
                Refusal.STILL_RUNNING,
                f"job {job.name!r} is still running and concurrencyPolicy is Forbid",
            )
        case ConcurrencyPolicy.REPLACE:
            return Replace((*running, *unconfirmed))
        case _:
            assert_never(job.concurrency_policy)


def _too_many(name: str, most: int, unconfirmed: Sequence[str]) -> str:
    also = f", {len(unconfirmed)} of them not terminated yet" if unconfirmed else ""
    return f"job {name!r} has as many instances as it may (maxInstances {most}{also})"

"""What becomes of a launch that asked for its slot in the cluster (binding page, "Concurrency across a cluster")."""

from __future__ import annotations

from typing import assert_never

import msgspec

from sexton.admission.decide import Refusal, Refuse
from sexton.model.job import ConcurrencyPolicy, JobSpec
from sexton.model.settings import OnStoreUnavailable


class Enter(msgspec.Struct, frozen=True):
    """It may start: with the slot, or without it on this node's own account."""


class Pursue(msgspec.Struct, frozen=True):
    """Ask the holder to yield, and wait for that."""


SlotTurn = Enter | Pursue | Refuse


def when_held(job: JobSpec, node: str) -> SlotTurn:
    """Another node has the slot."""
    match job.concurrency_policy:
        case ConcurrencyPolicy.REPLACE:
            return Pursue()
        case ConcurrencyPolicy.FORBID | ConcurrencyPolicy.ALLOW:  # the check of the configuration refuses Allow
            return Refuse(
                Refusal.SLOT_HELD,
                f"its cluster concurrency slot is held by {node} (concurrencyPolicy: Forbid, concurrencyScope: "
                "cluster)",
            )
        case _:
            assert_never(job.concurrency_policy)


def when_unanswered(why: str, policy: OnStoreUnavailable) -> SlotTurn:
    """The store did not say whether the slot is free."""
    match policy:
        case OnStoreUnavailable.DEGRADE:
            return Enter()
        case OnStoreUnavailable.FAIL_CLOSED:
            return Refuse(
                Refusal.SLOT_UNKNOWN,
                f"cannot claim its cluster concurrency slot ({why}) and onStoreUnavailable is fail-closed",
            )
        case _:
            assert_never(policy)


def when_moved(node: str) -> Refuse:
    """The store was changed while the holder was waited for. In the new one the slot may be free while the holder,
    which knows the old one, still runs: no run rather than two."""
    return Refuse(
        Refusal.SLOT_HELD,
        f"the store was moved while {node} was asked to yield its cluster concurrency slot in the other",
    )


def when_outwaited(node: str, seconds: float) -> Refuse:
    """The holder did not yield in time: no run rather than two."""
    return Refuse(
        Refusal.SLOT_HELD,
        f"{node} did not yield its cluster concurrency slot within {seconds:g} seconds",
    )

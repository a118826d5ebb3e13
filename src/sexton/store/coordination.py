"""What daemons that share a store ask of it to agree with each other: leases, signals, nodes and fires.

One store object implements all of these beside `Ledger` and `JobState`. `tests/contract/test_coordination.py` runs one
suite over every implementation. Every method raises StoreError when the store cannot answer: the caller then knows
nothing, not even whether what it asked for was done. Callers bound every call in time (`bounded`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from sexton.model.errors import StoreError
from sexton.model.node import NodeFacts, NodeIdentity
from sexton.model.run import RunRecord
from sexton.store.port import JobHistory, JobState, Ledger

if TYPE_CHECKING:
    from sexton.store.queue import Queue

T = TypeVar("T")

OPERATION_SECONDS = 10.0
"""How long an operation of the store may take before it counts as unanswered."""


def boottime() -> float:
    """Seconds since boot, sleep included: a machine that was suspended does not believe in its old leases."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


async def bounded(operation: Coroutine[Any, Any, T], seconds: float = OPERATION_SECONDS) -> T:
    """Raises StoreError, also when there is no answer in time."""
    try:
        async with asyncio.timeout(seconds):
            return await operation
    except TimeoutError:
        raise StoreError(f"the store did not answer within {seconds:g} seconds") from None


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Permission that one node has for a while, and renews for as long as it needs it."""

    name: str
    holder: str
    """`NodeIdentity.id`."""
    node: str
    """The holder's display name."""
    fence: int
    """Grows with every change of owner, and never falls: whoever shows an older one is stale."""


class Granted(msgspec.Struct, frozen=True, kw_only=True):
    """The lease is the claimant's."""

    lease: Lease
    taken_from: Lease | None = None
    """It had another holder, who fell silent: its lease lapsed, it did not release it."""


class Denied(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody else has it."""

    by: Lease
    lapses_in: float
    """Seconds until it lapses if its holder renews it no more, as far as this store can tell."""


class Leases(Protocol):
    """Leases by name. Claim, renewal and release of one name are atomic: of any number of contenders, on any number of
    nodes, at most one is granted it while it has not lapsed.

    Duties. Time is the store's own: no clock of a node may make a live lease look lapsed or a dead one live. A lease
    lapses `ttl` seconds after its last renewal *began*, and not before. Where one before it was for longer it may lapse
    then. Nobody's renewal that comes late makes it shorter. The fence of a name survives release, restart
    and crash. What returned is durable where the ledger is.
    """

    async def claim(
        self, name: str, by: NodeIdentity, ttl: float, *, heir_of: str | None = None,
    ) -> Granted | Denied:
        """Take the lease if it is free, lapsed, or the claimant's already (then it is renewed, with its fence: a claim
        whose answer was lost may be asked again). Also, with a higher fence, if `heir_of` holds it: a process that the
        claimant has proven dead, and whose run it has taken over."""

    async def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        """Keep it for `ttl` seconds from now. One that has lapsed but that nobody took is still its holder's. One that
        vanished with the store's memory is claimed anew, with a higher fence. Denied: it is another's now."""

    async def release(self, lease: Lease) -> bool:
        """Give it up, if it is exactly this one (holder and fence); False when it was not, and nothing happened."""

    async def read(self, name: str) -> Denied | None:
        """Who has it and for how long yet; None while it is free or lapsed."""


class SignalKind(Enum):
    """What one node asks of another."""

    CANCEL = "cancel"
    """End a run."""
    YIELD = "yield"
    """End what runs under a lease, so that the sender can have it."""
    ABANDON = "abandon"
    """Give up the place of a run that could not be proven gone."""


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A request to one node. It says exactly what it is about, so that a late one does nothing."""

    to: str
    """`NodeIdentity.id`: a process that is gone is asked for nothing."""
    kind: SignalKind
    sender: str
    """Display name of the node that asks."""
    run: str | None = None
    lease: str | None = None
    fence: int | None = None
    requested_by: str | None = None
    reason: str | None = None
    force: bool = False


class Signals(Protocol):
    """Mail between nodes, each with one inbox.

    Duties. Several senders never overwrite each other. `take` returns each signal once, in the order of sending per
    sender. `signalled` is a hint: it may return early, late, or never in time; taking is the truth.
    """

    async def send(self, signal: Signal) -> None: ...

    async def take(self, me: str) -> Sequence[Signal]:
        """All that was sent to this node since the last call, and forget it."""
        ...

    async def signalled(self, me: str, within: float) -> None:
        """Return when something may have come, at the latest after `within` seconds."""


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the others see it."""

    facts: NodeFacts
    silent_for: float
    """Seconds since its last heartbeat, by the store's clock."""
    clock_offset: float
    """How far the node's wall clock was ahead of the store's at that heartbeat, in seconds."""


class Nodes(Protocol):
    """Who is there."""

    async def announce(self, facts: NodeFacts) -> None:
        """A heartbeat. The newest one of a node counts."""

    async def leave(self, node: str) -> None:
        """Forget a node (by `NodeIdentity.id`): one that ended cleanly, or one whose runs have all been settled."""

    async def nodes(self) -> Sequence[Presence]:
        """Everyone who has announced itself and not left."""
        ...


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence that a node has claimed."""

    scheduled_for: datetime
    by: str
    """`NodeIdentity.id`."""


class Occurrence(NamedTuple):
    """One of a job's instants."""

    job: str
    scheduled_for: datetime


class Claimed(msgspec.Struct, frozen=True):
    """What a round of claims has decided. An occurrence that is in none of the sets is not decided yet: ask
    again."""

    ours: frozenset[Occurrence] = frozenset()
    others: frozenset[Occurrence] = frozenset()
    doubtful: frozenset[Occurrence] = frozenset()
    """The store may have forgotten a claim of them, and does not take another one."""


class Fires(Protocol):
    """One fire for a whole fleet: an occurrence belongs to the first node that claims it.

    Duties. Of any number of contenders exactly one is told True, once and for all; its claim is durable where the
    ledger is. A claimant that asks again (its answer was lost) is told True again.
    """

    async def claim_fire(self, job: str, scheduled_for: datetime, by: NodeIdentity) -> bool: ...

    async def claim_fires(self, wanted: Sequence[Occurrence], by: NodeIdentity, most: int) -> Claimed:
        """As `claim_fire`, for many (some hundreds) in one round: those that somebody has are looked up, and of the
        others up to `most` (one or more) are claimed, the first in `wanted` first. Of two rounds in a row at least one
        decides something. Who is refused writes nothing. Contenders with whatever lists never wait for each other in a
        circle. Where it raises StoreError some may have been claimed."""
        ...

    async def fired(self, job: str, since: datetime) -> Sequence[Fire]:
        """The instants of the job from `since` on that somebody has claimed, in order."""
        ...

    async def forget_fires(self, before: datetime) -> None:
        """Claims of instants before this one are of no use any more."""


class Interrupted(Protocol):
    """What a node that fell silent has left in the ledger."""

    async def unfinished_of(self, node: str) -> Sequence[RunRecord]:
        """Runs without a record whose intent was written by this node (`Launch.daemon`), oldest first."""
        ...


class News(Protocol):
    """What other nodes have recorded."""

    async def news(self, per_job: int) -> Mapping[str, JobHistory]:
        """`Ledger.history` of the jobs that other openings of the store may have recorded runs of since the last call
        on this one (the first call: since it was opened); a job too many does no harm, one too few does."""
        ...


class Coordination(Leases, Signals, Nodes, Fires, Interrupted, News, Protocol):
    """All of it, as one store gives it."""


class Store(Ledger, JobState, Coordination, Protocol):
    """Everything a daemon asks of a store."""

    @property
    def queue(self) -> Queue | None:
        """None where `Capabilities.queue` says so."""

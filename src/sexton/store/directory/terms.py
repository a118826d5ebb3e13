"""What a claim, a renewal or a release of a lease comes to: pure, from what stands in the store now."""

from __future__ import annotations

import msgspec

from sexton.model.node import NodeIdentity
from sexton.store.coordination import Denied, Granted, Lease


class Term(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease file holds. It is never changed: the next one has the next number."""

    name: str
    holder: str | None
    """None: released."""
    node: str
    fence: int
    ttl: float


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A lease as it is found."""

    term: Term | None
    """None: nobody has ever had it, as far as the store knows."""
    remaining: float = 0.0
    """Seconds until it lapses; 0 or less when it has."""
    fence: int = 0
    """The highest fence that may have been given out."""

    @property
    def lease(self) -> Lease | None:
        """None while it is nobody's. A lapsed one is still its holder's."""
        term = self.term
        if term is None or term.holder is None:
            return None
        return Lease(name=term.name, holder=term.holder, node=term.node, fence=term.fence)


def claim(
    standing: Standing, name: str, by: NodeIdentity, ttl: float, heir_of: str | None
) -> tuple[Granted | Denied, Term | None]:
    """The answer, and what is to be written for it to be true."""
    return _claim(standing, Lease(name=name, holder=by.id, node=by.name, fence=0), ttl, heir_of)


def renew(standing: Standing, lease: Lease, ttl: float) -> tuple[Granted | Denied, Term | None]:
    """As `claim`; a lease that vanished with the store comes back with a higher fence than it had."""
    if standing.lease == lease:
        return Granted(lease=lease), _term(lease, ttl)
    known = msgspec.structs.replace(standing, fence=max(standing.fence, lease.fence))
    return _claim(known, lease, ttl, None)


def release(standing: Standing, lease: Lease) -> tuple[bool, Term | None]:
    """True, and what is to be written, for exactly the lease that stands there."""
    if standing.lease != lease:
        return False, None
    return True, Term(name=lease.name, holder=None, node=lease.node, fence=lease.fence, ttl=0.0)


def raise_fence(standing: Standing, name: str, fence: int) -> tuple[None, Term | None]:
    """What is to be written for the next owner's fence to be higher than this one. What somebody has is left alone."""
    if standing.lease is not None or standing.fence >= fence:
        return None, None
    return None, Term(name=name, holder=None, node="", fence=fence, ttl=0.0)


def _claim(
    standing: Standing, wanted: Lease, ttl: float, heir_of: str | None
) -> tuple[Granted | Denied, Term | None]:
    held = standing.lease
    if held is not None and held.holder == wanted.holder:
        return Granted(lease=held), _term(held, ttl)
    inherited = held is not None and held.holder == heir_of
    if held is not None and standing.remaining > 0 and not inherited:
        return Denied(by=held, lapses_in=standing.remaining), None
    lease = msgspec.structs.replace(wanted, fence=standing.fence + 1)
    return Granted(lease=lease, taken_from=None if inherited else held), _term(lease, ttl)


def _term(lease: Lease, ttl: float) -> Term:
    return Term(name=lease.name, holder=lease.holder, node=lease.node, fence=lease.fence, ttl=ttl)

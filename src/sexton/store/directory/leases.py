"""Leases on a mount. A lease is a folder, and what stands in it is the file with the highest number.

Whoever changes a lease writes the file with the next number, by `link`, which one of any number of contenders succeeds
in. No lock is needed, so none can be lost: not by a process that is stopped while it holds one, and not by a client
that was cut off so long that its server gave its locks to others, and that then comes back with a rename it had begun.
The highest number is never removed, so numbers and fences never fall.

The draft that becomes the next file is made in the lease's own folder before that is listed. It gives the time by the
file system's clock, and makes a network file system look at the folder anew.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec

from sexton.model.errors import StoreError, UntrustedLocks
from sexton.model.node import NodeIdentity
from sexton.store.coordination import Denied, Granted, Lease, boottime
from sexton.store.directory import terms
from sexton.store.directory.age import Sighting, age, seen
from sexton.store.directory.files import Draft, Files, link, names, read, remove, sync
from sexton.store.directory.names import encoded
from sexton.store.directory.terms import Standing, Term
from sexton.store.directory.threads import check_wanted

log = logging.getLogger(__name__)

ATTEMPTS = 200
"""At one change. Each that fails means that somebody else has succeeded."""

UNREADABLE_TTL = 120.0
"""Seconds after which a lease lapses whose file is damaged: whose it was, and for how long, nobody knows."""
UNKNOWN_HOLDER = "unknown"

_decode = msgspec.json.Decoder(Term).decode
Answer = TypeVar("Answer")


class LeaseFiles:
    """For the threads of leases. Raises StoreError and OSError."""

    def __init__(self, files: Files, clock: Callable[[], float] = boottime) -> None:
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()
        self._sightings: dict[str, Sighting] = {}
        self._terms: dict[str, tuple[int, Term]] = {}
        """The latest that was read or written here, with its number: should its file be damaged."""
        self._fences: dict[str, int] = {}
        self.untrusted: str | None = None

    def claim(self, name: str, by: NodeIdentity, ttl: float, heir_of: str | None) -> Granted | Denied:
        self._check_trust()
        return self._change(name, lambda standing: terms.claim(standing, name, by, ttl, heir_of))

    def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        self._check_trust()
        return self._change(lease.name, lambda standing: terms.renew(standing, lease, ttl))

    def release(self, lease: Lease) -> bool:
        return self._change(lease.name, lambda standing: terms.release(standing, lease))

    def raise_fence(self, name: str, fence: int) -> None:
        """Whoever has it next has a higher fence than this one."""
        self._change(name, lambda standing: terms.raise_fence(standing, name, fence))

    def read(self, name: str) -> Denied | None:
        if not os.path.isdir(self._folder(name)):
            return None
        standing = self._change(name, lambda standing: (standing, None))
        held = standing.lease
        return None if held is None or standing.remaining <= 0 else Denied(by=held, lapses_in=standing.remaining)

    def _change(self, name: str, decide: Callable[[Standing], tuple[Answer, Term | None]]) -> Answer:
        """Decide on what stands there, and write what follows from it; again whenever somebody else was faster."""
        folder = self._folder(name)
        for _ in range(ATTEMPTS):
            with self._files.draft(folder) as draft:
                number, standing = self._look(name, folder, draft)
                answer, term = decide(standing)
                if term is None:
                    return answer
                began = self._clock()
                draft.write(msgspec.json.encode(term))
                check_wanted()
                if self._write(folder, number + 1, draft):
                    self._remember(name, number + 1, term, began)
                    return answer
        raise StoreError(f"the lease {name} could not be changed: others change it all the time")

    def _write(self, folder: str, number: int, draft: Draft) -> bool:
        """False: somebody else was faster, and has perhaps been followed by others."""
        path = path_of(folder, number)
        if not link(draft.path, path):
            return False
        present = numbers(folder)
        if present and max(present) > number:
            remove(path)
            return False
        sync(folder)
        for older in present:
            if older < number:
                remove(path_of(folder, older))
        return True

    def _look(self, name: str, folder: str, draft: Draft) -> tuple[int, Standing]:
        """The highest number there is, and what its file means now."""
        began = self._clock()
        for _ in range(ATTEMPTS):
            number = max(numbers(folder), default=0)
            with self._lock:
                fence = self._fences.get(name, 0)
            if number == 0:
                self._see(name, 0, began)
                return 0, Standing(term=None, fence=fence)
            try:
                stamp = os.stat(path_of(folder, number)).st_mtime_ns
                term = self._read(name, folder, number, fence)
            except FileNotFoundError:
                continue  # it was followed by the next one
            sighting = self._see(name, number, began, term)
            remaining = term.ttl - age(stamp, draft.now, sighting)
            return number, Standing(term=term, remaining=remaining, fence=max(fence, term.fence))
        raise StoreError(f"the lease {name} could not be read: others change it all the time")

    def _read(self, name: str, folder: str, number: int, fence: int) -> Term:
        content = read(path_of(folder, number))
        try:
            return _decode(content)
        except msgspec.MsgspecError as error:
            with self._lock:
                known = self._terms.get(name)
            if known is not None and known[0] == number:
                return known[1]
            log.error("the lease file %s is damaged (%s): the lease counts as held for %g seconds",
                      path_of(folder, number), error, UNREADABLE_TTL)
            fence = max(fence, number)
            return Term(name=name, holder=UNKNOWN_HOLDER, node=UNKNOWN_HOLDER, fence=fence, ttl=UNREADABLE_TTL)

    def _see(self, name: str, number: int, began: float, term: Term | None = None) -> Sighting:
        ended = self._clock()
        with self._lock:
            sighting = self._sightings[name] = seen(self._sightings.get(name), number, began=began, ended=ended)
            if term is not None:
                self._terms[name] = number, term
                self._fences[name] = max(self._fences.get(name, 0), term.fence)
        return sighting

    def _remember(self, name: str, number: int, term: Term, began: float) -> None:
        self._see(name, number, began, term)

    def _folder(self, name: str) -> str:
        return self._files.path("leases", encoded(name))

    def _check_trust(self) -> None:
        if self.untrusted is not None:
            raise UntrustedLocks(self.untrusted)


def path_of(folder: str, number: int) -> str:
    """The file of a lease in its folder that has this number."""
    return os.path.join(folder, f"{number:020d}.json")


def numbers(folder: str) -> list[int]:
    """Of the files of a lease; the highest stands."""
    return [int(name[:-5]) for name in names(folder) if name.endswith(".json") and name[:-5].isdigit()]

"""Signals, nodes and fires: a file for each letter, each heartbeat and each occurrence that was claimed.

For the threads of leases. Raises StoreError and OSError.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from sexton.model.errors import StoreError
from sexton.model.node import NodeFacts, NodeIdentity
from sexton.store.coordination import Claimed, Fire, Occurrence, Presence, Signal, boottime
from sexton.store.directory.age import Sighting, age, seen
from sexton.store.directory.files import Files, names, read, remove, sync
from sexton.store.directory.names import EPOCH, encoded, instant_file, instant_of

log = logging.getLogger(__name__)

LETTERS_AT_ONCE = 1000
ROUND_SECONDS = 0.1
"""How long a round of claims may take: what is ours is to start, not to wait for the rest."""

_signal = msgspec.json.Decoder(Signal).decode
_facts = msgspec.json.Decoder(NodeFacts).decode


class FireFile(msgspec.Struct, frozen=True):
    """What the file of a claimed occurrence holds."""

    by: str
    """`NodeIdentity.id`."""
    job: str
    scheduled_for: datetime


_fire = msgspec.json.Decoder(FireFile).decode


class Letters:
    """An inbox is a folder; a letter's name says when it was sent, by the file system's clock and within its sender."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._sender = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._last = 0

    def send(self, signal: Signal) -> None:
        with self._files.draft() as draft:
            draft.write(msgspec.json.encode(signal))
            with self._lock:
                self._last = sent = max(self._last + 1, draft.now)
            path = self._files.path("signals", encoded(signal.to), f"{sent:020d}-{self._sender}.json")
            self._files.move(draft, path)
        sync(os.path.dirname(path))

    def take(self, me: str) -> list[Signal]:
        folder = self._files.path("signals", encoded(me))
        taken: list[Signal] = []
        for name in sorted(names(folder))[:LETTERS_AT_ONCE]:
            path = os.path.join(folder, name)
            try:
                content = read(path)
                signal = _signal(content)
            except FileNotFoundError:
                continue
            except msgspec.MsgspecError as error:
                self._files.quarantine(path, error)
                continue
            if remove(path):
                taken.append(signal)
        return taken

    def any_for(self, me: str) -> bool:
        return bool(names(self._files.path("signals", encoded(me))))

    def drop(self, me: str) -> None:
        folder = self._files.path("signals", encoded(me))
        for name in names(folder):
            remove(os.path.join(folder, name))
        try:
            os.rmdir(folder)
        except OSError:
            pass  # there was none, or somebody has written once more


class Heartbeats:
    """The modification time of a node's file is its latest heartbeat by the file system's clock."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._sightings: dict[str, Sighting] = {}
        self._lock = threading.Lock()

    def announce(self, facts: NodeFacts) -> None:
        self._files.put(msgspec.json.encode(facts), self._path(facts.identity.id))

    def leave(self, node: str) -> None:
        remove(self._path(node))

    def all(self, *, set_aside: bool = True) -> list[Presence]:
        """Everybody who has announced itself; damaged files are moved away, or only left out."""
        began, now = boottime(), self._files.now()
        folder = self._files.path("nodes")
        found: list[Presence] = []
        for name in sorted(names(folder)):
            path = os.path.join(folder, name)
            try:
                stamp = os.stat(path).st_mtime_ns
                facts = _facts(read(path))
            except FileNotFoundError:
                continue
            except msgspec.MsgspecError as error:
                if set_aside:
                    self._files.quarantine(path, error)
                continue
            with self._lock:
                sighting = self._sightings[name] = seen(
                    self._sightings.get(name), stamp, began=began, ended=boottime())
            offset = (facts.clock - EPOCH).total_seconds() - stamp / 1e9
            found.append(Presence(facts=facts, silent_for=age(stamp, now, sighting), clock_offset=offset))
        with self._lock:
            for gone in self._sightings.keys() - {encoded(one.facts.identity.id) + ".json" for one in found}:
                del self._sightings[gone]
        return found

    def _path(self, node: str) -> str:
        return self._files.path("nodes", encoded(node) + ".json")


class Occurrences:
    """An occurrence that somebody has claimed is a file that was there before anybody else's."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def claim(self, job: str, scheduled_for: datetime, by: NodeIdentity) -> bool:
        path = self._path(job, scheduled_for)
        fire = FireFile(by=by.id, job=job, scheduled_for=scheduled_for.astimezone(UTC))
        if self._files.put_once(msgspec.json.encode(fire), path):
            return True
        return self._claimed_by(path) == by.id

    def claim_some(self, wanted: Sequence[Occurrence], by: NodeIdentity, most: int) -> Claimed:
        """As long as the round may take. One that fails in the middle tells what it has decided until then."""
        ours, others, end = set[Occurrence](), set[Occurrence](), time.monotonic() + ROUND_SECONDS
        try:
            for one in wanted:
                owner = self._claimed_by(self._path(*one))  # looking is cheap: it is most often another node's
                if owner is None and most > 0:
                    most -= 1
                    owner = by.id if self.claim(*one, by) else ""
                if owner is not None:
                    (ours if owner == by.id else others).add(one)
                if time.monotonic() > end:
                    break
        except (OSError, StoreError) as failure:
            if not ours and not others:
                raise
            log.debug("a round of claims ended early: %s", failure)
        return Claimed(frozenset(ours), frozenset(others))

    def _path(self, job: str, scheduled_for: datetime) -> str:
        return self._files.path("fires", encoded(job), instant_file(scheduled_for))

    @staticmethod
    def _claimed_by(path: str) -> str | None:
        """None: by nobody. Empty where that cannot be told."""
        try:
            return _fire(read(path)).by
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            log.error("%s is damaged (%s): the occurrence counts as another node's", path, error)
            return ""

    def claimed(self, job: str, since: datetime) -> list[Fire]:
        folder = self._files.path("fires", encoded(job))
        found = [(instant, name) for name in names(folder)
                 if (instant := instant_of(name)) is not None and instant >= since]
        return [Fire(scheduled_for=instant, by=self._owner(os.path.join(folder, name)))
                for instant, name in sorted(found)]

    @staticmethod
    def _owner(path: str) -> str:
        """Empty where it cannot be read: then it is nobody's that could be named."""
        try:
            return _fire(read(path)).by
        except (OSError, msgspec.MsgspecError) as error:
            log.error("%s cannot be read: %s", path, error)
            return ""

    def forget(self, before: datetime) -> None:
        for job in names(self._files.path("fires")):
            folder = self._files.path("fires", job)
            for name in names(folder):
                instant = instant_of(name)
                if instant is not None and instant < before:
                    remove(os.path.join(folder, name))
            try:
                os.rmdir(folder)
            except OSError:
                pass  # there is something left in it



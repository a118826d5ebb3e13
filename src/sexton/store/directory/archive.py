"""The files of a shared directory for backups and checks: read as they are, beside the daemons, and never moved."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from sexton.model.errors import StoreError
from sexton.model.node import NodeFacts
from sexton.model.run import RunRecord
from sexton.store.archive import (
    Counts,
    Fence,
    Fired,
    Item,
    NoStore,
    Recorded,
    Remark,
    StateValue,
    StoreKind,
    Unfinished,
)
from sexton.store.directory import reading
from sexton.store.directory.files import QUARANTINE, Files, names, read
from sexton.store.directory.leases import numbers, path_of
from sexton.store.directory.names import decoded, entry_of, instant_of
from sexton.store.directory.post import FireFile, Heartbeats
from sexton.store.directory.probe import examine
from sexton.store.directory.root import KIND, META, SCHEMA, Meta, deployment_folder
from sexton.store.directory.shelves import Shelf
from sexton.store.directory.terms import Term

SILENT_SECONDS = 60.0
"""A node whose latest heartbeat is older is gone, or as good as that."""

T = TypeVar("T")


class DirectoryArchive:
    """Implements `Archive`, but it is not of one moment: other nodes may write while it is read."""

    kind = StoreKind.DIRECTORY
    one_moment = False

    def __init__(self, path: str | Path, deployment_id: str = "default") -> None:
        """Raises StoreError; NoStore where there is no store."""
        self.directory = deployment_folder(path, deployment_id)
        self.damaged: list[str] = []
        self._files = Files(str(self.directory))
        self._silent: dict[str, float] | None = None
        self.schema_version = self._read_meta()

    def _read_meta(self) -> int:
        path = self._files.path(META)
        try:
            meta = msgspec.json.decode(read(path), type=Meta)
        except FileNotFoundError:
            raise NoStore(f"there is no store in {self.directory}") from None
        except msgspec.MsgspecError as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error
        if meta.store != KIND:
            raise StoreError(f"{self.directory} holds the store of another program")
        if meta.schema_version > SCHEMA:
            raise StoreError(f"{self.directory} has schema {meta.schema_version}, written by a newer Sexton; this one "
                             f"knows schemas up to {SCHEMA}")
        return meta.schema_version

    def counts(self) -> Counts:
        """By the names of files."""
        return _explained(self._counts)

    def _counts(self) -> Counts:
        return Counts(
            recorded=sum(len(self._shelf(folder)) for folder in self._names("runs")),
            unfinished=len(self._names("open")),
            states=sum(len(self._names("state", key)) for key in self._names("state")),
            fences=len(self._names("leases")),
            fires=sum(len(self._names("fires", job)) for job in self._names("fires")),
        )

    def items(self) -> Iterator[Item]:
        """Intents are read first: a run that is recorded meanwhile is then found twice, and counts once."""
        intents = list(self._all(RunRecord, "open"))
        recorded: set[str] = set()
        open_ids = {intent.launch.id for intent in intents}
        for folder in self._names("runs"):
            for entry in self._shelf(folder).by_end:
                record = self._read(RunRecord, "runs", folder, entry.file)
                if record is not None:
                    if record.launch.id in open_ids:
                        recorded.add(record.launch.id)
                    yield Recorded(record)
        yield from (Unfinished(intent) for intent in intents if intent.launch.id not in recorded)
        for key in self._names("state"):
            for kept in self._all(reading.StateValue, "state", key):
                yield StateValue(kept.job, kept.key, kept.value)
        yield from self._fences()
        for job in self._names("fires"):
            for name in self._names("fires", job):
                if instant_of(name) is not None and (fire := self._read(FireFile, "fires", job, name)) is not None:
                    yield Fired(fire.job, fire.scheduled_for, fire.by)

    def _fences(self) -> Iterator[Fence]:
        """Of a damaged lease what its number says: no fence is higher."""
        for folder in self._names("leases"):
            where = self._files.path("leases", folder)
            for _ in range(3):  # it may be followed by the next number while it is read
                number = max(_explained(lambda where=where: numbers(where)), default=0)  # type: ignore[misc]
                term = None if number == 0 else self._read(Term, "leases", folder, path_of("", number))
                if term is not None:
                    yield Fence(term.name, term.fence)
                elif number and (name := decoded(folder)) is not None and os.path.exists(path_of(where, number)):
                    yield Fence(name, number)
                else:
                    continue
                break

    def is_live(self, daemon: str) -> bool | None:
        if self._silent is None:
            try:
                found = Heartbeats(self._files).all(set_aside=False)
            except OSError:
                return None  # the file system's clock cannot be asked: nothing can be written
            self._silent = {presence.facts.identity.id: presence.silent_for for presence in found}
        return self._silent.get(daemon, SILENT_SECONDS) < SILENT_SECONDS

    def examine(self) -> Sequence[Remark]:
        """Locks are tried with files of its own, which are gone afterwards."""
        remarks = []
        try:
            if (untrusted := examine(self._files)) is not None:
                remarks.append(Remark(damage=True, text=f"leases cannot be trusted here: {untrusted}"))
            else:
                remarks.append(Remark(damage=False, text="locks and exclusive names can be trusted"))
        except OSError as error:
            remarks.append(Remark(damage=True, text=f"locks could not be tried: {error.strerror or error}"))
        if set_aside := self._names(QUARANTINE):
            remarks.append(Remark(damage=False, text=f"{len(set_aside)} damaged files are in {QUARANTINE}/, set aside "
                                                     f"by daemons ({set_aside[0]})"))
        for facts in self._all(NodeFacts, "nodes"):
            node = facts.identity.id
            state = {True: "is there", False: "is silent", None: "has announced itself"}[self.is_live(node)]
            remarks.append(Remark(damage=False, text=f"node {node} {state}"))
        return remarks

    def close(self) -> None:
        pass

    def _shelf(self, folder: str) -> Shelf:
        return Shelf({name: entry for name in self._names("runs", folder) if (entry := entry_of(name)) is not None})

    def _names(self, *parts: str) -> list[str]:
        return sorted(_explained(lambda: names(self._files.path(*parts))))

    def _all(self, kind: type[T], *parts: str) -> Iterator[T]:
        for name in self._names(*parts):
            if (found := self._read(kind, *parts, name)) is not None:
                yield found

    def _read(self, kind: type[T], *parts: str) -> T | None:
        """None for a file that is gone, or damaged."""
        def load() -> bytes | None:
            try:
                return read(self._files.path(*parts))
            except FileNotFoundError:
                return None

        if (content := _explained(load)) is None:
            return None
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.MsgspecError as error:
            self.damaged.append(f"{'/'.join(parts)}: {error}")
            return None


def _explained(work: Callable[[], T]) -> T:
    try:
        return work()
    except OSError as error:
        raise StoreError(f"the store cannot be read: {error.strerror or error} ({error.filename})") from error

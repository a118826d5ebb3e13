"""Writes to the ledger's files: each run's file replaced whole, folders synced once for all that was queued."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from sexton.store.directory.changes import RunWrite, StateWrite
from sexton.store.directory.files import Files, remove, sync
from sexton.store.directory.names import Entry, encoded, entry_for
from sexton.store.directory.reading import Knowledge, Reading, StateValue
from sexton.store.directory.shelves import Shelves
from sexton.store.directory.threads import GivenUp

_encode = msgspec.json.Encoder().encode


class Placed(msgspec.Struct, frozen=True):
    """What is left to do once a file is in its place."""

    folder: str
    """To be synced."""
    obsolete: tuple[str, ...] = ()
    """To be removed after that."""


class Writing:
    """For the thread that writes, and those that help it. Raises StoreError and OSError."""

    def __init__(self, files: Files, shelves: Shelves, reading: Reading) -> None:
        self._files = files
        self._shelves = shelves
        self._reading = reading
        self._seqs: dict[str, int] = {}

    def number(self, write: RunWrite[object]) -> Entry | None:
        """Its place in the history, after all that is recorded of the job. For the writing thread only."""
        if write.record is None:
            return None
        folder = encoded(write.job)
        seq = max(self._seqs.get(folder, 0), self._shelves.at(folder).next_seq())
        self._seqs[folder] = seq + 1
        return entry_for(write.record, seq)

    def place_run(self, write: RunWrite[object], entry: Entry | None, wanted: Callable[[], bool]) -> Placed | None:
        """Durable but for its folder. None: there was nothing to do."""
        if write.record is not None and entry is not None:
            before = self._shelves.of(write.job).get(write.run_id)
            path = self._files.path("runs", encoded(write.job), entry.file)
            self._place(_encode(write.record), path, wanted)
            obsolete = [self._reading.open_path(write.run_id)]
            if before is not None and before.file != entry.file:
                obsolete.append(self._files.path("runs", encoded(write.job), before.file))
            return Placed(os.path.dirname(path), tuple(obsolete))
        match self._reading.known(write.run_id, write.job):
            case None:
                body = write.if_new
            case Knowledge.OPEN:
                body = write.if_open
            case Knowledge.RECORDED:
                body = None
        if body is None:
            return None
        path = self._reading.open_path(write.run_id)
        self._place(_encode(body), path, wanted)
        return Placed(os.path.dirname(path))

    def place_state(self, write: StateWrite[object], wanted: Callable[[], bool]) -> Placed:
        state = write.state
        path = self._reading.state_path(state.job, state.key)
        self._place(_encode(StateValue(job=state.job, key=state.key, value=state.value)), path, wanted)
        return Placed(os.path.dirname(path))

    def forget(self, job: str, keep: int) -> list[str]:
        """Remove all but the newest `keep` records. Returns the ids that we, and not another node, have removed."""
        folder = encoded(job)
        surplus = self._shelves.at(folder).all_but_newest(keep)
        gone = [entry.id for entry in surplus if remove(self._files.path("runs", folder, entry.file))]
        if gone:
            sync(self._files.path("runs", folder))
            self._shelves.at(folder)
        return gone

    def count(self, job: str) -> int:
        return len(self._shelves.of(job))

    def _place(self, content: bytes, path: str, wanted: Callable[[], bool]) -> None:
        with self._files.draft() as draft:
            draft.write(content)
            if not wanted():
                raise GivenUp("the store answered too late; nothing was written")
            self._files.move(draft, path)


def clear(obsolete: Sequence[str]) -> None:
    """What a newer file has taken the place of. A failure costs nothing but the room."""
    for path in obsolete:
        try:
            remove(path)
        except OSError:
            return



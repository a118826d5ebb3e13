"""What queued writes come to: pure folding, one file per run, whatever was asked of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar, assert_never

import msgspec

from sexton.model.run import RunRecord, intent_of
from sexton.store.batch import Change, Intend, Note, Prune, PutState, Record

RunChange = Intend | Note | Record
W = TypeVar("W")


class RunWrite(msgspec.Struct, Generic[W]):
    """What becomes of one run, and who waits for it."""

    run_id: str
    job: str
    record: RunRecord | None = None
    """The final record; it replaces whatever is known."""
    if_new: RunRecord | None = None
    """Written when the run is not known."""
    if_open: RunRecord | None = None
    """Written when the run is known and not recorded."""
    waiting: list[W] = []

    def take(self, change: RunChange) -> None:
        match change:
            case Record(record):
                self.record, self.if_new, self.if_open = record, None, None
            case Intend(launch):
                if self.record is None and self.if_new is None:
                    self.if_new = intent_of(launch)
            case Note(record):
                if self.record is None:
                    self.if_open = record
                    if self.if_new is not None:
                        self.if_new = record
            case _:
                assert_never(change)


class StateWrite(msgspec.Struct, Generic[W]):
    state: PutState
    waiting: list[W] = []


def fold(asked: Iterable[tuple[Change, W]]) -> Sequence[RunWrite[W] | StateWrite[W]]:
    """In the order of the calls: runs by their last change that counts, states by their last value; no prunes."""
    runs: dict[str, RunWrite[W]] = {}
    states: dict[tuple[str, str], StateWrite[W]] = {}
    for change, waiter in asked:
        match change:
            case PutState(job, key):
                state = states.setdefault((job, key), StateWrite(change))
                state.state = change
                state.waiting.append(waiter)
            case Prune():
                raise AssertionError("a prune is carried out by itself")
            case Intend() | Note() | Record():
                launch = change.launch if isinstance(change, Intend) else change.record.launch
                if isinstance(change, Record):  # ties in a history go by the order of recording
                    earlier = runs.pop(launch.id, None)
                    run = RunWrite(launch.id, launch.job, waiting=[] if earlier is None else earlier.waiting)
                    runs[launch.id] = run
                else:
                    run = runs.setdefault(launch.id, RunWrite(launch.id, launch.job))
                run.take(change)
                run.waiting.append(waiter)
            case _:
                assert_never(change)
    return [*runs.values(), *states.values()]

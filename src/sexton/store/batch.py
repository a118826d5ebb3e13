"""What a group of queued writes comes to: pure folding, one row per run, whatever was asked of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import assert_never

import msgspec

from sexton.model.run import Launch, RunRecord, intent_of
from sexton.store.port import ended_at

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Intend(msgspec.Struct, frozen=True):
    launch: Launch


class Note(msgspec.Struct, frozen=True):
    record: RunRecord


class Record(msgspec.Struct, frozen=True):
    record: RunRecord


class PutState(msgspec.Struct, frozen=True):
    job: str
    key: str
    value: str


class Prune(msgspec.Struct, frozen=True):
    job: str
    keep: int


Change = Intend | Note | Record | PutState | Prune


class Effect(IntEnum):
    """What a row does to the ledger. The writing statements of the stores read these numbers."""

    INTENT = 0
    """Added when the run is not known."""
    NOTE = 1
    """Replaces the body of a run that is known and unfinished."""
    RECORD = 2
    """Replaces whatever is known."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One run in a batch; its JSON is an element of the array that the writing statement takes."""

    effect: int
    id: str
    job: str
    outcome: str | None
    ended_at: int | None
    """Microseconds since 1970, UTC."""
    seq: int | None
    body: RunRecord


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The writes of one transaction."""

    rows: tuple[Row, ...] = ()
    states: tuple[PutState, ...] = ()
    prunes: tuple[Prune, ...] = ()

    def recorded(self) -> dict[str, int]:
        """Jobs with final records in this batch, and how many."""
        jobs: dict[str, int] = {}
        for row in self.rows:
            if row.effect == Effect.RECORD:
                jobs[row.job] = jobs.get(row.job, 0) + 1
        return jobs


def fold(changes: Iterable[Change], *, next_seq: int) -> Batch:
    """Reduce changes, in the order of the calls, to what they leave behind.

    Records take the numbers from `next_seq` on, at most one per change. Prunes come after all rows, so a
    prune may only be the last change. Whether a run was known before is for the database to say: `notes`
    holds what becomes of those that were, `intents` what becomes of those that were not.
    """
    notes: dict[str, Row] = {}
    intents: dict[str, Row] = {}
    records: dict[str, Row] = {}
    states: dict[tuple[str, str], PutState] = {}
    prunes: list[Prune] = []
    for change in changes:
        match change:
            case Record(record):
                run_id = record.launch.id
                records[run_id] = _final(record, next_seq)
                next_seq += 1
                notes.pop(run_id, None)
                intents.pop(run_id, None)
            case Intend(launch):
                if launch.id not in records and launch.id not in intents:
                    claimed = intent_of(launch)
                    intents[launch.id] = _live(Effect.INTENT, claimed)
            case Note(record):
                run_id = record.launch.id
                if run_id in intents:
                    intents[run_id] = _live(Effect.INTENT, record)
                if run_id not in records:
                    notes[run_id] = _live(Effect.NOTE, record)
            case PutState(job, key):
                states[job, key] = change
            case Prune():
                prunes.append(change)
            case _:
                assert_never(change)
    # Notes first: they must not meet the intents of this batch.
    rows = (*notes.values(), *intents.values(), *records.values())
    return Batch(rows=rows, states=tuple(states.values()), prunes=tuple(prunes))


def _live(effect: int, record: RunRecord) -> Row:
    return Row(effect, record.launch.id, record.launch.job, None, None, None, record)


def _final(record: RunRecord, seq: int) -> Row:
    ended = (ended_at(record) - _EPOCH) // _MICROSECOND
    outcome = None if record.outcome is None else record.outcome.value
    return Row(Effect.RECORD, record.launch.id, record.launch.job, outcome, ended, seq, record)

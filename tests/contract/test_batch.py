"""What a group of queued writes is folded to before the database sees it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import msgspec
from ledger_samples import launch, recorded, run_id, running

from sexton.model.run import Outcome
from sexton.store.batch import Effect, Intend, Note, Prune, PutState, Record, fold


def effects(*changes: Intend | Note | Record) -> list[tuple[int, object]]:
    return [(row.effect, row.body.pid) for row in fold(changes, next_seq=1).rows]


def test_a_whole_life_is_one_row() -> None:
    """A run that was intended, noted and recorded within one commit costs one row."""
    batch = fold([Intend(launch(1)), Note(running(1)), Record(recorded(1))], next_seq=7)
    (row,) = batch.rows
    assert (row.effect, row.id, row.seq, row.body) == (Effect.RECORD, run_id(1), 7, recorded(1))
    assert batch.recorded() == {"backup": 1}


def test_a_note_reaches_the_run_whether_it_was_known_or_not() -> None:
    """The database decides which of the two rows counts: both carry the newest facts."""
    assert effects(Intend(launch(1)), Note(running(1, pid=5))) == [(Effect.NOTE, 5), (Effect.INTENT, 5)]


def test_an_intent_is_never_swallowed_by_a_note_before_it() -> None:
    """A note on an unknown run is void, and the intent after it is not."""
    assert effects(Note(running(1, pid=5)), Intend(launch(1))) == [(Effect.NOTE, 5), (Effect.INTENT, None)]


def test_nothing_follows_a_record() -> None:
    """Late notes and intents of a recorded run leave nothing."""
    assert effects(Record(recorded(1)), Note(running(1)), Intend(launch(1))) == [(Effect.RECORD, None)]


def test_the_last_record_of_a_run_takes_the_last_number() -> None:
    """The order of recording is that of the calls, also when a run is recorded twice."""
    changes = [Record(recorded(1)), Record(recorded(2)), Record(recorded(1, outcome=Outcome.FAILURE))]
    numbers = {row.id: (row.seq, row.outcome) for row in fold(changes, next_seq=1).rows}
    assert numbers == {run_id(1): (3, "failure"), run_id(2): (2, "success")}


def test_ends_are_counted_in_microseconds_of_utc() -> None:
    """The column orders instants exactly, whatever zone they were written in."""
    instant = datetime(2026, 11, 30, 12, 0, 0, 1, tzinfo=UTC)
    there = instant.astimezone(timezone(timedelta(hours=9)))
    records = [msgspec.structs.replace(recorded(n), finished_at=at) for n, at in enumerate((instant, there))]
    first, second = fold([Record(r) for r in records], next_seq=1).rows
    assert first.ended_at == second.ended_at == int(instant.timestamp()) * 1_000_000 + 1


def test_a_run_that_never_started_has_its_place_too() -> None:
    """Without an end or a start, the instant of the intent orders the record."""
    record = msgspec.structs.replace(recorded(1), finished_at=None, outcome=Outcome.SKIPPED)
    (row,) = fold([Record(record)], next_seq=1).rows
    assert row.ended_at == fold([Record(recorded(1, ended=1e-6))], next_seq=1).rows[0].ended_at


def test_the_last_state_of_a_key_is_written() -> None:
    """Values of one key that wait together become one."""
    batch = fold([PutState("a", "k", "1"), PutState("a", "k", "2"), PutState("b", "k", "3")], next_seq=1)
    assert batch.states == (PutState("a", "k", "2"), PutState("b", "k", "3"))


def test_prunes_are_kept_as_they_are() -> None:
    """A prune is carried out after the rows of its batch."""
    assert fold([Record(recorded(1)), Prune("backup", 3)], next_seq=1).prunes == (Prune("backup", 3),)

"""The stores against each other: whatever is asked of them, their answers are the same."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_samples import Store, launch, opened, recorded, run_id, running

from sexton.model.run import Outcome
from sexton.store.directory import DirectoryStore
from sexton.store.memory import MemoryStore
from sexton.store.sqlite import SqliteStore

JOBS = ("a", "b")
numbers = st.integers(0, 7)
steps = st.one_of(
    st.tuples(st.just("intend"), numbers),
    st.tuples(st.just("note"), numbers, st.integers(1, 3)),
    st.tuples(st.just("record"), numbers, st.sampled_from([*Outcome, None]), st.integers(0, 3)),
    st.tuples(st.just("prune"), st.sampled_from(JOBS), st.integers(0, 4)),
)


async def take(store: Store, step: tuple[object, ...]) -> object:
    match step:
        case ("intend", int(number)):
            await store.intend(launch(number, JOBS[number % 2]))
        case ("note", int(number), int(pid)):
            store.note(running(number, JOBS[number % 2], pid=pid))
        case ("record", int(number), outcome, int(ended)):
            assert outcome is None or isinstance(outcome, Outcome)
            await store.record(recorded(number, JOBS[number % 2], outcome=outcome, ended=ended))
        case ("prune", str(job), int(keep)):
            return list(await store.prune(job, keep))
    return None


async def view(store: Store) -> list[object]:
    await store.put_state("a", "barrier", "all notes before this are in")
    answers: list[object] = [list(await store.unfinished()), await store.recent(3)]
    outcomes = (None, Outcome.SUCCESS, Outcome.FAILURE)
    for job, outcome, before in product((None, *JOBS), outcomes, (None, run_id(4))):
        answers += await store.runs(job=job, outcome=outcome, before=before, limit=3)
    return answers


async def compare(script: Sequence[tuple[object, ...]], other: Store, *, at_once: bool) -> None:
    async with opened(MemoryStore()) as memory, opened(other) as durable:
        expected = [await take(memory, step) for step in script]
        if at_once:
            answers = await asyncio.gather(*(take(durable, step) for step in script))
        else:
            answers = [await take(durable, step) for step in script]
        assert answers == expected
        assert await view(durable) == await view(memory)


@pytest.mark.parametrize("kind", [SqliteStore, DirectoryStore])
@settings(max_examples=100, deadline=None)
@given(script=st.lists(steps, max_size=25), at_once=st.booleans())
def test_any_writes_leave_the_same_ledger(
    kind: type[SqliteStore] | type[DirectoryStore], script: list[tuple[object, ...]], at_once: bool
) -> None:
    """Intents, notes, records and prunes in any order, early, late, repeated, one by one or at once."""
    with tempfile.TemporaryDirectory() as path:
        asyncio.run(compare(script, kind(Path(path)), at_once=at_once))

"""The duties of a Ledger and of JobState, for every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec
import pytest
from ledger_samples import NOON, Store, full_record, ids, launch, opened, recorded, run_id, running

from sexton.model.errors import StoreError
from sexton.model.pool import Ticket
from sexton.model.run import Outcome, Phase, RunRecord


async def settled(store: Store) -> None:
    """Notes are not waited for, but they are ordered: what is recorded after them comes after them."""
    await store.record(recorded(999_999, "the-last-one"))


async def test_an_intent_is_a_claimed_run(store: Store) -> None:
    """After `intend` the run is known, claimed and unfinished."""
    await store.intend(launch(1))
    assert await store.get(run_id(1)) == RunRecord(launch=launch(1), phase=Phase.CLAIMED)
    assert ids(await store.unfinished()) == [run_id(1)]


async def test_a_note_replaces_what_is_known_of_a_live_run(store: Store) -> None:
    """The latest note is what a recovery finds."""
    await store.intend(launch(1))
    store.note(running(1, pid=10))
    store.note(running(1, pid=11))
    await settled(store)
    assert await store.unfinished() == [running(1, pid=11)]


async def test_what_is_kept_is_there_when_the_call_returns(store: Store) -> None:
    """As a note, but waited for; it follows the intent, and does not undo a record."""
    intent = asyncio.ensure_future(store.intend(launch(1)))
    await asyncio.sleep(0)
    await store.keep(running(1, pid=10))
    assert await store.unfinished() == [running(1, pid=10)]
    await intent
    await store.record(recorded(1))
    await store.keep(running(1, pid=11))
    assert await store.get(run_id(1)) == recorded(1)


async def test_an_intent_with_a_ticket_is_queued(store: Store) -> None:
    """A later daemon can tell what waits from what may have been started."""
    waiting = msgspec.structs.replace(launch(1), ticket=Ticket(
        pool="p", slots=1, priority=0, since=launch(1).created_at, expires_at=launch(1).created_at, definition="d"))
    await store.intend(waiting)
    (found,) = await store.unfinished()
    assert found.phase is Phase.QUEUED and found.launch == waiting


async def test_a_note_on_an_unknown_run_makes_no_run(store: Store) -> None:
    """Only an intent or a record brings a run into the ledger."""
    store.note(running(1))
    await settled(store)
    assert await store.get(run_id(1)) is None
    assert await store.unfinished() == []


async def test_a_record_replaces_the_intent(store: Store) -> None:
    """Intent, note and record of one run leave one run, finished."""
    await store.intend(launch(1))
    store.note(running(1))
    await store.record(recorded(1))
    assert await store.unfinished() == []
    assert await store.runs(limit=10) == [recorded(1)]
    assert (await store.history("backup", 10)).runs == (recorded(1),)


async def test_writes_of_one_run_keep_their_order_without_waiting(store: Store) -> None:
    """Calls made in one breath take effect in the order of the calls."""

    async def life(number: int) -> None:
        intent = asyncio.ensure_future(store.intend(launch(number)))
        await asyncio.sleep(0)
        store.note(running(number))
        await asyncio.gather(intent, store.record(recorded(number)))

    await asyncio.gather(*(life(n) for n in range(50)))
    assert await store.unfinished() == []
    assert all(run.phase is Phase.RECORDED for run in await store.runs(limit=100))


async def test_what_comes_late_does_not_reopen_a_recorded_run(store: Store) -> None:
    """Neither a late note nor a repeated intent undoes a record."""
    await store.record(recorded(1))
    store.note(running(1))
    await store.intend(launch(1))
    assert await store.get(run_id(1)) == recorded(1)
    assert await store.unfinished() == []


async def test_a_repeated_intent_keeps_the_facts_of_the_live_run(store: Store) -> None:
    """A pid that was noted is not lost when the intent is written again."""
    await store.intend(launch(1))
    store.note(running(1))
    await settled(store)
    await store.intend(launch(1))
    assert await store.get(run_id(1)) == running(1)


async def test_a_second_record_of_a_run_replaces_the_first(store: Store) -> None:
    """A run counts once, with its last verdict."""
    await store.record(recorded(1, outcome=Outcome.UNKNOWN))
    await store.record(recorded(1, outcome=Outcome.FAILURE))
    history = await store.history("backup", 10)
    assert history.totals == {Outcome.FAILURE: 1}
    assert ids(history.runs) == [run_id(1)]


async def test_every_field_and_every_character_survives(store: Store) -> None:
    """What is read is what was written."""
    await store.record(full_record(1))
    assert await store.get(run_id(1)) == full_record(1)
    assert (await store.history("backup", 1)).runs == (full_record(1),)


def test_records_of_earlier_versions_are_understood() -> None:
    """A record that was written before runs had limits and trees has none of them."""
    raw = msgspec.json.decode(msgspec.json.encode(full_record(1)))
    for later in ("limits", "tree"):
        del raw[later]
    old = msgspec.json.decode(msgspec.json.encode(raw), type=RunRecord)
    assert old == msgspec.structs.replace(full_record(1), limits=None, tree=None)


async def test_unfinished_is_oldest_first(store: Store) -> None:
    """Recovery goes through the runs in the order in which they were intended."""
    for number in (3, 1, 2):
        await store.intend(launch(number, f"job-{number}"))
    assert ids(await store.unfinished()) == [run_id(1), run_id(2), run_id(3)]


async def test_history_is_ordered_by_the_end_of_the_runs(store: Store) -> None:
    """By `finished_at`, to the microsecond, whatever the order of recording; the newest, oldest first."""
    for number, ended in ((1, 3.0), (2, 1.0), (3, 2.000001), (4, 2.0)):
        await store.record(recorded(number, ended=ended))
    assert ids((await store.history("backup", 10)).runs) == [run_id(n) for n in (2, 4, 3, 1)]
    assert ids((await store.history("backup", 2)).runs) == [run_id(3), run_id(1)]
    assert (await store.history("backup", 0)).runs == ()


async def test_ties_in_the_history_go_by_the_order_of_recording(store: Store) -> None:
    """Of runs that ended at one instant the one recorded later is the newer."""
    await asyncio.gather(*(store.record(recorded(n)) for n in (5, 2, 9)))
    await store.record(recorded(1))
    assert ids((await store.history("backup", 10)).runs) == [run_id(n) for n in (5, 2, 9, 1)]


async def test_totals_count_all_recorded_runs(store: Store) -> None:
    """Totals go beyond the limit, by outcome, without live runs and other jobs."""
    for number in range(4):
        await store.record(recorded(number, outcome=Outcome.FAILURE if number == 2 else Outcome.SUCCESS))
    await store.intend(launch(10))
    await store.record(recorded(11, "other"))
    assert (await store.history("backup", 1)).totals == {Outcome.SUCCESS: 3, Outcome.FAILURE: 1}
    assert (await store.history("nobody", 1)).totals == {}


async def test_recent_is_the_history_of_every_job(store: Store) -> None:
    """One question answers what `history` answers for each job that has a record."""
    for number in range(6):
        await store.record(recorded(number, f"job-{number % 2}", ended=number))
    await store.record(recorded(6, "no-verdict", outcome=None))
    await store.intend(launch(7, "never-ended"))
    recent = await store.recent(2)
    assert set(recent) == {"job-0", "job-1", "no-verdict"}
    for job, history in recent.items():
        assert history == await store.history(job, 2)


async def test_runs_are_paged_newest_first(store: Store) -> None:
    """Pages of all runs, recorded or not, follow each other without gap or repetition."""
    for number in (2, 0, 4, 1, 3):
        await store.record(recorded(number, ended=-number))
    await store.intend(launch(5))
    pages: list[Sequence[RunRecord]] = [await store.runs(limit=4)]
    pages.append(await store.runs(limit=4, before=pages[0][-1].launch.id))
    assert [ids(page) for page in pages] == [[run_id(n) for n in (5, 4, 3, 2)], [run_id(1), run_id(0)]]
    assert await store.runs(limit=4, before=run_id(0)) == []


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FAILURE])
async def test_runs_can_be_narrowed(store: Store, outcome: Outcome) -> None:
    """By job, by outcome, and by both, also with `before`."""
    other = Outcome.FAILURE if outcome is Outcome.SUCCESS else Outcome.SUCCESS
    for number in range(8):
        verdict = outcome if number < 6 else other
        await store.record(recorded(number, f"job-{number % 2}", outcome=verdict))
    await store.intend(launch(8, "job-0"))
    assert ids(await store.runs(job="job-0", limit=2)) == [run_id(8), run_id(6)]
    assert ids(await store.runs(outcome=outcome, limit=2)) == [run_id(5), run_id(4)]
    assert ids(await store.runs(job="job-0", outcome=outcome, limit=9)) == [run_id(n) for n in (4, 2, 0)]
    assert ids(await store.runs(job="job-1", outcome=outcome, before=run_id(5), limit=1)) == [run_id(3)]
    assert await store.runs(job="nobody", limit=9) == []


async def test_prune_forgets_the_oldest_records_and_no_intent(store: Store) -> None:
    """The newest by end stay, live runs and other jobs stay, and the ids that went are told."""
    for number in range(4):
        await store.record(recorded(number, ended=10 - number))
    await store.intend(launch(8))
    await store.record(recorded(9, "other"))
    assert set(await store.prune("backup", 2)) == {run_id(2), run_id(3)}
    assert ids(await store.runs(limit=9)) == [run_id(n) for n in (9, 8, 1, 0)]
    assert (await store.history("backup", 9)).totals == {Outcome.SUCCESS: 2}
    assert await store.prune("backup", 2) == []
    assert set(await store.prune("backup", 0)) == {run_id(0), run_id(1)}
    assert set(await store.recent(1)) == {"other"}


async def test_a_prune_does_not_see_what_was_recorded_after_it(store: Store) -> None:
    """Queued together, a prune and a later record act one after the other."""
    await store.record(recorded(1, ended=1))
    gone, _ = await asyncio.gather(store.prune("backup", 1), store.record(recorded(2, ended=2)))
    assert gone == []
    assert ids((await store.history("backup", 9)).runs) == [run_id(1), run_id(2)]


async def test_each_job_keeps_its_newest_runs_only(make_store: Callable[..., Store]) -> None:
    """A store with a bound forgets by itself, and says what went."""
    gone: list[str] = []
    async with opened(make_store(max_runs_per_job=3, on_pruned=gone.extend)) as store:
        for number in range(5):
            await store.record(recorded(number, ended=number))
            await store.record(recorded(100 + number, f"job-{number}"))
        assert ids((await store.history("backup", 9)).runs) == [run_id(n) for n in (2, 3, 4)]
        assert gone == [run_id(0), run_id(1)]
        assert len(await store.runs(limit=99)) == 8


@pytest.mark.parametrize("bound", [0, -1])
async def test_a_bound_of_nothing_keeps_all(make_store: Callable[..., Store], bound: int) -> None:
    """`maxRunsPerJob` of 0 or less means no bound."""
    async with opened(make_store(max_runs_per_job=bound)) as store:
        for number in range(20):
            await store.record(recorded(number))
        assert (await store.history("backup", 99)).totals == {Outcome.SUCCESS: 20}


async def test_job_state_is_the_last_value_written(store: Store) -> None:
    """Values are per job and key; the last write wins, also among writes made at once."""
    assert await store.get_state("backup", "boot") is None
    await asyncio.gather(*(store.put_state("backup", "boot", f"boot-{n}") for n in range(20)))
    await store.put_state("backup", "other", "'\"\n\U0001f514")
    await store.put_state("other", "boot", "x")
    assert await store.get_state("backup", "boot") == "boot-19"
    assert await store.get_state("backup", "other") == "'\"\n\U0001f514"


async def test_a_cancelled_writer_disturbs_nobody(store: Store) -> None:
    """When one waiting task is cancelled, the writes of the others are answered as ever."""
    tasks = [asyncio.create_task(store.record(recorded(n))) for n in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [r for n, r in enumerate(results) if n != 3] == [None] * 9
    assert {run_id(n) for n in range(10) if n != 3} <= set(ids(await store.runs(limit=99)))


async def test_a_closed_store_refuses(make_store: Callable[..., Store]) -> None:
    """Before `open` and after `close` every call raises StoreError; closing twice does no harm."""
    store = make_store()
    for _ in range(2):
        with pytest.raises(StoreError):
            await store.intend(launch(1))
        with pytest.raises(StoreError):
            store.note(running(1))
        with pytest.raises(StoreError):
            await store.record(recorded(1))
        with pytest.raises(StoreError):
            await store.runs(limit=1)
        with pytest.raises(StoreError):
            await store.put_state("backup", "key", "value")
        await store.open()
        await store.close()
        await store.close()


async def test_instants_come_back_aware(store: Store) -> None:
    """Every instant that is read is an aware one, equal to the one written."""
    await store.intend(launch(1))
    run = await store.get(run_id(1))
    assert run is not None and run.launch.scheduled_for == NOON
    assert run.launch.created_at.tzinfo is not None


async def test_close_writes_what_is_queued(make_durable: Callable[..., Store]) -> None:
    """Records and notes that are queued when `close` is called are there when the store is opened again."""
    store = make_durable()
    await store.open()
    await store.intend(launch(1000))
    writes = [asyncio.ensure_future(store.record(recorded(n))) for n in range(200)]
    await asyncio.sleep(0)
    store.note(running(1000))
    await store.close()
    assert await asyncio.gather(*writes) == [None] * 200
    async with opened(make_durable()) as again:
        assert (await again.history("backup", 1)).totals == {Outcome.SUCCESS: 200}
        assert await again.unfinished() == [running(1000)]


async def test_everything_is_as_it_was_after_a_restart(make_durable: Callable[..., Store]) -> None:
    """Intents, order of recording, totals and job state stay; new records come after the old ones."""
    async with opened(make_durable()) as store:
        await store.record(recorded(5))
        await store.intend(launch(6))
        await store.put_state("backup", "boot", "b")
    async with opened(make_durable()) as store:
        await store.record(recorded(1))
        assert ids((await store.history("backup", 9)).runs) == [run_id(5), run_id(1)]
        assert (await store.history("backup", 9)).totals == {Outcome.SUCCESS: 2}
        assert ids(await store.unfinished()) == [run_id(6)]
        assert await store.get_state("backup", "boot") == "b"


async def test_runs_of_one_node_or_a_span_of_ids(store: Store) -> None:
    """Recorded and unfinished ones, together with the other conditions."""
    for number in range(8):
        other = msgspec.structs.replace(launch(number, f"job-{number % 2}"), node=f"node-{number % 3}")
        await store.intend(other)
        if number < 6:
            await store.record(msgspec.structs.replace(recorded(number), launch=other))
    assert ids(await store.runs(node="node-1", limit=9)) == [run_id(7), run_id(4), run_id(1)]
    assert ids(await store.runs(node="node-1", job="job-0", limit=9)) == [run_id(4)]
    assert ids(await store.runs(node="node-1", outcome=Outcome.SUCCESS, limit=1)) == [run_id(4)]
    assert ids(await store.runs(after=run_id(2), before=run_id(7), limit=9)) == [run_id(n) for n in (6, 5, 4, 3)]
    assert ids(await store.runs(after=run_id(2), job="job-1", limit=9)) == [run_id(n) for n in (7, 5, 3)]
    assert await store.runs(after=run_id(7), limit=9) == [] and await store.runs(node="none", limit=9) == []

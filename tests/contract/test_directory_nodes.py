"""Several nodes at one directory store: what one writes the others see, in one order, and quickly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from ledger_samples import NOON, ids, launch, opened, recorded, run_id, running
from memory_fuse import MemoryMount
from test_coordination import A, B, facts, signal

from sexton.model.run import Outcome
from sexton.store.directory import DirectoryStore, reading
from sexton.store.directory.names import encoded, entry_for, entry_of, instant_file, instant_of

Two = tuple[DirectoryStore, DirectoryStore]


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[Two]:
    async with AsyncExitStack() as stack:
        stores = [DirectoryStore(tmp_path), DirectoryStore(tmp_path)]
        for store in stores:
            await stack.enter_async_context(opened(store))
        yield stores[0], stores[1]


async def test_a_history_has_one_order_whoever_wrote_it(two: Two) -> None:
    """By the end of the runs, and of those that ended together by the order of recording, on all nodes."""
    order = [5, 2, 9, 1, 7, 3]
    for turn, number in enumerate(order):
        await two[turn % 2].record(recorded(number))
    await two[1].record(recorded(20, ended=-1.0))
    for store in two:
        assert ids((await store.history("backup", 9)).runs) == [run_id(n) for n in (20, *order)]
        assert (await store.recent(9))["backup"] == await store.history("backup", 9)


async def test_what_one_node_writes_the_others_see_at_once(two: Two) -> None:
    """Intents, notes, records, a record that takes the place of another, states; also right after having looked."""
    a, b = two
    for number in range(30):
        await a.intend(launch(number))
        assert ids(await b.unfinished()) == [run_id(number)]
        await a.keep(running(number, pid=number + 1))
        assert await b.get(run_id(number)) == running(number, pid=number + 1)
        await b.record(recorded(number, outcome=Outcome.UNKNOWN))
        assert await a.unfinished() == [] and len(await a.runs(limit=99)) == number + 1
        await a.record(recorded(number, outcome=Outcome.FAILURE))
        assert await b.get(run_id(number)) == recorded(number, outcome=Outcome.FAILURE)
        assert (await b.history("backup", 1)).totals == {Outcome.FAILURE: number + 1}
        await a.put_state("j", "k", str(number))
        assert await b.get_state("j", "k") == str(number) and await b.states("k") == {"j": str(number)}


async def test_a_coarse_clock_hides_no_record(tmp_path: Path) -> None:
    """Where a folder's time is kept in whole seconds, two changes within one are two changes."""
    try:
        mount = MemoryMount(tmp_path / "mount", clock=lambda: time.time_ns() // 10**9 * 10**9)
    except OSError as error:
        pytest.skip(f"no FUSE file system can be mounted here: {error}")
    try:
        async with opened(a := DirectoryStore(mount.folder)), opened(b := DirectoryStore(mount.folder)):
            for number in range(40):
                await a.record(recorded(number))
                assert len(await b.runs(limit=99)) == number + 1
    finally:
        mount.close()


async def test_a_run_is_in_the_ledger_once_while_it_is_recorded(two: Two) -> None:
    """Whoever asks meanwhile finds it unfinished or recorded, and never twice or not at all."""
    a, b = two
    done = asyncio.Event()

    async def ask() -> None:
        while not done.is_set():
            found = ids(await b.runs(limit=99))
            assert len(found) == len(set(found)) and set(started) <= set(found) | {run_id(n) for n in range(40)}
            for one in started[:]:
                assert await b.get(one) is not None

    started: list[str] = []
    asking = [asyncio.create_task(ask()) for _ in range(2)]
    for number in range(40):
        await a.intend(launch(number))
        started.append(run_id(number))
        await a.record(recorded(number))
    done.set()
    await asyncio.gather(*asking)


async def test_nodes_prune_together(tmp_path: Path) -> None:
    """Each id is told to one of them, none is forgotten, and nobody gets an error."""
    gone: list[list[str]] = [[], [], []]
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(DirectoryStore(
            tmp_path, max_runs_per_job=10, on_pruned=gone[n].extend))) for n in range(3)]
        await asyncio.gather(*(stores[n % 3].record(recorded(n, ended=n)) for n in range(120)))
        asked = await asyncio.gather(*(store.prune("backup", 5) for store in stores))
        assert ids(await stores[0].runs(limit=99)) == [run_id(n) for n in range(119, 114, -1)]
    heard = [one for some in (*gone, *asked) for one in some]
    assert sorted(heard) == [run_id(n) for n in range(115)]


async def test_a_thousand_runs_of_twenty_jobs_are_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a daemon reads at its start, and what the API asks for, takes no second; memory is bounded."""
    async with opened(DirectoryStore(tmp_path)):
        pass
    await asyncio.to_thread(fill, tmp_path / "default" / "runs")
    monkeypatch.setattr(reading, "RECORDS_IN_MEMORY", 500)
    async with opened(store := DirectoryStore(tmp_path)):
        took: dict[str, float] = {}

        async def timed(what: str, question: object) -> object:
            began = time.monotonic()
            answer = await question  # type: ignore[misc]
            took[what] = time.monotonic() - began
            return answer

        recent = await timed("recent", store.recent(20))
        assert {(len(one.runs), sum(one.totals.values())) for one in recent.values()} == {(20, 1000)}  # type: ignore[attr-defined]
        assert len(recent) == 20  # type: ignore[arg-type]
        assert len(await timed("page", store.runs(limit=100))) == 100  # type: ignore[arg-type]
        assert len(await timed("middle", store.runs(limit=100, before=run_id(10_000)))) == 100  # type: ignore[arg-type]
        assert len(await timed("failures", store.runs(outcome=Outcome.FAILURE, limit=100))) == 100  # type: ignore[arg-type]
        assert len((await timed("history", store.history("job-3", 1000))).runs) == 1000  # type: ignore[attr-defined]
        assert await timed("get", store.get(run_id(12_345))) is not None
        assert await timed("missing", store.get("nobody")) is None
        await timed("record", store.record(recorded(99_999, "job-3")))
        assert max(took.values()) < 2.0, took
        assert len(store._opened.reading._cache) <= 500  # type: ignore[union-attr]


def fill(folder: Path) -> None:
    for job in range(20):
        (folder / f"job-{job}").mkdir(parents=True)
    for number in range(20_000):
        job, outcome = f"job-{number % 20}", Outcome.FAILURE if number % 7 == 0 else Outcome.SUCCESS
        record = recorded(number, job, outcome=outcome, ended=number)
        (folder / job / entry_for(record, number).file).write_bytes(msgspec.json.encode(record))


async def test_mail_of_several_senders_is_kept_apart(two: Two) -> None:
    """Sent at once through two nodes, taken at once through two: each letter arrives once, each sender's in order."""

    async def write(store: DirectoryStore, sender: str) -> None:
        for number in range(20):
            await store.send(signal(str(number), sender=sender))

    a, b = two
    await asyncio.gather(write(a, "a"), write(b, "b"))
    takes = await asyncio.gather(a.take(A.id), b.take(A.id))
    assert sorted((one.sender, int(one.run or "")) for some in takes for one in some) == [
        (sender, number) for sender in "ab" for number in range(20)]
    for some in takes:
        for sender in "ab":
            numbers = [int(one.run or "") for one in some if one.sender == sender]
            assert numbers == sorted(numbers)


async def test_a_node_that_leaves_takes_its_mail_with_it(two: Two) -> None:
    """Its identity never comes back: nobody would ever fetch it."""
    a, b = two
    await a.announce(facts(A))
    await b.send(signal("r"))
    await b.leave(A.id)
    assert list(await a.take(A.id)) == [] and list(await b.nodes()) == []


async def test_occurrences_keep_their_zone_out_of_it(two: Two) -> None:
    """The same instant is the same occurrence, however it is written."""
    a, b = two
    zoned = NOON.astimezone(NOON.tzinfo.__class__(timedelta(hours=5)))  # type: ignore[call-arg, union-attr]
    assert await a.claim_fire("x", zoned, A)
    assert not await b.claim_fire("x", NOON, B)
    assert [fire.scheduled_for for fire in await b.fired("x", zoned)] == [NOON]


def test_file_names_tell_what_they_were_made_of() -> None:
    """Of records and occurrences; other files are none of either."""
    for outcome in (*Outcome, None):
        entry = entry_for(recorded(3, outcome=outcome, ended=-1e10), 17)
        assert entry_of(entry.file) == entry and entry.seq == 17
    assert instant_of(instant_file(NOON + timedelta(microseconds=1))) == NOON + timedelta(microseconds=1)
    for file in ("x", "a.b.c.success.json", "a.1.2.great.json", f"{encoded('x')}.1.2.json", "a.1.2.success.txt"):
        assert entry_of(file) is None and instant_of(file) is None

"""The queue: runs that wait for a worker, on every store that has one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from ledger_samples import Store, launch, opened, recorded

from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.model.run import Outcome, Phase
from sexton.store.queue import CancelAnswer, Cancelling, Claim, Entry, Finish, Queue

CONTENDERS = 50
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
WHY = Cancelling(reason="no longer wanted", requested_by="ada")


def worker(name: str, boot: str = "") -> NodeIdentity:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return NodeIdentity(id=f"{name}#1", name=name, pid=1, pid_started_ticks=0, boot_id=boot or file.read().strip(),
                            pid_namespace=0)


A, B = worker("a"), worker("b")


def entry(number: int, *, queue: str = "default", priority: int = 0, at: datetime | None = LONG_AGO, once: bool = False,
          text: str = "null") -> Entry:
    return Entry(launch=launch(number), queue=queue, priority=priority, available_at=at, once=once, input=text)


def numbers(claims: tuple[Claim, ...]) -> list[int]:
    return [int(claim.entry.launch.id[-12:], 16) for claim in claims]


def finish(claim: Claim) -> Finish:
    done = recorded(int(claim.entry.launch.id[-12:], 16))
    return Finish(by=claim.by, fence=claim.fence, record=done)


@pytest.fixture(autouse=True)
def has_queue(make_store: Callable[..., Store]) -> None:
    if not make_store().capabilities.queue:
        pytest.skip("this store declares queue=False")


@pytest.fixture
async def queue(store: Store) -> Queue:
    assert store.queue is not None
    return store.queue


async def test_the_order_is_priority_then_instant_then_age(queue: Queue) -> None:
    """Higher priorities first, then whichever could start first, then whichever was made first."""
    await queue.enqueue([
        entry(4), entry(3), entry(5, at=LONG_AGO - timedelta(hours=1)), entry(2, priority=1), entry(1, priority=-1),
    ])
    step = await queue.step(A, ["default"], 10)
    assert numbers(step.claimed) == [2, 5, 3, 4, 1]
    assert (await queue.step(B, ["default"], 10)).claimed == ()


async def test_only_the_queues_that_are_asked_for(queue: Queue) -> None:
    """A worker of some queues gets theirs, in one order, and no more than it wants."""
    put = [entry(1, queue="x"), entry(2, queue="y", priority=9), entry(3, queue="z"), entry(4, queue="x")]
    await queue.enqueue(put)
    assert numbers((await queue.step(A, ["x", "y", "x"], 2)).claimed) == [2, 1]
    assert numbers((await queue.step(A, ["x", "y"], 5)).claimed) == [4]
    assert (await queue.step(A, [], 5)).claimed == () == (await queue.step(A, ["z"], 0)).claimed


async def test_what_is_put_in_comes_out(queue: Queue) -> None:
    """The input passes through unread, whatever is in it; claim and entry tell the same."""
    text = '{"a": "\\u0000 \\" \U0001f514", "n": 1e400, "z": [1, 2]}'
    put = entry(1, text=text, once=True, priority=-32768)
    await queue.enqueue([put])
    assert await queue.entry(put.launch.id) == put
    (claim,) = (await queue.step(A, ["default"], 1)).claimed
    assert claim.entry == put and claim.by == A.id
    assert await queue.entry(put.launch.id) == claim == (await queue.held(A.id))[0]


@pytest.mark.parametrize("bad", [
    entry(1, priority=40_000), entry(1, text="\0"), entry(1, at=datetime(2026, 1, 1)),
])
async def test_what_cannot_be_kept_is_refused_whole(queue: Queue, bad: Entry) -> None:
    """One entry that cannot be ordered or kept refuses all that came with it."""
    with pytest.raises(ValueError, match=r"priority|NUL|time zone"):
        await queue.enqueue([entry(2), bad])
    assert await queue.depths() == {}


async def test_enqueued_twice_runs_once(queue: Queue, store: Store) -> None:
    """An enqueueing that is asked again, because its answer was lost, does nothing: while the run waits, is with a
    worker, and when it has ended."""
    for _ in range(2):
        await queue.enqueue([entry(1)])
    (claim,) = (await queue.step(A, ["default"], 5)).claimed
    await queue.enqueue([entry(1)])
    assert (await queue.step(B, ["default"], 5)).claimed == ()
    await queue.step(A, [], 0, [finish(claim)])
    await queue.enqueue([entry(1)])
    assert (await queue.step(B, ["default"], 5)).claimed == ()
    assert len(await store.runs(limit=10)) == 1


async def test_of_fifty_workers_one_gets_each_entry(queue: Queue) -> None:
    """Whatever comes in between, each entry is claimed exactly once, and all are."""
    workers = [worker(f"w{number}") for number in range(CONTENDERS)]
    await queue.enqueue([entry(number) for number in range(1, 301)])
    got: list[int] = []

    async def work(me: NodeIdentity) -> None:
        while claimed := (await queue.step(me, ["default"], 7)).claimed:
            got.extend(numbers(claimed))

    await asyncio.gather(*map(work, workers))
    assert sorted(got) == list(range(1, 301))


async def test_a_delayed_entry_waits_for_its_instant(queue: Queue) -> None:
    """Not before it, whatever its priority, and it is in nobody's way."""
    soon = datetime.now(UTC) + timedelta(seconds=1.0)
    await queue.enqueue([entry(1, at=soon, priority=9), entry(2)])
    assert (await queue.depths())["default"].delayed == 1
    assert numbers((await queue.step(A, ["default"], 5)).claimed) == [2]
    while not (claimed := (await queue.step(A, ["default"], 5)).claimed):
        await asyncio.sleep(0.05)
    assert numbers(claimed) == [1] and datetime.now(UTC) >= soon - timedelta(milliseconds=50)


async def test_an_end_is_recorded_as_the_entry_goes(queue: Queue, store: Store) -> None:
    """A finished run is in the ledger and not in the queue; one step finishes some and claims others."""
    await queue.enqueue([entry(1), entry(2)])
    (first,) = (await queue.step(A, ["default"], 1)).claimed
    step = await queue.step(A, ["default"], 1, [finish(first)])
    assert numbers(step.claimed) == [2] and step.stale == ()
    assert await store.get(first.entry.launch.id) == recorded(1)
    assert (await store.history("backup", 5)).totals == {Outcome.SUCCESS: 1}
    assert await queue.entry(first.entry.launch.id) is None
    assert (await queue.step(A, [], 0, [finish(first)])).stale == (), "asked again, as when an answer was lost"
    assert len(await store.runs(limit=10)) == 1


async def test_who_lost_its_run_cannot_finish_it(queue: Queue, store: Store) -> None:
    """The fence of an entry grows with each claim: an earlier one's end is refused, and told."""
    await queue.enqueue([entry(1)])
    (first,) = (await queue.step(A, ["default"], 1)).claimed
    await queue.give_back([first])
    (second,) = (await queue.step(A, ["default"], 1)).claimed
    assert second.fence > first.fence
    assert (await queue.step(A, [], 0, [finish(first)])).stale == (first.entry.launch.id,)
    assert await store.get(first.entry.launch.id) is None
    await queue.give_back([first])
    assert await queue.entry(first.entry.launch.id) == second, "nor give it back"
    assert (await queue.step(A, [], 0, [finish(second)])).stale == ()


async def test_a_waiting_run_is_cancelled_for_good(queue: Queue, store: Store) -> None:
    """It never starts, and its record says who and why. What has ended or never was is unknown."""
    await queue.enqueue([entry(1)])
    assert await queue.cancel(launch(1).id, WHY) is CancelAnswer.NEVER_STARTED
    assert (await queue.step(A, ["default"], 5)).claimed == ()
    record = await store.get(launch(1).id)
    assert record is not None and record.outcome is Outcome.CANCELLED and record.phase is Phase.RECORDED
    assert record.stop is not None and (record.stop.reason, record.stop.requested_by) == (WHY.reason, WHY.requested_by)
    assert record.started_at is None
    assert await queue.cancel(launch(2).id, WHY) is CancelAnswer.UNKNOWN


async def test_the_worker_hears_of_a_cancel(queue: Queue, store: Store) -> None:
    """Of a run that is with a worker its next sign of life tells; a run that ends all the same has ended so."""
    await queue.enqueue([entry(1), entry(2)])
    claims = (await queue.step(A, ["default"], 2)).claimed
    assert await queue.cancel(launch(1).id, WHY) is CancelAnswer.ASKED
    assert await queue.alive(A) == {launch(1).id: WHY} and await queue.alive(B) == {}
    assert (await queue.step(A, [], 0, [finish(claims[0])])).stale == ()
    assert await queue.alive(A) == {}
    done = await store.get(launch(1).id)
    assert done is not None and done.outcome is Outcome.SUCCESS
    assert await queue.cancel(launch(1).id, WHY) is CancelAnswer.UNKNOWN


async def test_what_is_given_back_waits_again(queue: Queue, store: Store) -> None:
    """For anybody, at its old place; what was to be cancelled meanwhile is, since it has not begun."""
    await queue.enqueue([entry(1), entry(2), entry(3)])
    claims = (await queue.step(A, ["default"], 2)).claimed
    assert await queue.cancel(launch(2).id, WHY) is CancelAnswer.ASKED
    await queue.give_back(claims)
    assert numbers((await queue.step(B, ["default"], 5)).claimed) == [1, 3]
    record = await store.get(launch(2).id)
    assert record is not None and record.outcome is Outcome.CANCELLED


async def test_cancels_that_race_with_claims_end_each_run_once(queue: Queue, store: Store) -> None:
    """Cancelled or finished, and never both: what the canceller was told is what happened."""
    total = 200
    await queue.enqueue([entry(number) for number in range(1, total + 1)])
    answers: dict[int, CancelAnswer] = {}
    ran: set[int] = set()

    async def work(me: NodeIdentity) -> None:
        done: list[Finish] = []
        while True:
            step = await queue.step(me, ["default"], 3, done)
            assert step.stale == ()
            if not step.claimed:
                return
            ran.update(numbers(step.claimed))
            done = [finish(claim) for claim in step.claimed]

    async def cancel() -> None:
        order = random.Random(7).sample(range(1, total + 1), total)
        for number in order:
            answers[number] = await queue.cancel(launch(number).id, WHY)

    await asyncio.gather(work(A), work(B), cancel())
    for number in range(1, total + 1):
        record = await store.get(launch(number).id)
        assert record is not None and record.phase is Phase.RECORDED
        never = answers[number] is CancelAnswer.NEVER_STARTED
        assert never == (number not in ran) == (record.outcome is Outcome.CANCELLED)
    assert await queue.depths() == {}


async def test_a_silent_worker_loses_what_it_has(queue: Queue, store: Store) -> None:
    """Its runs wait again, but for those that may run only once and those that were to be cancelled: they are recorded
    as unknown. A worker that gives signs of life keeps its own. One that comes back has lost them."""
    await queue.enqueue([entry(1), entry(2, once=True), entry(3), entry(4)])
    claims = (await queue.step(A, ["default"], 3)).claimed
    await queue.cancel(launch(3).id, WHY)
    kept = (await queue.step(B, ["default"], 1)).claimed
    assert await queue.reap(60.0) == type(await queue.reap(60.0))(), "nobody is silent"
    await asyncio.sleep(0.3)
    await queue.alive(B)
    reaped = await queue.reap(0.25)
    assert reaped.again == (launch(1).id,)
    assert {record.launch.id for record in reaped.lost} == {launch(2).id, launch(3).id}
    for number in (2, 3):
        record = await store.get(launch(number).id)
        assert record is not None and record.outcome is Outcome.UNKNOWN and "fell silent" in (record.fail_reason or "")
    assert list(await queue.held(B.id)) == list(kept)
    assert set((await queue.step(A, [], 0, [finish(claims[0])])).stale) == {launch(1).id}
    assert numbers((await queue.step(B, ["default"], 5)).claimed) == [1]


async def test_of_many_reapers_one_finds_each_run(queue: Queue) -> None:
    """All at once: nothing is lost and nothing comes twice."""
    await queue.enqueue([entry(number, once=number % 2 == 0) for number in range(1, 41)])
    await queue.step(A, ["default"], 40)
    await asyncio.sleep(0.02)
    reaped = await asyncio.gather(*(queue.reap(0.01) for _ in range(10)))
    again = [run for one in reaped for run in one.again]
    lost = [record.launch.id for one in reaped for record in one.lost]
    assert sorted(again + lost) == sorted(launch(number).id for number in range(1, 41))


async def test_a_worker_that_leaves_is_forgotten(queue: Queue) -> None:
    """But not while it has something: then only reaping brings that back."""
    await queue.enqueue([entry(1)])
    (claim,) = (await queue.step(A, ["default"], 1)).claimed
    await queue.leave(A.id)
    await asyncio.sleep(0.02)
    assert (await queue.reap(0.01)).again == (launch(1).id,)
    assert claim.entry == (await queue.step(B, ["default"], 1)).claimed[0].entry
    await queue.step(B, [], 0, [])
    await queue.leave(B.id)


async def test_depths_tell_how_full_the_queues_are(queue: Queue) -> None:
    """Waiting, delayed and active by queue, and how long the oldest has waited."""
    await queue.enqueue([entry(1), entry(2), entry(3, at=datetime.now(UTC) + timedelta(hours=1)), entry(4, queue="x")])
    await queue.step(A, ["default"], 1)
    depths = await queue.depths()
    assert depths.keys() == {"default", "x"}
    one = depths["default"]
    assert (one.waiting, one.delayed, one.active) == (1, 1, 1)
    assert abs(one.oldest - (datetime.now(UTC) - LONG_AGO).total_seconds()) < 5


async def test_waiting_ends_when_something_comes(queue: Queue) -> None:
    """A hint wakes whoever waits, long before it would have looked again."""
    await queue.enqueued(["default"], 0.0)
    waiting = asyncio.create_task(queue.enqueued(["default"], 30.0))
    await asyncio.sleep(0.05)
    began = asyncio.get_running_loop().time()
    await queue.enqueue([entry(1)])
    await asyncio.wait_for(waiting, 5.0)
    assert asyncio.get_running_loop().time() - began < 5.0


async def test_the_queue_outlives_its_store(make_durable: Callable[..., Store]) -> None:
    """What waited and what was claimed is there when the store is opened again, by the next process."""
    async with opened(make_durable()) as store:
        assert store.queue is not None
        await store.queue.enqueue([entry(1), entry(2), entry(3)])
        claims = (await store.queue.step(A, ["default"], 2)).claimed
    with pytest.raises(StoreError):
        await (store.queue or pytest.fail()).depths()
    async with opened(make_durable()) as store:
        assert store.queue is not None
        assert list(await store.queue.held(A.id)) == list(claims)
        step = await store.queue.step(A, ["default"], 5, [finish(claims[0])])
        assert numbers(step.claimed) == [3] and step.stale == ()


async def test_waiting_runs_are_not_interrupted_runs(queue: Queue, store: Store) -> None:
    """What is in the queue is nobody's to recover at a start: the ledger does not count it as unfinished."""
    await queue.enqueue([entry(1), entry(2)])
    await queue.step(A, ["default"], 1)
    assert list(await store.unfinished()) == []
    assert await store.get(launch(1).id) is None

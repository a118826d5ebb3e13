"""The duties of `Coordination`, for every store. Where a store is shared, the contenders come through two of its
openings, as two daemons would."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from ledger_samples import NOON, Store, launch, opened, recorded, run_id

from sexton.model.node import NodeFacts, NodeIdentity
from sexton.store.coordination import Denied, Fire, Granted, Lease, Signal, SignalKind

TTL = 0.6
LONG = 30.0


def node(name: str) -> NodeIdentity:
    return NodeIdentity(id=f"{name}#1", name=name, pid=1, pid_started_ticks=2, boot_id="b", pid_namespace=3)


A, B = node("a"), node("b")


class Pair:
    """The same store as two daemons have it open; the same object twice where only one process can have it."""

    def __init__(self, a: Store, b: Store) -> None:
        self.a, self.b = a, b


@pytest.fixture
async def pair(make_store: Callable[..., Store]) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(opened(make_store()))
        shared = first.capabilities.shared
        second = await stack.enter_async_context(opened(make_store())) if shared else first
        yield Pair(first, second)


async def granted(store: Store, name: str, by: NodeIdentity, ttl: float = LONG) -> Lease:
    answer = await store.claim(name, by, ttl)
    assert isinstance(answer, Granted), answer
    return answer.lease


async def lapsed(store: Store, name: str, within: float = 10.0) -> None:
    async with asyncio.timeout(within):
        while await store.read(name) is not None:
            await asyncio.sleep(0.02)


async def test_a_free_lease_is_granted_and_a_held_one_denied(pair: Pair) -> None:
    """Denied says who holds it, with which fence, and how long yet."""
    lease = await granted(pair.a, "slots/x", A)
    assert (lease.name, lease.holder, lease.node) == ("slots/x", A.id, "a")
    answer = await pair.b.claim("slots/x", B, LONG)
    assert isinstance(answer, Denied) and answer.by == lease and 0 < answer.lapses_in <= LONG + 1
    assert await granted(pair.b, "slots/y", B), "another name is another lease"


async def test_the_holder_may_claim_again(pair: Pair) -> None:
    """A claim whose answer was lost is asked again, and is the same lease."""
    lease = await granted(pair.a, "slots/x", A)
    assert await granted(pair.a, "slots/x", A) == lease


async def test_release_frees_at_once_and_the_fence_grows(pair: Pair) -> None:
    """A new owner has a higher fence, and is told of no predecessor that fell silent."""
    lease = await granted(pair.a, "slots/x", A)
    assert await pair.a.release(lease)
    assert await pair.b.read("slots/x") is None
    answer = await pair.b.claim("slots/x", B, LONG)
    assert isinstance(answer, Granted) and answer.lease.fence > lease.fence and answer.taken_from is None


async def test_an_heir_takes_over_a_live_lease(pair: Pair) -> None:
    """Whoever has taken over the run of a dead process has its lease at once, with a higher fence; nobody else has."""
    old = await granted(pair.a, "slots/x", A)
    assert isinstance(await pair.b.claim("slots/x", B, LONG, heir_of="another"), Denied)
    answer = await pair.b.claim("slots/x", B, LONG, heir_of=A.id)
    assert isinstance(answer, Granted) and answer.lease.fence > old.fence and answer.taken_from is None
    assert not await pair.a.release(old)


async def test_a_stale_release_does_nothing(pair: Pair) -> None:
    """Only the exact lease, holder and fence, can be released."""
    old = await granted(pair.a, "slots/x", A)
    await pair.a.release(old)
    new = await granted(pair.b, "slots/x", B)
    assert not await pair.a.release(old)
    assert not await pair.a.release(msgspec.structs.replace(new, holder=A.id))
    assert not await pair.b.release(msgspec.structs.replace(new, fence=old.fence))
    denied = await pair.a.read("slots/x")
    assert denied is not None and denied.by == new


async def test_a_lease_that_is_not_renewed_lapses_and_its_taker_hears_of_the_silent_holder(pair: Pair) -> None:
    """Not before its time to live has passed, and then with a higher fence."""
    began = time.monotonic()
    old = await granted(pair.a, "slots/x", A, TTL)
    await lapsed(pair.b, "slots/x")
    assert time.monotonic() - began >= TTL
    answer = await pair.b.claim("slots/x", B, LONG)
    assert isinstance(answer, Granted) and answer.taken_from == old and answer.lease.fence > old.fence


async def test_a_renewed_lease_does_not_lapse(pair: Pair) -> None:
    """Renewals keep it, for several times its time to live, with the same fence. (A machine that is too busy to renew
    in time proves nothing.)"""
    lease = await granted(pair.a, "slots/x", A, TTL)
    end = time.monotonic() + 3 * TTL
    while (began := time.monotonic()) < end:
        answer = await pair.a.renew(lease, TTL)
        assert isinstance(answer, Granted) and answer.lease == lease
        asked = await pair.b.claim("slots/x", B, TTL)
        if time.monotonic() - began > TTL:
            pytest.skip("this machine is too busy to renew a lease in time")
        assert isinstance(asked, Denied)
        await asyncio.sleep(TTL / 6)
        if time.monotonic() - began > TTL:
            pytest.skip("this machine is too busy to renew a lease in time")


async def test_a_lapsed_lease_that_nobody_took_is_renewed(pair: Pair) -> None:
    """Nobody was in between: it is the same lease."""
    lease = await granted(pair.a, "slots/x", A, TTL)
    await lapsed(pair.b, "slots/x")
    answer = await pair.a.renew(lease, LONG)
    assert isinstance(answer, Granted) and answer.lease == lease
    assert isinstance(await pair.b.claim("slots/x", B, LONG), Denied)


async def test_a_lease_that_was_taken_over_is_not_renewed(pair: Pair) -> None:
    """The old holder hears who has it; the new one keeps it."""
    old = await granted(pair.a, "slots/x", A, TTL)
    await lapsed(pair.b, "slots/x")
    new = await granted(pair.b, "slots/x", B)
    answer = await pair.a.renew(old, LONG)
    assert isinstance(answer, Denied) and answer.by == new
    denied = await pair.b.read("slots/x")
    assert denied is not None and denied.by == new


async def test_of_fifty_contenders_one_wins(pair: Pair) -> None:
    """At once, through both openings; again for each of ten names."""
    for round_number in range(10):
        name = f"slots/{round_number}"
        contenders = [node(f"n{n}") for n in range(50)]
        answers = await asyncio.gather(*(
            (pair.a if n % 2 else pair.b).claim(name, contender, LONG) for n, contender in enumerate(contenders)))
        winners = [answer for answer in answers if isinstance(answer, Granted)]
        assert len(winners) == 1
        assert all(answer.by == winners[0].lease for answer in answers if isinstance(answer, Denied))


async def test_fences_never_fall(pair: Pair) -> None:
    """Whoever claims and releases in whatever order: each new owner has a higher fence than all before."""
    fences = []
    for turn in range(8):
        store, who = (pair.a, A) if turn % 2 else (pair.b, B)
        lease = await granted(store, "slots/x", who)
        fences.append(lease.fence)
        assert await store.release(lease)
    assert fences == sorted(set(fences))


async def test_fences_survive_the_process(make_durable: Callable[..., Store]) -> None:
    """A daemon that starts later gets a higher fence than any before."""
    async with opened(make_durable()) as store:
        first = await granted(store, "slots/x", A, TTL)
    async with opened(make_durable()) as store:
        await lapsed(store, "slots/x")
        assert (await granted(store, "slots/x", B)).fence > first.fence


async def test_names_may_hold_anything_a_job_name_may(pair: Pair) -> None:
    """Slashes, dots, spaces, other scripts, length: names stay apart."""
    names = ["slots/a/b", "slots/a b", "slots/..", "slots/.", "slots/ä\U0001f514", "slots/%2e", "slots/" + "x" * 250,
             "slots/" + "x" * 249 + "y", "slots/A", "slots/a"]
    leases = [await granted(pair.a, name, A) for name in names]
    for name, lease in zip(names, leases, strict=True):
        denied = await pair.b.read(name)
        assert denied is not None and denied.by == lease and lease.name == name


def signal(run: str, to: NodeIdentity = A, sender: str = "b") -> Signal:
    return Signal(to=to.id, kind=SignalKind.CANCEL, run=run, sender=sender, requested_by="someone", reason="no\nmore")


async def test_signals_arrive_once_whole_and_in_order(pair: Pair) -> None:
    """What several nodes send is all there; what was taken is gone; others' mail is not touched."""
    sent = [signal(f"r{n}") for n in range(20)]
    for one in sent:
        await pair.b.send(one)
    await pair.b.send(signal("for b", to=B))
    assert list(await pair.a.take(A.id)) == sent
    assert list(await pair.a.take(A.id)) == []
    assert [one.run for one in await pair.b.take(B.id)] == ["for b"]


async def test_a_signal_wakes_its_receiver(pair: Pair) -> None:
    """Well within two seconds, of which a Replace of another node's run has to be content."""
    waiting = asyncio.ensure_future(pair.a.signalled(A.id, 10.0))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await pair.b.send(signal("r"))
    await waiting
    assert time.monotonic() - began < 2.0
    assert len(await pair.a.take(A.id)) == 1


async def test_waiting_for_signals_is_bounded(pair: Pair) -> None:
    """Without any it returns after the time that it was given."""
    async with asyncio.timeout(5):
        await pair.a.signalled(A.id, 0.1)


def facts(who: NodeIdentity, ahead: float = 0.0, runs: tuple[str, ...] = ()) -> NodeFacts:
    clock = datetime.now(UTC) + timedelta(seconds=ahead)
    return NodeFacts(identity=who, version="1", started_at=NOON, clock=clock, runs=runs)


async def test_nodes_see_each_other_with_their_clocks_offset(pair: Pair) -> None:
    """The newest heartbeat counts; a clock that is a minute ahead is seen to be."""
    await pair.a.announce(facts(A))
    await pair.a.announce(facts(A, runs=("r1",)))
    await pair.b.announce(facts(B, ahead=60.0))
    seen = {presence.facts.identity.name: presence for presence in await pair.a.nodes()}
    assert seen.keys() == {"a", "b"} and seen["a"].facts.runs == ("r1",)
    assert abs(seen["a"].clock_offset) < 2 and 58 < seen["b"].clock_offset < 62
    assert all(-0.5 < presence.silent_for < 5 for presence in seen.values())


async def test_a_node_that_leaves_is_forgotten(pair: Pair) -> None:
    """And the others are not."""
    await pair.a.announce(facts(A))
    await pair.b.announce(facts(B))
    await pair.a.leave(A.id)
    await pair.a.leave(A.id)
    assert [presence.facts.identity for presence in await pair.b.nodes()] == [B]


async def test_an_occurrence_belongs_to_the_first_who_claims_it(pair: Pair) -> None:
    """Of many contenders one; it may ask again; other instants and jobs are others' to have."""
    contenders = [node(f"n{n}") for n in range(20)]
    answers = await asyncio.gather(*(
        (pair.a if n % 2 else pair.b).claim_fire("x", NOON, contender) for n, contender in enumerate(contenders)))
    assert answers.count(True) == 1
    winner = contenders[answers.index(True)]
    assert await pair.b.claim_fire("x", NOON, winner)
    assert await pair.a.claim_fire("x", NOON + timedelta(minutes=1), A)
    assert await pair.a.claim_fire("y", NOON, A)
    later = Fire(scheduled_for=NOON + timedelta(minutes=1), by=A.id)
    assert list(await pair.b.fired("x", NOON)) == [Fire(scheduled_for=NOON, by=winner.id), later]
    assert list(await pair.b.fired("x", NOON + timedelta(seconds=1))) == [later]


async def test_old_claims_can_be_forgotten(pair: Pair) -> None:
    """Those before the instant, and only those."""
    for minute in range(3):
        assert await pair.a.claim_fire("x", NOON + timedelta(minutes=minute), A)
    await pair.b.forget_fires(NOON + timedelta(minutes=2))
    assert [fire.scheduled_for for fire in await pair.a.fired("x", NOON - timedelta(days=1))] == [
        NOON + timedelta(minutes=2)]


async def test_what_a_node_left_is_found_by_its_identity(pair: Pair) -> None:
    """Only its runs, only those without a record."""
    mine = msgspec.structs.replace(launch(1), daemon=A.id)
    done = msgspec.structs.replace(launch(2), daemon=A.id)
    other = msgspec.structs.replace(launch(3), daemon=B.id)
    for one in (mine, done, other):
        await pair.a.intend(one)
    await pair.a.record(msgspec.structs.replace(recorded(2), launch=done))
    assert [record.launch for record in await pair.b.unfinished_of(A.id)] == [mine]


async def test_news_are_what_others_have_recorded(pair: Pair) -> None:
    """A run that another node has recorded is heard of with the next look, whole, and its neighbours with it."""
    if pair.a is pair.b:
        pytest.skip("only one process can have this store")
    await pair.b.news(10)
    await pair.a.record(recorded(1, "x"))
    await pair.a.record(recorded(2, "x", ended=1.0))
    await pair.a.record(recorded(3, "y"))
    news = await pair.b.news(10)
    assert [record.launch.id for record in news["x"].runs] == [run_id(1), run_id(2)]
    assert [record.launch.id for record in news["y"].runs] == [run_id(3)]
    await pair.a.record(recorded(4, "y", ended=2.0))
    assert [record.launch.id for record in (await pair.b.news(1))["y"].runs] == [run_id(4)]

"""Occurrences that are claimed many at once (`Fires.claim_fires`), on every store."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta

import psycopg
import pytest
from ledger_samples import NOON, Store, opened
from test_coordination import A, B, node

from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.store.coordination import Claimed, Occurrence
from sexton.store.directory import DirectoryStore
from sexton.store.postgres import PostgresStore

PATIENCE = 60.0
MAKER = Callable[..., Store]


def many(count: int, job: str = "job") -> list[Occurrence]:
    return [Occurrence(f"{job}-{number:03}", NOON) for number in range(count)]


async def all_of(store: Store, wanted: list[Occurrence], by: NodeIdentity, most: int = 500) -> frozenset[Occurrence]:
    """Ask until everything is decided; which ones are ours."""
    ours: set[Occurrence] = set()
    left, idle = list(wanted), 0
    while left:
        told = await store.claim_fires(left, by, most)
        assert not told.ours & told.others and told.ours | told.others <= set(left)
        ours |= told.ours
        decided = told.ours | told.others
        idle = 0 if decided else idle + 1
        assert idle < 2, "of two rounds one decides something"
        left = [one for one in left if one not in decided]
    return frozenset(ours)


async def test_what_is_free_is_claimed_and_what_is_not_is_told(store: Store) -> None:
    """The first ones first, and no more than asked for; of the rest nothing is claimed or said; what others have is
    said however few may be claimed. `claim_fire` and `fired` see the same."""
    wanted = many(10)
    assert await store.claim_fire(*wanted[0], B)
    assert await store.claim_fire(*wanted[9], B)
    told = await store.claim_fires(wanted, A, 3)
    assert told == Claimed(frozenset(wanted[1:4]), frozenset((wanted[0], wanted[9])))
    assert [fire.by for fire in await store.fired(wanted[1].job, NOON)] == [A.id]
    assert list(await store.fired(wanted[4].job, NOON)) == []
    assert not await store.claim_fire(*wanted[2], B) and await store.claim_fire(*wanted[4], B)


async def test_the_first_ones_are_those_that_are_named_first(store: Store) -> None:
    """Whatever their names."""
    wanted = many(8)[::-1]
    assert (await store.claim_fires(wanted, A, 2)).ours == frozenset(wanted[:2])


async def test_an_answer_that_was_lost_is_given_again(store: Store) -> None:
    """Who asks once more is told the same: of its own and of others', some of each in one batch."""
    wanted = many(20)
    assert await all_of(store, wanted[::2], A) == frozenset(wanted[::2])
    assert await all_of(store, wanted[::2], A) == frozenset(wanted[::2])
    assert await all_of(store, wanted, B) == frozenset(wanted[1::2])
    assert await all_of(store, wanted, A, most=1) == frozenset(wanted[::2])


async def test_one_instant_is_one_occurrence(store: Store) -> None:
    """Of a job several instants; the same instant in another zone; the same one named twice; text of any kind."""
    zoned = NOON.astimezone(NOON.tzinfo.__class__(timedelta(hours=5)))  # type: ignore[call-arg, union-attr]
    names = ["a", "A", "a/b", "..", "ä\U0001f514", "{x}", "a,b", 'a"b', "NULL", "\\", " ", "%s"]
    wanted = [Occurrence(name, NOON + timedelta(microseconds=n)) for name in names for n in range(3)]
    assert await all_of(store, [*wanted, Occurrence("a", zoned), wanted[4]], A) == frozenset(wanted)
    assert await all_of(store, [Occurrence("a", zoned), *wanted], B) == frozenset()


async def test_fifty_contenders_with_overlapping_batches(make_store: MAKER) -> None:
    """In any order, some large and some small, some with single claims in between, through several openings: each
    occurrence has exactly one winner, everybody comes to an end, and nobody is told something else later."""
    shuffled = random.Random(7)
    wanted = many(120)
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(make_store()))]
        while stores[0].capabilities.shared and len(stores) < 6:
            stores.append(await stack.enter_async_context(opened(make_store())))

        async def contend(number: int) -> list[Occurrence]:
            mine = shuffled.sample(wanted, shuffled.choice((30, 80, 120)))
            store, me = stores[number % len(stores)], node(f"n{number}")
            if number % 10 == 0:
                return [one for one in mine if await store.claim_fire(*one, me)]
            ours = await all_of(store, mine, me, most=shuffled.choice((3, 40, 500)))
            assert await all_of(store, mine, me) == ours
            return list(ours)

        async with asyncio.timeout(PATIENCE):
            won = await asyncio.gather(*map(contend, range(50)))
    count = Counter(one for some in won for one in some)
    assert set(count) == set(wanted) and set(count.values()) == {1}
    assert sum(bool(some) for some in won) > 1 or not stores[0].capabilities.shared


async def test_batches_in_opposite_orders_do_not_wait_in_a_circle(database: str) -> None:
    """Two claim the same new occurrences, one forwards, one backwards, some times: the database counts no deadlock. (It
    would end one with an error, and that one would be asked once more.)"""
    async with opened(PostgresStore(database)) as one, opened(PostgresStore(database)) as two:
        async with asyncio.timeout(PATIENCE):
            for turn in range(10):
                wanted = many(3000, f"turn-{turn}")
                await asyncio.gather(one.claim_fires(wanted, A, 5000), two.claim_fires(wanted[::-1], B, 5000))
    with psycopg.connect(database) as other:
        told = other.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert told == (0,)


async def test_our_own_claim_that_is_not_committed_yet(database: str) -> None:
    """A claim whose connection broke may still be at work in the server. Who asks again waits for it or is told
    nothing, and then that the occurrence is its own: told that it is another's, nobody would fire it."""
    wanted = many(3)
    async with opened(PostgresStore(database)) as store, asyncio.timeout(PATIENCE):
        with psycopg.connect(database) as broken:
            broken.execute("INSERT INTO sexton.fire VALUES (%s, %s, %s)", (*wanted[1], A.id))
            asked = asyncio.ensure_future(all_of(store, wanted, A))
            with psycopg.connect(database, autocommit=True) as other:
                while not other.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
                    await asyncio.sleep(0.01)
            broken.commit()
        assert await asked == frozenset(wanted)


async def test_a_folder_that_fails_in_the_middle(make_store: MAKER, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was decided before is told; the rest is not, and is an error when nothing else is left to tell."""
    wanted = many(30)
    async with opened(store := make_store()):
        if not isinstance(store, DirectoryStore):
            pytest.skip("one statement decides everything or nothing")
        assert store._opened is not None
        occurrences = store._opened.occurrences
        claim, broken = occurrences.claim, set(wanted[10:])

        def failing(job: str, scheduled_for: object, by: NodeIdentity) -> bool:
            if Occurrence(job, NOON) in broken:
                raise OSError(5, "Input/output error")
            return claim(job, NOON, by)

        monkeypatch.setattr(occurrences, "claim", failing)
        told = await store.claim_fires(wanted, A, 500)
        assert told == Claimed(frozenset(wanted[:10]))
        with pytest.raises(StoreError, match="Input/output"):
            await store.claim_fires(wanted[10:], A, 500)
        with pytest.raises(StoreError, match="Input/output"):
            await store.claim_fires(wanted[11:12], A, 500)
        broken.clear()
        assert await all_of(store, wanted, B) == frozenset(wanted[10:])


async def test_a_folder_that_is_cleared_away_as_empty_is_made_again(
    make_store: MAKER, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that comes up removes empty folders of claims: one that is about to be used is no reason to fail."""
    async with opened(store := make_store()):
        if not isinstance(store, DirectoryStore):
            pytest.skip("it has no folders")
        assert store._opened is not None
        files, cleared = store._opened.files, []
        make = files.make

        def unlucky(folder: str) -> None:
            make(folder)
            if len(cleared) < 2 and folder.endswith("/new"):
                cleared.append(folder)
                os.rmdir(folder)

        monkeypatch.setattr(files, "make", unlucky)
        assert await store.claim_fire("new", NOON, A) and len(cleared) == 2

"""What leases are after a failover to a standby that had not heard of all commits. (The primary acknowledges a commit
before the standby has it, unless `synchronous_standby_names` says otherwise.)"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from ledger_samples import ids, launch, opened, recorded, run_id
from test_coordination import A, B, facts, granted, node

from postgres_pair import Pair
from sexton.model.errors import StoreError
from sexton.store.coordination import Claimed, Denied, Granted, Occurrence
from sexton.store.postgres import PostgresStore

C = node("c")
TTL = 2.0
LOST = "may have lost leases"


async def failed_over(pair: Pair, store: PostgresStore) -> None:
    await asyncio.to_thread(pair.fail_over)
    async with asyncio.timeout(20):
        while True:
            try:
                await store.nodes()
                return
            except StoreError:
                await asyncio.sleep(0.05)


async def test_a_holder_has_its_lease_back_before_anybody_gets_it(pair: Pair) -> None:
    """The lease was A's, released; then B's: the standby has not heard of B, and not of the release. Nobody who is wary
    is granted it; B renews, and has it with a fence that is higher than all before; from then on others are denied.
    When the time to live has passed what nobody renewed is free, again with a higher fence."""
    async with opened(PostgresStore(pair.url, wary=True)) as b, opened(PostgresStore(pair.url, wary=True)) as c:
        first = await granted(b, "slots/x", A, 60.0)
        await granted(b, "slots/y", A, 0.1)
        pair.stop_replication()
        assert await b.release(first)
        lost = await granted(b, "slots/x", B, TTL)
        await granted(b, "slots/new", B, TTL)
        await failed_over(pair, c)
        assert isinstance(denied := await c.claim("slots/x", C, TTL), Denied) and denied.by.holder == A.id
        for name in ("slots/y", "slots/new", "slots/other"):
            with pytest.raises(StoreError, match=LOST):
                await c.claim(name, C, TTL)
        again = await b.renew(lost, TTL)
        assert isinstance(again, Granted) and again.lease.fence > lost.fence
        denied = await c.claim("slots/x", C, TTL)
        assert isinstance(denied, Denied) and denied.by == again.lease
        async with asyncio.timeout(TTL + 3):
            while not isinstance(taken := await claim_or_none(c, TTL), Granted):
                await asyncio.sleep(0.05)
        assert taken.lease.fence > again.lease.fence


async def claim_or_none(store: PostgresStore, ttl: float) -> Granted | Denied | None:
    try:
        return await store.claim("slots/x", C, ttl)
    except StoreError:
        return None


async def test_who_is_not_wary_may_get_what_another_has(pair: Pair) -> None:
    """The default (`onStoreUnavailable: degrade`): a lease that was lost is granted at once, and its old holder is
    denied with its next renewal. So the guide says which settings prevent it."""
    async with opened(PostgresStore(pair.url)) as b, opened(PostgresStore(pair.url)) as c:
        pair.stop_replication()
        lost = await granted(b, "slots/x", B, 60.0)
        await failed_over(pair, c)
        await granted(c, "slots/x", C, 60.0)
        assert isinstance(await b.renew(lost, 60.0), Denied)


async def test_an_occurrence_whose_claim_may_be_lost(pair: Pair) -> None:
    """One that was due before the failover, and that nobody is known to have claimed: the wary are told that nobody
    knows. One that is due afterwards is the first claimant's, as ever."""
    async with opened(PostgresStore(pair.url, wary=True)) as b, opened(PostgresStore(pair.url, wary=True)) as c:
        due = datetime.now(UTC)
        assert await b.claim_fire("early", due, A)
        await asyncio.sleep(0.3)  # the standby hears of it
        pair.stop_replication()
        assert await b.claim_fire("backup", due, B)
        await failed_over(pair, c)
        with pytest.raises(StoreError, match="may have lost another node's claim"):
            await c.claim_fire("backup", due, C)
        assert not await c.claim_fire("early", due, C)
        later = datetime.now(UTC) + timedelta(seconds=30)
        assert await c.claim_fire("backup", later, C) and not await b.claim_fire("backup", later, B)
        lost, early, new = Occurrence("backup", due), Occurrence("early", due), Occurrence("new", later)
        told = await c.claim_fires([lost, early, new], C, 5)
        assert told == Claimed(ours=frozenset({new}), others=frozenset({early}), doubtful=frozenset({lost}))


async def test_a_record_that_was_lost_is_written_once_more(pair: Pair) -> None:
    """The standby has the intent of a run, and not its record, which the primary had acknowledged: without it the run
    would be going on for ever. The node whose run it was writes it again when it notices."""
    async with opened(PostgresStore(pair.url)) as b, opened(PostgresStore(pair.url)) as c:
        await b.intend(launch(1))
        await c.record(recorded(2))
        await asyncio.sleep(0.3)  # the standby hears of it
        pair.stop_replication()
        await b.record(recorded(1))
        await failed_over(pair, c)
        assert ids(await c.unfinished()) == [run_id(1)]
        await b.announce(facts(B))
        async with asyncio.timeout(5):
            while await c.unfinished():
                await asyncio.sleep(0.05)
        assert ids(await c.runs(limit=9)) == [run_id(2), run_id(1)]
        assert sum((await c.history("backup", 9)).totals.values()) == 2


async def test_with_a_synchronous_standby_nothing_that_was_acknowledged_is_lost(pair: Pair) -> None:
    """Leases with their fences, records, claimed occurrences: all there, and what is held is held at once."""
    pair.be_synchronous()
    async with opened(PostgresStore(pair.url, wary=True)) as b, opened(PostgresStore(pair.url, wary=True)) as c:
        lease = await granted(b, "slots/x", B, 60.0)
        for number in range(20):
            await b.record(recorded(number))
        assert await b.claim_fire("backup", due := datetime.now(UTC), B)
        await failed_over(pair, c)
        assert isinstance(answer := await b.renew(lease, 60.0), Granted) and answer.lease == lease
        assert isinstance(await c.claim("slots/x", C, 60.0), Denied)
        assert ids(await c.runs(limit=99)) == [run_id(number) for number in range(19, -1, -1)]
        assert not await c.claim_fire("backup", due, C)


async def test_a_standby_is_never_taken_for_the_primary(pair: Pair) -> None:
    """It answers, and stands first in the URL: without a word of `target_session_attrs` there the primary is found. The
    standby alone is refused at the start, with a reason."""
    first, second = (f"127.0.0.1:{server.port}" for server in (pair.standby, pair.primary))
    async with opened(PostgresStore(f"postgresql://sexton@{first},{second}/postgres")) as store:
        await store.record(recorded(1))
        assert ids(await store.runs(limit=9)) == [run_id(1)]
    with pytest.raises(StoreError, match=r"read-only|hot standby"):
        await PostgresStore(pair.standby.url()).open()

"""Leases of the directory store under clocks that are wrong, files that are damaged and contenders that come late."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from ledger_samples import launch, opened, recorded
from test_coordination import TTL, A, B, facts, granted, lapsed, node

from sexton.model.errors import UntrustedLocks
from sexton.store.coordination import Denied, Granted, Lease
from sexton.store.directory import DirectoryStore
from sexton.store.directory.terms import Standing, Term
from sexton.store.directory.terms import renew as decide_renewal

LONG = 30.0


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[DirectoryStore, DirectoryStore]]:
    async with AsyncExitStack() as stack:
        stores = [DirectoryStore(tmp_path), DirectoryStore(tmp_path)]
        for store in stores:
            await stack.enter_async_context(opened(store))
        yield stores[0], stores[1]


def lease_file(store: DirectoryStore) -> Path:
    """The one that stands, of the only lease."""
    (folder,) = (store.directory / "leases").iterdir()
    return max(folder.iterdir())


@pytest.mark.parametrize("skew", [90.0, -90.0])
async def test_the_clocks_of_hosts_do_not_matter(
    two: tuple[DirectoryStore, DirectoryStore], monkeypatch: pytest.MonkeyPatch, skew: float
) -> None:
    """A node whose wall clock is a minute and a half off neither takes a live lease nor waits longer for a dead one."""
    a, b = two
    true, true_ns = time.time, time.time_ns
    await granted(a, "x", A, 1.0)
    monkeypatch.setattr(time, "time", lambda: true() + skew)
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + int(skew * 1e9))
    assert isinstance(await b.claim("x", B, 1.0), Denied)
    began = time.monotonic()
    await lapsed(b, "x")
    assert time.monotonic() - began < 10.0
    assert isinstance(await b.claim("x", B, 1.0), Granted)


async def test_a_file_system_clock_that_is_set_back_does_not_keep_a_dead_lease_alive(
    two: tuple[DirectoryStore, DirectoryStore]
) -> None:
    """Its file is an hour in the future: watched unchanged for its time to live, it has lapsed all the same."""
    a, b = two
    await granted(a, "x", A, TTL)
    ahead = time.time() + 3600
    os.utime(lease_file(a), (ahead, ahead))
    began = time.monotonic()
    assert await b.read("x") is not None
    await lapsed(b, "x")
    assert TTL <= time.monotonic() - began < TTL + 9


async def test_a_file_system_clock_that_is_set_ahead_does_not_end_a_lease_that_is_seen_to_be_renewed(
    two: tuple[DirectoryStore, DirectoryStore]
) -> None:
    """Its file is an hour old by the stamps; but this node has seen it change a moment ago."""
    a, b = two
    lease = await granted(a, "x", A, LONG)
    assert await b.read("x") is not None
    assert isinstance(await a.renew(lease, LONG), Granted)
    long_ago = time.time() - 3600
    os.utime(lease_file(a), (long_ago, long_ago))
    assert isinstance(await b.claim("x", B, LONG), Denied)


async def test_a_holder_that_died_long_ago_is_not_waited_for_again(two: tuple[DirectoryStore, DirectoryStore]) -> None:
    """A node that has not looked for long sees a change that it had missed, and goes by its stamp."""
    a, b = two
    lease = await granted(a, "x", A, TTL)
    assert await b.read("x") is not None
    await a.renew(lease, TTL)
    await asyncio.sleep(TTL + 0.1)  # the fact itself: nobody has looked for that long
    assert isinstance(await b.claim("x", B, TTL), Granted)


async def test_a_damaged_lease_counts_as_held_and_its_holder_mends_it(
    two: tuple[DirectoryStore, DirectoryStore]
) -> None:
    """Nobody else gets it early, and the holder, who knows what it wrote, renews it."""
    a, b = two
    lease = await granted(a, "x", A, LONG)
    lease_file(a).write_bytes(b"\0" * 40)
    denied = await b.claim("x", B, LONG)
    assert isinstance(denied, Denied) and denied.by.holder == "unknown" and denied.by.fence >= lease.fence
    assert await a.renew(lease, LONG) == Granted(lease=lease)
    again = await b.read("x")
    assert again is not None and again.by == lease


async def test_fences_do_not_fall_when_a_lease_file_is_damaged(two: tuple[DirectoryStore, DirectoryStore]) -> None:
    """The number of the file outlives its content."""
    a, _ = two
    for _ in range(5):
        lease = await granted(a, "x", A, LONG)
        assert await a.release(lease)
    path = lease_file(a)
    path.write_bytes(b"{")
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))
    async with opened(DirectoryStore(a.directory.parent)) as fresh:
        assert (await granted(fresh, "x", B)).fence > lease.fence


async def test_a_write_that_comes_late_changes_nothing(
    two: tuple[DirectoryStore, DirectoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal is stuck until its lease has lapsed, was taken by another, and its place was even cleared away. When it
    goes on it takes nothing from the new holder, whose fence stands."""
    a, b = two
    old = await granted(a, "x", A, TTL)
    true_link, stuck = os.link, []

    def late(source: str, target: str, **options: object) -> None:
        if not stuck:
            stuck.append(target)
            time.sleep(TTL + 0.3)
            taken = [asyncio.run_coroutine_threadsafe(work(), loop).result() for work in (take, renew, renew)]
            stuck.extend(map(str, taken))
        true_link(source, target)

    async def take() -> object:
        return await b.claim("x", B, LONG)

    async def renew() -> object:
        denied = await b.read("x")
        assert denied is not None
        return await b.renew(denied.by, LONG)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(os, "link", late)
    answer = await a.renew(old, TTL)
    assert isinstance(answer, Denied) and answer.by.holder == B.id and answer.by.fence > old.fence
    denied = await a.read("x")
    assert denied is not None and denied.by == answer.by
    folder = await asyncio.to_thread(lambda: list(lease_file(a).parent.iterdir()))
    assert Path(stuck[0]) not in folder, "what it wrote after all is gone"


async def test_a_lease_that_vanished_comes_back_with_a_higher_fence(
    two: tuple[DirectoryStore, DirectoryStore]
) -> None:
    """The store was deleted: whoever renews first has it, and no fence is given out twice."""
    a, b = two
    lease = await granted(a, "x", A, LONG)
    for path in sorted(a.directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    a.directory.rmdir()
    answer = await a.renew(lease, LONG)
    assert isinstance(answer, Granted) and answer.lease.fence > lease.fence
    denied = await b.claim("x", B, LONG)
    assert isinstance(denied, Denied) and denied.by == answer.lease


def test_the_highest_fence_that_was_heard_of_is_exceeded() -> None:
    """Also where the store has forgotten it and the claimant's own memory has it."""
    lease = Lease(name="x", holder=A.id, node="a", fence=7)
    answer, term = decide_renewal(Standing(term=None, fence=3), lease, LONG)
    assert isinstance(answer, Granted) and answer.lease.fence == 8 and isinstance(term, Term) and term.fence == 8


async def test_locks_that_are_no_locks_are_noticed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Claims are refused with a type of their own, for the caller's policy; all else goes on working."""
    monkeypatch.setattr("sexton.store.directory.probe.fcntl.flock", lambda file, how: None)
    async with opened(DirectoryStore(tmp_path)) as store:
        assert isinstance(store, DirectoryStore)
        assert store.lock_problem is not None and "two exclusive locks" in store.lock_problem
        assert caplog.text.count("two exclusive locks") == 1
        for _ in range(2):
            with pytest.raises(UntrustedLocks, match="two exclusive locks"):
                await store.claim("x", A, LONG)
        await store.intend(launch(1))
        await store.record(recorded(1))
        await store.announce(facts(A))
        assert await store.read("x") is None and len(await store.nodes()) == 1
    assert caplog.text.count("two exclusive locks") == 1


async def test_a_file_system_without_locks_is_not_one_that_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leases do without them."""

    def refuse(file: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("sexton.store.directory.probe.fcntl.flock", refuse)
    async with opened(DirectoryStore(tmp_path)) as store:
        assert isinstance(store, DirectoryStore) and store.lock_problem is None
        await granted(store, "x", A)


async def test_a_file_system_that_gives_one_name_twice_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exclusive names are what leases stand on."""
    true_link = os.link

    def careless(source: str, target: str) -> None:
        Path(target).unlink(missing_ok=True)
        true_link(source, target)

    monkeypatch.setattr(os, "link", careless)
    async with opened(DirectoryStore(tmp_path)) as store:
        assert isinstance(store, DirectoryStore) and store.lock_problem is not None
        with pytest.raises(UntrustedLocks, match="one name"):
            await store.claim("x", A, LONG)


async def test_many_contend_through_many_openings(tmp_path: Path) -> None:
    """Of each round's claims one is granted; renewals of the holder among them are all granted."""
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(opened(DirectoryStore(tmp_path))) for _ in range(4)]
        fence = 0
        for _ in range(10):
            answers = await asyncio.gather(*(stores[n % 4].claim("x", node(f"n{n}"), LONG) for n in range(24)))
            (won,) = [answer.lease for answer in answers if isinstance(answer, Granted)]
            assert won.fence > fence
            fence = won.fence
            others = [stores[n % 4].claim("x", node(f"m{n}"), LONG) for n in range(8)]
            renewals = [stores[n % 4].renew(won, LONG) for n in range(8)]
            assert await asyncio.gather(*renewals) == [Granted(lease=won)] * 8
            assert all(isinstance(answer, Denied) for answer in await asyncio.gather(*others))
            assert await stores[0].release(won)

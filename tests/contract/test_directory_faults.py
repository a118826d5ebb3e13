"""The directory store on mounts that hang, fill up, refuse, vanish, and keep a clock of their own."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from ledger_samples import NOON, ids, launch, opened, recorded, run_id, running
from memory_fuse import CREATE, LINK, MKDIR, READ, RENAME, RENAME2, WRITE, MemoryMount
from test_coordination import A, B, facts, granted, lapsed, signal

from sexton.model.errors import StoreError, UntrustedLocks
from sexton.store.coordination import Denied, Granted, Occurrence
from sexton.store.directory import DirectoryStore, threads, writer

LONG = 30.0
Mounting = Callable[..., MemoryMount]


@pytest.fixture
def mounting(tmp_path: Path) -> Iterator[Mounting]:
    mounts: list[MemoryMount] = []

    def mount(**options: object) -> MemoryMount:
        try:
            mounts.append(MemoryMount(tmp_path / f"mount-{len(mounts)}", **options))  # type: ignore[arg-type]
        except OSError as error:
            pytest.skip(f"no FUSE file system can be mounted here: {error}")
        return mounts[-1]

    yield mount
    for one in mounts:
        one.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Ten seconds are long for a test."""
    assert threads.ANSWER_SECONDS == writer.ANSWER_SECONDS == 10.0
    for module in (threads, writer):
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(writer, "LOOK_SECONDS", 0.2)
    return 0.5


async def recovered(store: DirectoryStore) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                await store.record(recorded(99, "recovered"))
                break
            except StoreError:
                await asyncio.sleep(0.05)
        while store.problem is not None:
            await asyncio.sleep(0.02)


async def test_a_mount_that_hangs_is_an_error_within_the_bound_and_costs_a_few_threads(
    mounting: Mounting, impatient: float
) -> None:
    """Every kind of call says so in time; once all threads hang, at once; and all is well when the mount answers."""
    mount = mounting()
    async with opened(store := DirectoryStore(mount.folder)):
        lease = await granted(store, "x", A)
        await store.record(recorded(1))
        before = threading.active_count()
        mount.answering.clear()
        store.note(running(2))
        calls: list[Callable[[], object]] = [
            lambda: store.record(recorded(2)), lambda: store.intend(launch(3)), lambda: store.get_state("a", "k"),
            lambda: store.unfinished(), lambda: store.runs(limit=9), lambda: store.history("backup", 9),
            lambda: store.renew(lease, LONG), lambda: store.claim("y", B, LONG), lambda: store.read("x"),
            lambda: store.nodes(), lambda: store.take(A.id), lambda: store.send(signal("r")),
            lambda: store.announce(facts(A)), lambda: store.signalled(A.id, 5.0),
            lambda: store.claim_fires([Occurrence(f"{n}", NOON) for n in range(9)], A, 9),
        ]
        for _ in range(3):
            began = time.monotonic()
            answers = await asyncio.gather(*(call() for call in calls), return_exceptions=True)  # type: ignore[call-overload]
            took = time.monotonic() - began
            assert all("did not answer within" in str(answer) for answer in answers), answers
            assert took < impatient * 4
        assert took < impatient / 2, "nobody waits for what is known to hang"
        assert store.problem is not None and "did not answer within" in store.problem
        assert threading.active_count() <= before
        mount.answering.set()
        await recovered(store)
        assert await store.renew(lease, LONG) == Granted(lease=lease)
        assert await store.read("y") is None, "a claim that nobody waited for any more was not made"
        assert [fire for n in range(9) for fire in await store.fired(f"{n}", NOON)] == []
        assert ids(await store.runs(job="backup", limit=9)) in ([run_id(1)], [run_id(2), run_id(1)])
        assert list(await store.nodes()) is not None


async def test_the_event_loop_never_waits_for_a_mount(mounting: Mounting, impatient: float) -> None:
    """It ticks on while everything hangs."""
    mount = mounting()
    async with opened(store := DirectoryStore(mount.folder)):
        mount.answering.clear()
        task = asyncio.gather(store.record(recorded(1)), store.claim("x", A, LONG), store.runs(limit=1),
                              return_exceptions=True)
        longest, last = 0.0, time.monotonic()
        while not task.done():
            await asyncio.sleep(0.005)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        assert longest < 0.4
        mount.answering.set()
        await recovered(store)


async def test_a_mount_that_hangs_from_the_start_cannot_be_opened(mounting: Mounting, impatient: float) -> None:
    """Within the bound; and it can when it answers."""
    mount = mounting()
    mount.answering.clear()
    store = DirectoryStore(mount.folder)
    with pytest.raises(StoreError, match="did not answer within"):
        await store.open()
    mount.answering.set()
    async with opened(store):
        await store.record(recorded(1))


async def test_closing_on_a_mount_that_hangs_is_bounded(mounting: Mounting, impatient: float) -> None:
    """It says that not everything was written."""
    mount = mounting()
    store = DirectoryStore(mount.folder, close_timeout=0.3)
    await store.open()
    mount.answering.clear()
    store.note(running(1))
    await asyncio.sleep(0)
    began = time.monotonic()
    with pytest.raises(StoreError, match="not finished"):
        await store.close()
    assert time.monotonic() - began < 3.0
    mount.answering.set()


async def test_leases_do_not_queue_behind_the_ledgers_writes(mounting: Mounting, impatient: float) -> None:
    """While writes wait in a long queue, a renewal takes its own way."""
    mount = mounting()
    async with opened(store := DirectoryStore(mount.folder)):
        lease = await granted(store, "x", A)
        writes = [asyncio.ensure_future(store.record(recorded(n))) for n in range(300)]
        await asyncio.sleep(0)
        await store.renew(lease, LONG)
        assert not writes[-1].done()
        await asyncio.gather(*writes, return_exceptions=True)


@pytest.mark.parametrize(
    ("faults", "reason"),
    [
        ({WRITE: errno.ENOSPC}, "No space left"),
        (dict.fromkeys((CREATE, MKDIR, WRITE, RENAME, RENAME2, LINK), errno.EROFS), "Read-only"),
        (dict.fromkeys((CREATE, MKDIR), errno.EACCES), "Permission denied"),
        (dict.fromkeys((CREATE, WRITE), errno.EDQUOT), "quota"),
        ({CREATE: errno.EIO}, "Input/output"),
    ],
)
async def test_a_mount_that_refuses_is_an_error_with_the_reason(
    mounting: Mounting, faults: dict[int, int], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger stays as it was, can be read, says why it takes nothing, and recovers by itself."""
    monkeypatch.setattr(writer, "LOOK_SECONDS", 0.2)
    mount = mounting()
    async with opened(store := DirectoryStore(mount.folder)):
        lease = await granted(store, "x", A)
        await store.record(recorded(1))
        mount.faults = faults
        for call in (store.record(recorded(2)), store.intend(launch(3)), store.put_state("a", "k", "v"),
                     store.renew(lease, LONG), store.send(signal("r")), store.claim_fire("a", NOON, A),
                     store.claim_fires([Occurrence("a", NOON), Occurrence("b", NOON)], A, 2)):
            with pytest.raises(StoreError, match=reason):
                await call
        assert store.problem is not None and reason in store.problem
        assert ids(await store.runs(limit=9)) == [run_id(1)]
        mount.faults = {}
        async with asyncio.timeout(10):
            while store.problem is not None:
                await asyncio.sleep(0.02)
        await store.record(recorded(2))
        assert await store.renew(lease, LONG) == Granted(lease=lease)
        assert ids(await store.runs(limit=9)) == [run_id(2), run_id(1)]


async def test_one_file_that_cannot_be_read_is_no_reason_to_lose_it(mounting: Mounting) -> None:
    """An input/output error is the disk's fault: nothing is put aside for it."""
    mount = mounting()
    async with opened(store := DirectoryStore(mount.folder)):
        await store.intend(launch(1))
        mount.faults = {READ: errno.EIO}
        with pytest.raises(StoreError, match="Input/output"):
            await store.unfinished()
        mount.faults = {}
        assert ids(await store.unfinished()) == [run_id(1)] and store.quarantined == 0


async def test_a_mount_that_grants_every_lock_is_found_out(mounting: Mounting) -> None:
    """Claims are refused, with a type of their own; the ledger works."""
    mount = mounting(grants_every_lock=True)
    async with opened(store := DirectoryStore(mount.folder)):
        assert store.lock_problem is not None
        with pytest.raises(UntrustedLocks, match="two exclusive locks"):
            await store.claim("x", A, LONG)
        await store.record(recorded(1))
    honest = mounting()
    async with opened(store := DirectoryStore(honest.folder)):
        assert store.lock_problem is None


@pytest.mark.parametrize("skew", [90.0, -90.0, -1e6])
async def test_the_clock_of_the_server_need_not_be_right(mounting: Mounting, skew: float) -> None:
    """It differs from this machine's by a minute and a half, or by days: a lease lasts as long as it says."""
    mount = mounting(clock=lambda: time.time_ns() + int(skew * 1e9))
    async with AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(opened(DirectoryStore(mount.folder))) for _ in range(2)]
        began = time.monotonic()
        await granted(a, "x", A, 0.6)
        assert isinstance(await b.claim("x", B, 0.6), Denied)
        await lapsed(b, "x")
        assert 0.6 <= time.monotonic() - began < 10.0
        await a.announce(facts(A))
        (presence,) = await b.nodes()
        assert abs(presence.clock_offset + skew) < 2 and 0 <= presence.silent_for < 2


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
async def test_a_server_clock_that_is_set_while_a_lease_lives_does_not_end_it(mounting: Mounting, jump: float) -> None:
    """To a node that watches, the lease of a holder that renews never lapses, and a dead one's does in time."""
    offset = 0.0
    mount = mounting(clock=lambda: time.time_ns() + int(offset * 1e9))
    async with AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(opened(DirectoryStore(mount.folder))) for _ in range(2)]
        lease = await granted(a, "x", A, 1.0)
        end = time.monotonic() + 2.4
        while time.monotonic() < end:
            answer = await a.renew(lease, 1.0)
            assert isinstance(answer, Granted) and answer.lease == lease
            assert isinstance(await b.claim("x", B, 1.0), Denied)
            if offset == 0.0 and time.monotonic() > end - 1.2:
                offset = jump
            await asyncio.sleep(0.1)
        await lapsed(b, "x", within=3.0)
        assert isinstance(await b.claim("x", B, 1.0), Granted)


async def test_whole_seconds_end_no_lease_early(mounting: Mounting) -> None:
    """On a file system that keeps no fractions, and for an opening that sees the lease for the first time."""
    began = 0.0

    def late_in_the_second() -> int:
        """The lease is written at the end of a second: two later a second has passed, and a little."""
        return int(1000.8 + time.monotonic() - began) * 1_000_000_000

    mount = mounting(clock=late_in_the_second)
    async with AsyncExitStack() as stack:
        a = await stack.enter_async_context(opened(DirectoryStore(mount.folder)))
        fresh = await stack.enter_async_context(opened(DirectoryStore(mount.folder)))
        began = time.monotonic()
        await granted(a, "x", A, 1.5)
        while time.monotonic() - began < 1.4:
            assert isinstance(await fresh.claim("x", B, 1.5), Denied)
            await asyncio.sleep(0.1)
        await lapsed(fresh, "x")


async def test_a_deleted_folder_is_begun_anew_and_said_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As a restart would, by whichever node needs it first; the others go on with it."""
    async with opened(a := DirectoryStore(tmp_path)), opened(b := DirectoryStore(tmp_path)):
        await a.record(recorded(1))
        await asyncio.to_thread(shutil.rmtree, a.directory)
        await a.record(recorded(2))
        await b.record(recorded(3))
        assert ids(await b.runs(limit=9)) == [run_id(3), run_id(2)] == ids(await a.runs(limit=9))
        assert a.problem is None is b.problem
        assert caplog.text.count("was deleted while") == 1


async def test_another_store_in_its_place_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor read as if it were ours; when the old one is back all is well."""
    monkeypatch.setattr(writer, "LOOK_SECONDS", 0.2)
    async with opened(DirectoryStore(tmp_path, "other")):
        pass
    async with opened(store := DirectoryStore(tmp_path)):
        await store.record(recorded(1))
        store.directory.rename(tmp_path / "ours")
        (tmp_path / "other").rename(store.directory)
        for call in (store.record(recorded(2)), store.claim("x", A, LONG), store.runs(limit=9)):
            with pytest.raises(StoreError, match="replaced by another store"):
                await call
        assert store.problem is not None
        store.directory.rename(tmp_path / "other")
        (tmp_path / "ours").rename(store.directory)
        await recovered(store)
        assert run_id(2) not in ids(await store.runs(limit=9))


async def test_a_mount_that_is_gone_is_not_an_empty_store(mounting: Mounting) -> None:
    """What lies under the mount point is another file system: nothing is begun there."""
    mount = mounting()
    async with opened(store := DirectoryStore(mount.folder)):
        await store.record(recorded(1))
        mount.close()
        for call in (store.record(recorded(2)), store.runs(limit=9), store.claim("x", A, LONG)):
            with pytest.raises(StoreError, match="its file system with it"):
                await call
        assert list(mount.folder.iterdir()) == []

"""A ledger that is deleted or replaced while it is open: no write is acknowledged that nobody will ever find."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger_samples import launch, opened, recorded

from sexton.model.errors import StoreError
from sexton.store.sqlite import SqliteStore, writer


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for the state directory."""
    path = tmp_path / "state"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield path
    unmount(path)


def unmount(path: Path) -> None:
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


async def settled(store: SqliteStore, wanted: bool, seconds: float = 10.0) -> str | None:
    async with asyncio.timeout(seconds):
        while (store.problem is not None) is not wanted:
            await asyncio.sleep(0.01)
    return store.problem


@pytest.mark.parametrize("what", ["state", "state/default"])
async def test_a_deleted_directory_gets_a_new_ledger(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture,
) -> None:
    """The next write is in a ledger at the path, private and locked, and the loss is said; reading goes on there."""
    path = tmp_path / "state"
    async with opened(SqliteStore(path)) as store:
        await store.record(recorded(1))
        shutil.rmtree(tmp_path / what)
        await store.record(recorded(2))
        assert [r.launch.id[-1] for r in await store.runs(limit=9)] == ["2"]
        assert store.problem is None and "was deleted while" in caplog.text
        assert (path / "default").stat().st_mode & 0o777 == 0o700
        with pytest.raises(StoreError, match="in use by another daemon"):
            await SqliteStore(path).open()
        fds = len(os.listdir("/proc/self/fd"))
        shutil.rmtree(tmp_path / what)
        await store.record(recorded(3))
        await store.runs(limit=9)
        assert len(os.listdir("/proc/self/fd")) <= fds, "the old ledger was let go"
    async with opened(SqliteStore(path)) as again:
        assert [r.launch.id[-1] for r in await again.runs(limit=9)] == ["3"]


async def test_a_replaced_ledger_is_refused_until_the_old_one_is_back(tmp_path: Path) -> None:
    """Another ledger at the path is not written to; moved back, the old one works again with all that it had."""
    path = tmp_path / "state"
    async with opened(SqliteStore(path)) as store:
        await store.record(recorded(1))
        path.rename(tmp_path / "away")
        async with opened(SqliteStore(path)) as other:
            await other.record(recorded(7))
        content = (path / "default" / "ledger.sqlite3").read_bytes()
        for _ in range(2):
            with pytest.raises(StoreError, match="was replaced while"):
                await store.intend(launch(2))
        assert "put the old one back" in (store.problem or "")
        assert (path / "default" / "ledger.sqlite3").read_bytes() == content
        path.rename(tmp_path / "stranger")
        (tmp_path / "away").rename(path)
        await store.record(recorded(2))
        assert store.problem is None
        assert [r.launch.id[-1] for r in await store.runs(limit=9)] == ["2", "1"]


async def test_an_idle_store_notices_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any write the problem is seen within a bound, and so is its end."""
    monkeypatch.setattr(writer, "LOOK_SECONDS", 0.05)
    path = tmp_path / "state"
    async with opened(SqliteStore(path)) as store:
        path.rename(tmp_path / "away")
        (path / "default").mkdir(parents=True)
        (path / "default" / "ledger.sqlite3").write_bytes(b"")
        assert "was replaced" in (await settled(store, True) or "")
        shutil.rmtree(path)
        (tmp_path / "away").rename(path)
        await settled(store, False)


async def test_a_lost_file_system_is_not_written_beside(small_disk: Path) -> None:
    """When the file system of the ledger is unmounted, no new ledger is begun below its mount point."""
    async with opened(SqliteStore(small_disk)) as store:
        await store.record(recorded(1))
        await asyncio.to_thread(unmount, small_disk)
        with pytest.raises(StoreError, match="its file system with it"):
            await store.record(recorded(2))
        assert os.listdir(small_disk) == []


@pytest.mark.parametrize("idle", [False, True])
async def test_a_full_disk_is_a_problem_until_a_write_succeeds(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, idle: bool,
) -> None:
    """`problem` names it, and the next write that succeeds clears it: also one that nobody has asked for, because the
    write that failed may have been the last for hours."""
    monkeypatch.setattr(writer, "LOOK_SECONDS", 0.05 if idle else 60.0)
    async with opened(SqliteStore(small_disk)) as store:
        await store.record(recorded(1))
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(bytes(4096))
        with pytest.raises(StoreError):
            for number in range(2, 100):
                await store.record(recorded(number))
        assert "full" in (store.problem or "")
        if idle:
            await asyncio.sleep(0.2)
            assert "full" in (store.problem or ""), "it was tried, and is full"
        filler.unlink()
        if idle:
            await settled(store, False)
        else:
            await store.record(recorded(200))
        assert store.problem is None

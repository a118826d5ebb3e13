"""Which folders the directory store takes, what it leaves in them, and what it does with what it cannot read."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from ledger_samples import NOON, ids, launch, opened, recorded, run_id, running
from test_coordination import A, B, facts, granted, signal

from sexton.model.errors import StoreError
from sexton.model.run import Outcome
from sexton.store.directory import DirectoryStore
from sexton.store.directory.names import decoded, encoded
from sexton.store.sqlite import SqliteStore


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def refusal(store: DirectoryStore | SqliteStore) -> str:
    with pytest.raises(StoreError) as refused:
        await store.open()
    return str(refused.value)


async def use(store: DirectoryStore) -> None:
    """Something of every kind."""
    await store.intend(launch(1))
    await store.record(recorded(2, "a/b \U0001f514"))
    await store.put_state("backup", "boot", "b")
    await granted(store, "slots/x", A)
    await store.send(signal("r"))
    await store.announce(facts(A))
    await store.claim_fire("backup", NOON, A)


async def eventually(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not fact():
            await asyncio.sleep(0.02)


async def test_files_are_private_to_their_owner(tmp_path: Path) -> None:
    """Folders are 0700 and files 0600, whatever the umask, and the store's own after a careless chmod."""
    before = os.umask(0)
    try:
        store = DirectoryStore(tmp_path / "new", "prod")
        assert store.directory == tmp_path / "new" / "prod"
        async with opened(store):
            await use(store)
            store.directory.chmod(0o755)
        async with opened(DirectoryStore(tmp_path / "new", "prod")):
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [store.directory, *store.directory.rglob("*")]}
        assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
        assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    finally:
        os.umask(before)


async def test_nothing_is_left_half_done(tmp_path: Path) -> None:
    """No draft outlives what it was for, and an intent goes with its record."""
    store = DirectoryStore(tmp_path)
    async with opened(store):
        await use(store)
        await store.record(recorded(1))
        lease = await granted(store, "slots/x", A)
        for _ in range(5):
            await store.renew(lease, 30.0)
        await store.read("slots/x")
    assert list((store.directory / "tmp").iterdir()) == [] == list((store.directory / "open").iterdir())
    (folder,) = (store.directory / "leases").iterdir()
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/abs"])
def test_a_deployment_id_is_one_directory_name(tmp_path: Path, name: str) -> None:
    """An id that would lead out of the path is refused."""
    with pytest.raises(StoreError, match="deployment id"):
        DirectoryStore(tmp_path, name)


async def test_deployments_do_not_see_each_other(tmp_path: Path) -> None:
    """Two deployment ids under one path are two stores."""
    async with opened(DirectoryStore(tmp_path, "a")) as one, opened(DirectoryStore(tmp_path, "b")) as two:
        await one.record(recorded(1))
        await granted(one, "x", A)
        assert await two.runs(limit=9) == [] and await two.read("x") is None


async def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    """And left exactly as it is."""
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "precious").write_text("thing")
    assert "precious" in await refusal(DirectoryStore(tmp_path))
    assert content(tmp_path) == {"default/precious": b"thing"}


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (b'{"store":"sexton-directory","schemaVersion":2,"id":"x"}', "newer Sexton"),
        (b'{"store":"theirs","schemaVersion":1,"id":"x"}', "another program"),
        (b'{"store":"sexton-dir', "cannot be read"),
        (b"", "cannot be read"),
    ],
)
async def test_a_store_that_is_not_ours_to_use_is_refused(tmp_path: Path, meta: bytes, reason: str) -> None:
    """A newer schema, another program's folder, a damaged one: named, and left as they are."""
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "meta.json").write_bytes(meta)
    assert reason in await refusal(DirectoryStore(tmp_path))
    assert content(tmp_path) == {"default/meta.json": meta}


async def test_the_stores_keep_out_of_each_others_folders(tmp_path: Path) -> None:
    """A ledger of one node is no store of several, nor the other way round; neither leaves a trace in the other."""
    async with opened(SqliteStore(tmp_path, "one")) as sqlite:
        await sqlite.record(recorded(1))
    async with opened(DirectoryStore(tmp_path, "several")) as directory:
        await directory.record(recorded(1))
    before = content(tmp_path)
    assert "SQLite ledger" in await refusal(DirectoryStore(tmp_path, "one"))
    assert "nodes share" in await refusal(SqliteStore(tmp_path, "several"))
    assert content(tmp_path) == before


async def test_a_path_that_cannot_be_a_directory_is_explained(tmp_path: Path) -> None:
    """The refusal names the path and the reason; later it may be opened."""
    (tmp_path / "file").write_text("")
    store = DirectoryStore(tmp_path / "file" / "state")
    text = await refusal(store)
    assert str(tmp_path / "file") in text
    (tmp_path / "file").unlink()
    async with opened(store):
        await store.record(recorded(1))


def test_names_stay_apart_and_fit() -> None:
    """Whatever a job is called, its file name is plain, short, its own, and tells the job where it can."""
    names = ["", "a", "A", "a.b", ".", "..", "a/b", "a%2Fb", "~", "ä", "\0", "\n"]
    names += ["\U0001f514" * 100, "x" * 300, "x" * 301]
    files = [encoded(name) for name in names]
    assert len({file.casefold() for file in files}) == len(names)
    for name, file in zip(names, files, strict=True):
        assert len(file) < 240 and file.isascii() and not set(file) & set("/.\0\n")
        assert decoded(file) in (name, None)


async def test_jobs_whose_folders_do_not_tell_their_names_are_found(tmp_path: Path) -> None:
    """After a restart too: their records tell."""
    jobs = ["Backup", "x" * 300, "a/b", "ä"]
    async with opened(DirectoryStore(tmp_path)) as store:
        for number, job in enumerate(jobs):
            await store.record(recorded(number, job))
    async with opened(DirectoryStore(tmp_path)) as store:
        assert set(await store.recent(0)) == set(jobs)
        assert {job: history.totals for job, history in (await store.recent(1)).items()} == {
            job: {Outcome.SUCCESS: 1} for job in jobs}


@pytest.mark.parametrize("damage", ["empty", "truncated", "zeroed", "garbage"])
async def test_a_damaged_file_hides_no_other(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """Records, intents, states and letters that are torn are put aside, once, logged and counted."""
    async with opened(store := DirectoryStore(tmp_path)):
        for number in range(5):
            await store.record(recorded(number))
            await store.intend(launch(10 + number, "other"))
            await store.put_state(f"job-{number}", "boot", "b")
            await store.send(signal(f"r{number}"))
    folders = ("runs/backup", "open", "state/boot", f"signals/{encoded(A.id)}")
    for folder in folders:
        path = sorted((store.directory / folder).iterdir())[2]
        whole = path.read_bytes()
        path.write_bytes({"empty": b"", "truncated": whole[:-9], "zeroed": bytes(len(whole)), "garbage": b"{]"}[damage])
    async with opened(store := DirectoryStore(tmp_path)):
        for _ in range(2):
            assert ids(await store.runs(job="backup", limit=9)) == [run_id(n) for n in (4, 3, 1, 0)]
            assert len((await store.history("backup", 9)).runs) == 4
            assert ids(await store.unfinished()) == [run_id(n) for n in (10, 11, 13, 14)]
            assert len(await store.states("boot")) == 4
        assert [one.run for one in await store.take(A.id)] == ["r0", "r1", "r3", "r4"]
        assert (await store.history("backup", 9)).totals == {Outcome.SUCCESS: 4}
        assert store.quarantined == 4 == len(list((store.directory / "quarantine").iterdir()))
    assert caplog.text.count("is damaged") == 4


async def test_one_bad_write_does_not_take_the_others_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what is queued together only what cannot be written fails; the store is not to blame."""
    async with opened(store := DirectoryStore(tmp_path)):
        jobs = ["fine", "lone \ud800 surrogate", "fine"]
        answers = await asyncio.gather(
            *(store.record(recorded(n, job)) for n, job in enumerate(jobs)), return_exceptions=True)
        assert [isinstance(answer, StoreError) for answer in answers] == [False, True, False]
        assert len(await store.runs(limit=9)) == 2 and store.problem is None
        await store.intend(launch(9))
        store.note(msgspec.structs.replace(running(9), fail_reason="lone \ud800 surrogate"))
        await store.put_state("a", "barrier", "")
        assert "1 notes on live runs were lost" in caplog.text and ids(await store.unfinished()) == [run_id(9)]


async def test_what_a_newer_version_wrote_is_left_where_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While nodes are upgraded one by one: whole but not understood is not damaged."""
    async with opened(store := DirectoryStore(tmp_path)):
        await store.record(recorded(1))
        await store.record(recorded(2))
        path = sorted((store.directory / "runs" / "backup").iterdir())[0]
        raw = msgspec.json.decode(path.read_bytes())
        path.write_bytes(msgspec.json.encode({**raw, "phase": "levitating"}))
    async with opened(store := DirectoryStore(tmp_path)):
        for _ in range(2):
            assert ids(await store.runs(limit=9)) == [run_id(2)]
        with pytest.raises(StoreError, match=run_id(1)):
            await store.get(run_id(1))
        assert store.quarantined == 0 and path.exists()
    assert caplog.text.count("cannot be understood") == 1


async def test_an_intent_that_outlived_its_record_counts_for_nothing(tmp_path: Path) -> None:
    """A crash between the two: the record is the truth, and the leftover goes in time."""
    async with opened(store := DirectoryStore(tmp_path)):
        await store.intend(launch(1))
        store.note(running(1))
        (path,) = await asyncio.to_thread(lambda: list((store.directory / "open").iterdir()))
        await store.put_state("a", "barrier", "")
        left = path.read_bytes()
        await store.record(recorded(1))
        path.write_bytes(left)
        assert await store.unfinished() == [] and await store.get(run_id(1)) == recorded(1)
        assert await store.runs(limit=9) == [recorded(1)]
    yesterday = time.time() - 2 * 24 * 3600
    os.utime(path, (yesterday, yesterday))
    async with opened(DirectoryStore(tmp_path)):
        await eventually(lambda: not path.exists())


async def test_what_nobody_needs_is_cleaned_when_a_store_is_opened(tmp_path: Path) -> None:
    """Old drafts, old mail of nodes that are gone, old occurrences; nothing else."""
    async with opened(store := DirectoryStore(tmp_path)):
        await use(store)
        await store.announce(facts(B))
        await store.send(signal("of a node that lives", to=B))
        await store.leave(A.id)
        await store.send(signal("to one that is gone"))
        now = time.time()
        recent = NOON.fromtimestamp(now, NOON.tzinfo)
        await store.claim_fire("backup", recent, A)
        await store.claim_fire("gone", recent - timedelta(days=30), A)
    drafts = [store.directory / "tmp" / ".old-1", store.directory / "leases" / encoded("slots/x") / ".old-2"]
    for draft in drafts:
        draft.write_text("half a re")
    old = [*drafts, *(store.directory / "signals").glob("*/*"), *(store.directory / "leases").glob("*/*.json")]
    for path in old:
        os.utime(path, (now - 2 * 24 * 3600,) * 2)
    kept = store.directory / "tmp" / ".new"
    kept.write_text("half a re")
    async with opened(store := DirectoryStore(tmp_path)):
        await eventually(lambda: not drafts[0].exists() and not drafts[1].exists() and len(letters(store)) == 1)
        assert kept.exists()
        await eventually(lambda: not (store.directory / "fires" / "gone").exists())
        assert [fire.scheduled_for for fire in await store.fired("backup", recent)] == [recent]
        assert [one.run for one in await store.take(B.id)] == ["of a node that lives"]
        denied = await store.read("slots/x")
        assert denied is None, "its lease is two days old"
        assert (await granted(store, "slots/x", B)).fence > 1, "and its fence is kept"
        assert len(await store.unfinished()) == 1 and await store.get_state("backup", "boot") == "b"


def letters(store: DirectoryStore) -> list[Path]:
    return list((store.directory / "signals").glob("*/*"))

"""Backups, checks and moves: whatever a store keeps comes out whole, and goes into any other store as it was."""

from __future__ import annotations

import gzip
import sqlite3
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from ledger_samples import NOON, build, full_record, launch, opened, recorded, run_id, running
from test_coordination import A, B, granted

from sexton.model.errors import StoreError
from sexton.model.run import Outcome
from sexton.store.archive import Archive, Counts, Fence, Fired, NoStore, Recorded, StateValue, Unfinished, is_newer
from sexton.store.backup import DamagedBackup, Header, items_of, verify_backup, write_backup
from sexton.store.directory.archive import DirectoryArchive
from sexton.store.postgres.archive import PostgresArchive
from sexton.store.postgres.database import shown
from sexton.store.sqlite.archive import SqliteArchive
from sexton.store.transfer import transfer

KINDS = ("sqlite", "directory", "postgres")
JOBS = ("backup", "Ünï/cödé job", "x" * 250)


class Place:
    """Where one store of a kind is."""

    def __init__(self, kind: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self.kind, self.folder = kind, folder
        self.url = ""
        if kind == "postgres":
            server = request.getfixturevalue("postgres")
            name = f"a{folder.name.replace('-', '_').lower()}_{abs(hash(str(folder)))}"
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            self.url = server.url(name)

    def store(self) -> Any:
        return build(self.kind, self.folder, self.url, max_runs_per_job=0)

    def archive(self) -> Archive:
        if self.kind == "postgres":
            return PostgresArchive(self.url)
        if self.kind == "directory":
            return DirectoryArchive(self.folder / "mount")
        return SqliteArchive(self.folder / "state")

    def contents(self) -> list[Any]:
        archive = self.archive()
        try:
            items = list(archive.items())
            assert not archive.damaged
            return items
        finally:
            archive.close()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path / "one", request)


async def fill(place: Place, *, many: int = 700) -> None:
    """Ties in the histories, open runs, states, fences that are held and released, occurrences."""
    async with opened(place.store()) as store:
        for number in range(many):
            job = JOBS[number % 3]
            outcome = (Outcome.SUCCESS, Outcome.FAILURE, None)[number % 7 % 3]
            await store.record(recorded(many - number, job, outcome=outcome, ended=number // 10))
        await store.record(full_record(5000))
        await store.intend(launch(6000))
        await store.intend(launch(6001, "never seen before"))
        await store.keep(running(6001, "never seen before"))
        for job, key in product(JOBS, ("boot", "pause")):
            await store.put_state(job, key, f"{key} of\n{job} \U0001f514")
        for turn in range(3):
            assert await store.release(await granted(store, "slots/free", (A, B)[turn % 2]))
        await granted(store, "slots/Held by somebody", A)
        for minute in range(3):
            await store.claim_fire("x", NOON + timedelta(minutes=minute), A)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
async def test_a_store_goes_into_any_other_as_it_was(
    kind: str, other: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Runs, order of histories, totals, states, fences; and through a backup file on the way. Occurrences, where both
    keep any."""
    one, two = Place(kind, tmp_path / "one", request), Place(other, tmp_path / "two", request)
    await fill(one)
    file = tmp_path / "backup"
    archive = one.archive()
    with file.open("wb") as stream:
        counts = write_backup(stream, header_of(archive), archive.items(), archive.damaged)
    header, end = verify_backup(str(file))
    assert header.counts == end.counts == counts == archive.counts()
    assert (counts.recorded, counts.unfinished, counts.states, counts.fences) == (701, 2, 6, 2)
    async with opened(two.store()) as store:
        assert await transfer(items_of(str(file)), store, merging=False) == counts
    fires = [item for item in one.contents() if isinstance(item, Fired)]
    assert len(fires) == (0 if kind == "sqlite" else 3)
    expected = [item for item in one.contents() if other != "sqlite" or not isinstance(item, Fired)]
    assert by_kind(two.contents()) == by_kind(expected)
    async with opened(one.store()) as before, opened(two.store()) as after:
        assert await after.recent(1000) == await before.recent(1000)
        assert await after.unfinished() == await before.unfinished()
        assert await after.states("pause") == await before.states("pause")
        assert await after.runs(limit=800) == await before.runs(limit=800)
        assert (await granted(after, "slots/free", B)).fence > 3


def by_kind(items: list[Any]) -> dict[type, list[Any]]:
    """Recorded runs in the order of their job's history; what has no order sorted."""
    found: dict[type, list[Any]] = {}
    for item in items:
        found.setdefault(type(item), []).append(item)
    for kind in (StateValue, Fence, Fired, Unfinished):
        found.get(kind, []).sort(key=lambda item: msgspec.json.encode(item))
    found[Recorded].sort(key=lambda item: item.record.launch.job)
    return found


def header_of(archive: Archive) -> Header:
    return Header(sexton="0", store=archive.kind, schema_version=archive.schema_version, one_moment=archive.one_moment,
                  made_at=datetime.now(UTC), counts=archive.counts())


async def test_it_is_read_beside_a_daemon_that_writes(place: Place) -> None:
    """No run that was there before is missing; where all is of one moment nothing newer is in it."""
    await fill(place, many=50)
    async with opened(place.store()) as store:
        archive = place.archive()
        items = archive.items()
        first = next(items)
        await store.record(recorded(9000, ended=1e6))
        await store.record(recorded(6000))
        found = [first, *items]
        assert archive.is_live("whoever") is (place.kind == "sqlite")
        archive.close()
    runs = [item.record.launch.id for item in found if isinstance(item, Recorded | Unfinished)]
    assert len(runs) == len(set(runs)) and {run_id(number) for number in (1, 50, 5000, 6000)} <= set(runs)
    if archive.one_moment:
        assert run_id(9000) not in runs and Unfinished(running(6001, "never seen before")) in found


async def test_a_merge_replaces_nothing_that_is_newer(place: Place) -> None:
    """Of a run the true record, then the later one; of states and occurrences what is there; of fences the higher."""
    async with opened(place.store()) as store:
        await store.record(recorded(1, outcome=Outcome.UNKNOWN, ended=9))
        await store.record(recorded(2, ended=5))
        await store.record(recorded(3, ended=5))
        await store.intend(launch(4))
        await store.intend(launch(5))
        await store.put_state("x", "key", "there")
        for _ in range(4):
            await store.release(await granted(store, "slots/x", A))
        await store.claim_fire("x", NOON, A)
        items = [
            Recorded(recorded(1, ended=1)), Recorded(recorded(2, outcome=Outcome.FAILURE, ended=4)),
            Recorded(recorded(3, outcome=Outcome.FAILURE, ended=6)), Recorded(recorded(4, ended=1)),
            Unfinished(running(2)), Unfinished(running(7)), StateValue("x", "key", "old"),
            StateValue("x", "other", "new"), Fence("slots/x", 2), Fence("slots/y", 7), Fired("x", NOON, B.id),
        ]
        written = await transfer(items, store, merging=True)
        assert (written.recorded, written.unfinished, written.states, written.fires) == (3, 1, 1, 0)
        outcomes = {record.launch.id: record.outcome for record in await store.runs(limit=20)}
        assert outcomes == {run_id(1): Outcome.SUCCESS, run_id(2): Outcome.SUCCESS, run_id(3): Outcome.FAILURE,
                            run_id(4): Outcome.SUCCESS, run_id(5): None, run_id(7): None}
        assert (await store.get_state("x", "key"), await store.get_state("x", "other")) == ("there", "new")
        assert (await granted(store, "slots/x", B)).fence == 5 and (await granted(store, "slots/y", B)).fence == 8
        assert await store.claim_fire("x", NOON, A)
        assert await transfer(items, store, merging=True) == Counts(fences=2), "a second time changes nothing"


async def test_a_fence_that_somebody_holds_is_left_alone(place: Place) -> None:
    """Its holder goes on renewing."""
    async with opened(place.store()) as store:
        lease = await granted(store, "slots/x", A)
        await store.raise_fence("slots/x", 40)
        assert (await store.renew(lease, 30.0)).lease == lease and await store.release(lease)


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_is_nothing_is_made(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A question does not found a store."""
    place = Place(kind, tmp_path / "none", request)
    with pytest.raises(NoStore):
        place.archive()
    assert not place.folder.exists()


def spoil(place: Place, number: int) -> None:
    """Damage the record of a run."""
    if place.kind == "postgres":
        with psycopg.connect(place.url) as connection:
            connection.execute("UPDATE sexton.run SET body = '{' WHERE id = %s", (run_id(number),))
    elif place.kind == "sqlite":
        with sqlite3.connect(place.folder / "state" / "default" / "ledger.sqlite3") as ledger:
            ledger.execute("UPDATE run SET body = '{' WHERE id = ?", (run_id(number),))
        ledger.close()
    else:
        (file,) = (place.folder / "mount").glob(f"default/runs/*/{run_id(number)}.*")
        file.write_bytes(b"{")


async def test_a_damaged_record_is_named_and_hides_no_other(place: Place) -> None:
    """And it is left where it is."""
    await fill(place, many=20)
    spoil(place, 7)
    for _ in range(2):
        archive = place.archive()
        counts = sum(isinstance(item, Recorded) for item in archive.items())
        assert counts == 20 and len(archive.damaged) == 1 and run_id(7) in archive.damaged[0]
        archive.close()


def make_backup(file: Path) -> bytes:
    header = Header(sexton="0", store=SqliteArchive.kind, schema_version=1, one_moment=True, made_at=NOON,
                    counts=Counts(recorded=50))
    with file.open("wb") as stream:
        write_backup(stream, header, (Recorded(full_record(number)) for number in range(50)), [])
    return file.read_bytes()


def test_a_backup_that_was_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    """As a file, and as lines that were packed again."""
    file = tmp_path / "backup"
    whole = make_backup(file)
    assert verify_backup(str(file))[1].counts == Counts(recorded=50)
    for length in range(0, len(whole), 41):
        file.write_bytes(whole[:length])
        with pytest.raises(DamagedBackup):
            verify_backup(str(file))
    lines = gzip.decompress(whole).splitlines(keepends=True)
    for left_out in (slice(0, 1), slice(3, 4), slice(50, 51), slice(51, 52)):
        shorter = lines[:left_out.start] + lines[left_out.stop:]
        file.write_bytes(gzip.compress(b"".join(shorter)))
        with pytest.raises(DamagedBackup):
            verify_backup(str(file))


def test_a_backup_in_which_a_byte_has_changed_is_refused(tmp_path: Path) -> None:
    """Wherever it is, unless it means nothing: the bits that fill up the last byte of what is packed."""
    file = tmp_path / "backup"
    whole = make_backup(file)
    lines = gzip.decompress(whole)
    for place in range(10, len(whole), 23):  # the first ten are gzip's own, and some of them mean nothing
        changed = whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1:]
        if place == len(whole) - 9 and gzip.decompress(changed) == lines:
            continue
        file.write_bytes(changed)
        with pytest.raises(DamagedBackup):
            verify_backup(str(file))
    for old, new in ((b'"failure"', b'"success"'), (b'"sexton":"0"', b'"sexton":"1"')):
        assert old in lines
        file.write_bytes(gzip.compress(lines.replace(old, new, 1)))
        with pytest.raises(DamagedBackup):
            verify_backup(str(file))


@pytest.mark.parametrize(("content", "words"), [
    (b'{"kind":"header","format":"sexton-backup","version":2}\n', "newer Sexton"), (b'{"some":"thing"}\n', "no backup"),
    (b"", "cut off"),
])
def test_what_is_no_backup_of_ours_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """With the reason; so is a file that is not even compressed."""
    (tmp_path / "file").write_bytes(gzip.compress(content))
    with pytest.raises(StoreError, match=words):
        verify_backup(str(tmp_path / "file"))
    (tmp_path / "file").write_bytes(b"text")
    with pytest.raises(StoreError, match="no backup"):
        verify_backup(str(tmp_path / "file"))


def test_a_true_record_is_newer_than_an_unknown_one() -> None:
    """Whichever says that it ended later."""
    true, guess = recorded(1, ended=1), recorded(1, outcome=Outcome.UNKNOWN, ended=9)
    assert is_newer(true, guess) and not is_newer(guess, true)
    assert is_newer(true, running(1)) and not is_newer(running(1), true) and not is_newer(true, true)


@pytest.mark.parametrize("url", [
    "postgresql://u:secret@h:5432/db", "postgresql://u:sec/ret@h/db", "postgresql://u:secret@h@x:y/db",
    "postgresql://h/db?password=secret", "postgresql://u:secret[@h/db", "postgresql://u:secret@h:1,i:2/db",
])
def test_a_password_is_never_told(url: str) -> None:
    """Neither by what is shown nor by what is wrong with it."""
    try:
        told = shown(url)
    except StoreError as error:
        told = str(error)
    assert "secret" not in told and "sec" not in told.replace("section", "")

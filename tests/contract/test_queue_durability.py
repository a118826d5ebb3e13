"""What a queue has acknowledged outlives its process, and moves with the store."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ledger_samples import build, launch, opened
from test_archive import Place, header_of
from test_queue import A, B, entry, finish

from sexton.model.errors import StoreError
from sexton.model.run import Phase
from sexton.store.archive import Waiting
from sexton.store.backup import items_of, write_backup
from sexton.store.queue import Claim, Queue
from sexton.store.transfer import transfer

CHILD = Path(__file__).with_name("queue_child.py")
KINDS = ("sqlite", "postgres")


def queue_of(store: Any) -> Queue:
    queue: Queue = store.queue
    return queue


def told_until_killed(command: list[str]) -> list[list[str]]:
    """Let the child say some lines, kill it, and hear what else it had said."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines = [child.stdout.readline() for _ in range(random.randint(30, 300))]
    child.kill()
    lines += child.stdout.readlines()
    child.wait(10)
    return [line.split() for line in lines if line.endswith("\n")]


@pytest.mark.parametrize("kind", KINDS)
async def test_kill_9_loses_nothing_that_was_acknowledged(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest,
) -> None:
    """Killed at any moment: every run whose enqueueing was acknowledged is in the queue or in the ledger, and never in
    both; every end that was acknowledged is in the ledger."""
    url = request.getfixturevalue("database") if kind == "postgres" else ""
    told = told_until_killed([sys.executable, str(CHILD), kind, url or str(tmp_path / "state")])
    assert sum(what == "F" for what, _ in told) > 5
    async with opened(build(kind, tmp_path, url, max_runs_per_job=0)) as store:
        queue, ends = queue_of(store), {run for what, run in told if what == "F"}
        for run in {run for what, run in told if what == "E"}:
            record, waiting = await store.get(run), await queue.entry(run)
            assert (record is None) != (waiting is None)
            assert record is None or record.phase is Phase.RECORDED
            assert run not in ends or record is not None
        await queue.reap(0.0)
        for _, run in told:
            assert not isinstance(await queue.entry(run), Claim), "another worker may have it"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", (*KINDS, "directory"))
async def test_a_queue_moves_with_its_store(
    kind: str, other: str, tmp_path: Path, request: pytest.FixtureRequest,
) -> None:
    """A backup has what waits and what workers have, and a restore lets all of it wait; what has ended is not put in
    again. A store without a queue refuses, and says which run it is about."""
    one, two = Place(kind, tmp_path / "one", request), Place(other, tmp_path / "two", request)
    async with opened(one.store()) as store:
        await queue_of(store).enqueue([entry(1), entry(2, queue="x", priority=4, text='"\U0001f514"'), entry(3)])
        claims = (await queue_of(store).step(A, ["default"], 2)).claimed
        await queue_of(store).step(A, [], 0, [finish(claims[0])])
    file, archive = tmp_path / "backup", one.archive()
    with file.open("wb") as stream:
        counts = write_backup(stream, header_of(archive), archive.items(), archive.damaged)
    assert counts == archive.counts() and (counts.waiting, counts.recorded) == (2, 1)
    assert "2 runs in queues" in str(counts)
    async with opened(two.store()) as store:
        if other == "directory":
            with pytest.raises(StoreError, match=r"waits in queue .*has no queue"):
                await transfer(items_of(str(file)), store, merging=False)
            return
        assert await transfer(items_of(str(file)), store, merging=False) == counts
        claimed = (await queue_of(store).step(B, ["default", "x"], 5)).claimed
        assert [claim.entry for claim in claimed] == [entry(2, queue="x", priority=4, text='"\U0001f514"'), entry(3)]
        await transfer(items_of(str(file)), store, merging=True)
        assert await queue_of(store).entry(launch(1).id) is None
    assert sum(isinstance(item, Waiting) for item in two.contents()) == 2

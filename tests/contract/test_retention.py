"""Forgetting runs by age, on every store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
from ledger_samples import NOON, Store, launch, opened, recorded
from test_coordination import A, B

from sexton.daemon.retention import Retention
from sexton.model.clock import Clock, Monotonic
from sexton.model.run import Launch, RunRecord
from sexton.run.identity import RunIds, bound_at

DAY = timedelta(days=1)


def launched(number: int, hours_ago: float, job: str) -> Launch:
    """As its id tells."""
    at = NOON - timedelta(hours=hours_ago)
    return msgspec.structs.replace(launch(number, job), id=bound_at(at)[:-6] + f"{number:06x}", created_at=at)


def ended(one: Launch, hours_ago: float) -> RunRecord:
    record = recorded(0, one.job, ended=-3600 * hours_ago)
    return msgspec.structs.replace(record, launch=one)


async def test_runs_that_ended_too_long_ago_are_forgotten(make_store: Callable[..., Store]) -> None:
    """Of each job; a run that was launched long ago and ended lately stays, and one that lives stays, too."""
    assert RunIds().next() > bound_at(NOON)
    gone: list[str] = []
    clock = Clock(now=lambda: NOON, monotonic=lambda: Monotonic(0.0))
    async with opened(make_store()) as store:
        for number in range(450):
            one = launched(number, 100 - number / 10, "often")
            await store.record(ended(one, 100 - number / 10))
        old, long, alive = (launched(1000 + n, 90, "seldom") for n in range(3))
        await store.record(ended(old, 89))
        await store.record(ended(long, 2))
        await store.intend(alive)
        retention = Retention(store, A, clock, lambda: 72 * 3600.0, gone.extend)
        await retention.forget_old()
        left = await store.runs(job="often", limit=1000)
        assert len(left) == 450 - retention.forgotten + 1 and all(r.launch.created_at >= NOON - 3 * DAY for r in left)
        assert {run.launch.id for run in await store.runs(job="seldom", limit=9)} == {long.id, alive.id}
        assert len(gone) == len(set(gone)) == retention.forgotten and old.id in gone


async def test_one_node_forgets_for_all(make_store: Callable[..., Store]) -> None:
    """While one is at it the others need not be."""
    gone: list[str] = []
    clock = Clock(now=lambda: NOON, monotonic=lambda: Monotonic(0.0))
    async with opened(make_store()) as store:
        await store.record(ended(launched(1, 90, "j"), 90))
        await store.claim("retention", B, 30.0)
        await Retention(store, A, clock, lambda: 3600.0, gone.extend).forget_old()
        assert gone == [] and len(await store.runs(limit=9)) == 1

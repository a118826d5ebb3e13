"""`runOn: one-node`: whose an occurrence is, by clocks that differ and nodes that die."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sexton.daemon.jobs import Jobs
from sexton.daemon.onefire import OneFire, not_started
from sexton.daemon.scheduler import Scheduler
from sexton.daemon.timetable import occurrences_for
from sexton.model.job import JobSpec, Place, RunOn
from sexton.model.node import NodeIdentity
from sexton.model.run import Launch, Trigger
from sexton.model.settings import OnStoreUnavailable
from sexton.schedule.agenda import Agenda, Due
from sexton.store.memory.store import MemoryStore

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    made = MemoryStore()
    await made.open()
    yield made
    await made.close()


def jobs() -> Jobs:
    made = Jobs()
    made.put(JobSpec(name="j", command="true", schedule="* * * * *", place=Place("", 1, 1), run_on=RunOn.ONE_NODE))
    return made


def node(store: MemoryStore, name: str) -> tuple[OneFire, list[datetime]]:
    """A node, and the lost occurrences that it was told to fire."""
    me = NodeIdentity(id=f"{name}#1", name=name, pid=1, pid_started_ticks=1, boot_id="b", pid_namespace=1)
    one, late = OneFire(store, me, jobs(), OnStoreUnavailable.DEGRADE), []
    one.on_lost_fire = lambda entry, scheduled_for: late.append(scheduled_for)
    return one, late


async def started(store: MemoryStore, name: str, scheduled_for: datetime, number: int) -> None:
    await store.intend(Launch(id=f"run-{number:04}", job="j", trigger=Trigger.SCHEDULE, node=name, daemon=f"{name}#1",
                              created_at=scheduled_for, scheduled_for=scheduled_for))


async def test_clocks_that_differ_by_a_minute(store: MemoryStore) -> None:
    """Three nodes, one a minute ahead and one a minute behind, walk through the same hour by their own clocks: each
    occurrence is one node's, whoever comes to it first, and none is left out."""
    fired: list[datetime] = []
    entry = jobs().get("j")
    assert entry is not None
    walks = [(offset, node(store, name)[0], Agenda(NOON + offset - SECOND))
             for name, offset in (("ahead", timedelta(minutes=1)), ("right", timedelta()),
                                  ("behind", timedelta(minutes=-1)))]
    occurrences = occurrences_for(entry.spec)
    assert occurrences is not None
    for offset, _, agenda in walks:
        agenda.add("j", occurrences, NOON + offset - SECOND)
    for second in range(0, 3600, 5):
        for offset, one, agenda in walks:
            due = [one.scheduled_for for one in agenda.pop_due(NOON + offset + second * SECOND).due]
            fired += [at for at in due if await one.is_ours(entry, at)]
    assert len(fired) == len(set(fired))
    assert set(fired) >= {NOON + minute * timedelta(minutes=1) for minute in range(60)}


async def test_a_claim_of_a_dead_node_without_a_run(store: MemoryStore) -> None:
    """It is fired by the node that settles the dead one, once; what the dead node has started is not."""
    dead, _ = node(store, "dead")
    entry = jobs().get("j")
    assert entry is not None
    for number in range(3):
        at = NOON + number * SECOND
        assert await dead.is_ours(entry, at)
        if number != 1:
            await started(store, "dead", at, number)
    (first, late), (second, later) = node(store, "first"), node(store, "second")
    await first.make_up_for("dead#1", NOON)
    await second.make_up_for("dead#1", NOON)
    assert late == [NOON + SECOND] and later == []


async def test_a_skipped_occurrence_is_decided(store: MemoryStore) -> None:
    """The dead node had claimed it and decided not to start it (paused, Forbid): nobody makes up for that."""
    dead, _ = node(store, "dead")
    entry = jobs().get("j")
    assert entry is not None and await dead.is_ours(entry, NOON)
    await dead.decline("j", NOON)
    one, late = node(store, "one")
    await one.make_up_for("dead#1", NOON)
    assert late == []


async def test_an_old_claim_is_not_lost(store: MemoryStore) -> None:
    """A start follows its claim within seconds: what was claimed long before the node's last sign of life has been
    decided, also where the ledger has forgotten the run."""
    dead, _ = node(store, "dead")
    entry = jobs().get("j")
    assert entry is not None and await dead.is_ours(entry, NOON)
    one, late = node(store, "one")
    await one.make_up_for("dead#1", NOON + timedelta(minutes=10))
    assert late == []


@pytest.mark.parametrize(("claimed", "known", "lost"), [
    ([0, 1, 2], [0, 2], [1]),
    ([0, 1, 2, 3], [2], [3]),
    ([0], [], [0]),
    ([0, 1], [0, 1], []),
    ([0, 1], [5], []),
])
def test_not_started(claimed: list[int], known: list[int], lost: list[int]) -> None:
    """Without a run, and later than the oldest run that the ledger still knows."""
    at = [NOON + number * SECOND for number in range(10)]
    assert not_started([at[n] for n in claimed], {at[n] for n in known} | {None}) == [at[n] for n in lost]


async def test_a_node_that_ends_owes_what_it_has_claimed(store: MemoryStore) -> None:
    """A stop between the claim and the start: the node does not say that the occurrence is decided, and knows that it
    owes one, so that it does not leave quietly; who settles it fires the occurrence."""
    one, _ = node(store, "one")
    absent: Any = None
    entry = jobs().get("j")
    assert entry is not None
    scheduler = Scheduler(Agenda(NOON), jobs(), absent, _Settled(), absent, absent)  # type: ignore[arg-type]
    scheduler.stop()
    await scheduler._launch_if_ours(one, entry, Due("j", NOON))
    assert one.owes
    other, late = node(store, "other")
    await other.make_up_for("one#1", NOON)
    assert late == [NOON]


class _Settled:
    async def settle(self) -> None:
        """Nothing is under way."""

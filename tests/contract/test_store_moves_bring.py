"""What a new store is told before it takes the place of the one in use, while runs begin, take a step and end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from ledger_samples import NOON, launch
from msgspec.structs import replace

from sexton.daemon import boot, bringing, catchup, pauses
from sexton.daemon.bringing import Bringing, together
from sexton.daemon.node import this_process
from sexton.daemon.pauses import Pauses
from sexton.model.clock import Clock, Monotonic
from sexton.model.errors import StoreError
from sexton.model.job import JobSpec, Place
from sexton.model.run import Launch, Outcome, Phase, RunRecord
from sexton.run import retries
from sexton.run.live import Run
from sexton.run.registry import Registry
from sexton.store.inuse import StoreInUse
from sexton.store.memory import MemoryStore

CLOCK = Clock(now=lambda: datetime.now(UTC), monotonic=lambda: Monotonic(time.monotonic()))
SPEC = JobSpec(name="backup", command="true", schedule="@daily", place=Place("jobs.yaml", 1, 1))
ME = this_process("node-1")


class Hooked(MemoryStore):
    """Something happens here, once, when the store has been told of a run; and it may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = lambda: None
        self.room = 1_000_000

    async def intend(self, launch: Launch) -> None:
        if self.room <= 0:
            raise StoreError("no space left on device")
        self.room -= 1
        await super().intend(launch)

    async def keep(self, record: RunRecord) -> None:
        await super().keep(record)
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        await asyncio.sleep(0)


@dataclass
class World:
    old: MemoryStore
    new: Hooked
    store: StoreInUse
    registry: Registry

    async def run(self, number: int, *, intended: bool = True, waits: bool = False) -> Run:
        """One that lives here."""
        made = Run(SPEC, replace(launch(number), daemon=ME.id), CLOCK)
        if waits:
            made.phase, made.waits_for_slots = Phase.QUEUED, True
        self.registry.add(made)
        if intended:
            await self.store.intend(made.launch)
            made.intended.set()
        return made

    def bringing(self) -> Bringing:
        return Bringing(self.store, self.new, self.registry, ME)

    async def there(self, run: Run) -> RunRecord | None:
        return await self.new.get(run.id)

    def end(self, run: Run) -> None:
        run.phase, run.outcome, run.ended_at = Phase.RECORDED, Outcome.SUCCESS, NOON
        self.registry.remove(run)
        run.recorded.set()


@pytest.fixture
async def world() -> World:
    old, new = MemoryStore(), Hooked()
    await new.open()
    store = StoreInUse(old)
    await store.open()
    return World(old, new, store, Registry())


async def test_a_run_that_leaves_the_queue_meanwhile_waits_no_longer_there(world: World) -> None:
    """Its turn comes while the new store is told of it: that store does not keep it as one that waits, which a later
    daemon would start a second time."""
    run = await world.run(1, waits=True)

    def turn() -> None:
        run.waits_for_slots, run.granted = False, True
        run.advance(Phase.CLAIMED)

    world.new.meanwhile = turn
    await world.bringing().bring()
    found = await world.there(run)
    assert found is not None and found.phase is Phase.CLAIMED


async def test_a_run_that_begins_meanwhile_is_known_there(world: World) -> None:
    """Also one whose intent is only being written: it is in both stores from then on."""
    await world.run(1)
    began: list[Run] = []

    def begin() -> None:
        made = Run(SPEC, replace(launch(2), daemon=ME.id), CLOCK)
        world.registry.add(made)
        world.store.intending.add(made.id)
        began.append(made)

    world.new.meanwhile = begin
    told = world.bringing()
    await told.bring()
    assert began[0].id in told.known and await world.there(began[0]) is not None


async def test_a_run_that_ends_meanwhile_has_its_record_there(world: World) -> None:
    """Before the move: a crash right after it loses no outcome."""
    run = await world.run(1)
    world.new.meanwhile = lambda: world.end(run)
    await world.bringing().bring()
    found = await world.there(run)
    assert found is not None and (found.phase, found.outcome) == (Phase.RECORDED, Outcome.SUCCESS)


async def test_a_launch_that_may_yet_be_turned_away_leaves_nothing(world: World) -> None:
    """One that still asks for its slot is not in the ledger, and not in the new one."""
    asking = await world.run(1, intended=False)
    told = world.bringing()
    await told.bring()
    assert await world.there(asking) is None and told.known == {}


async def test_what_is_written_of_a_job_meanwhile_comes_along(world: World) -> None:
    """A retry that is settled, and a pause, after the new store was told of the job states."""
    await world.run(1)
    await world.store.put_state("backup", retries.KEY, "pending")
    writes: list[asyncio.Task[None]] = []

    def write() -> None:
        puts = [world.store.put_state("backup", key, "later") for key in (retries.KEY, pauses.KEY)]
        writes.extend(map(asyncio.get_running_loop().create_task, puts))

    world.new.meanwhile = write
    await world.bringing().bring()
    assert [await world.new.get_state("backup", key) for key in (retries.KEY, pauses.KEY)] == ["later", "later"]


@pytest.mark.parametrize("key", [boot.KEY, retries.KEY, catchup.OWED, catchup.DECIDED])
async def test_what_only_this_node_says_is_never_newer_there(world: World, key: str) -> None:
    """There and back: a retry that was made, a run that was made up for, elsewhere is not due again."""
    await world.new.put_state("backup", key, "left there the last time")
    await world.store.put_state("backup", key, "since then")
    await world.bringing().bring()
    assert await world.new.get_state("backup", key) == "since then"


@pytest.mark.parametrize("ours_is_later", [True, False])
async def test_of_two_pauses_the_later_word_counts(world: World, ours_is_later: bool) -> None:
    """Whether this node comes back to what it has left, or to other nodes that have gone on there."""
    first, second = (world.new, world.old) if ours_is_later else (world.old, world.new)
    await Pauses(first, CLOCK, durable=True).pause("backup", NOON + timedelta(days=900), "first", None)
    later = Pauses(second, CLOCK, durable=True)
    await later.pause("backup", NOON + timedelta(days=800), "second", None)
    await world.bringing().bring()
    assert '"second"' in str(await world.new.get_state("backup", pauses.KEY))


async def test_pauses_of_earlier_versions_go_by_their_beginning() -> None:
    """They do not say when they were said; what cannot be read is older than anything."""
    old, new = (msgspec.json.encode(pauses.Pause(since=NOON + timedelta(hours=hours), until=NOON)).decode()
                for hours in (0, 1))
    assert pauses.is_newer(new, old) and not pauses.is_newer(old, new)
    assert pauses.is_newer(old, "{") and not pauses.is_newer("{", old)


async def test_runs_without_a_pause_between_them_do_not_hold_up_the_move(
    world: World, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is always one more that has just begun: within a bound the move is made all the same, and the last ones are
    told after it."""
    monkeypatch.setattr(bringing, "PATIENCE_SECONDS", 0.05)
    await world.run(1)
    count = 1

    def one_more() -> None:
        nonlocal count
        count += 1
        made = Run(SPEC, replace(launch(count), daemon=ME.id), CLOCK)
        made.intended.set()
        world.registry.add(made)
        asyncio.get_running_loop().call_soon(again)

    def again() -> None:
        world.new.meanwhile = one_more

    again()
    told = world.bringing()
    await asyncio.wait_for(told.bring(), 5)
    assert set(told.known) == {run.id for run in world.registry}
    world.new.meanwhile = lambda: None
    await told.bring_late()
    assert all([await world.there(run) is not None for run in world.registry])


async def test_a_move_that_is_given_up_starts_nothing_there(world: World) -> None:
    """The new store runs full in the middle. What waits here is not left there as something to be started; and when the
    move is made later, what has ended meanwhile gets its end there."""
    waiting, running = await world.run(1, waits=True), await world.run(2)
    told = world.bringing()
    await told.bring()
    await told.take_back()
    found = await world.there(waiting)
    assert found is not None and (found.phase, found.outcome) == (Phase.RECORDED, Outcome.SKIPPED)
    world.end(running)
    await world.store.record(running.record())
    assert await world.bringing().settle_unfinished() == []
    found = await world.there(running)
    assert found is not None and found.outcome is Outcome.SUCCESS


async def test_what_waits_is_started_from_one_store_only(world: World) -> None:
    """After the move a start on the store that was left makes no retry and makes up for nothing that the daemon does
    from the new one; a pause and a marker stay."""
    waiting = await world.run(1, waits=True)
    for key in (retries.KEY, catchup.OWED, boot.KEY, pauses.KEY):
        await world.store.put_state("backup", key, "theirs")
    told = world.bringing()
    await told.bring()
    left = world.store.move(world.new, [])
    waiting.waits_for_slots = False  # its turn has come meanwhile
    await told.take_leave(left, [waiting])
    found = await left.get(waiting.id)
    assert found is not None and (found.phase, found.outcome) == (Phase.RECORDED, Outcome.SKIPPED)
    kept = [await left.get_state("backup", key) for key in (retries.KEY, catchup.OWED, boot.KEY, pauses.KEY)]
    assert kept == ['{"pending":null,"settled":"the store was moved"}', "[]", "theirs", "theirs"]
    assert await world.new.get_state("backup", retries.KEY) == "theirs"


async def test_what_an_earlier_daemon_has_left_there_is_named(world: World) -> None:
    """Only a start buries it."""
    await world.new.intend(replace(launch(7), daemon="node-1#before"))
    assert await world.bringing().settle_unfinished() == [launch(7).id]


async def test_a_store_that_fails_in_the_middle_is_asked_for_nothing_more(world: World) -> None:
    """Thousands of writes that cannot succeed are not all tried."""
    world.new.room = 60
    with pytest.raises(StoreError, match="no space"):
        await together([world.new.intend(launch(number)) for number in range(1000)])
    assert len(await world.new.unfinished()) == 60

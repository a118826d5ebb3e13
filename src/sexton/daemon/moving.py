"""A reload that names another store: what begins from now on is in the new one, and the old one gets what it is owed.

Order matters, because a crash may come anywhere: the new store knows this node, the job states and the runs that live
before anything is decided there (`bringing.py`); the old one is told of ends, and of this node's life, until the last
of those runs is over. (Binding page: "A reload that moves the store"; docs/decisions/0018-moving-the-store.md.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path

from sexton.daemon.bringing import Bringing
from sexton.daemon.fleet import Fleet
from sexton.daemon.halfway import forget_halfway, note_halfway
from sexton.daemon.health import StoreLeft
from sexton.daemon.inbox import Inbox
from sexton.daemon.jobs import REMEMBERED_RUNS, Jobs
from sexton.daemon.node import Belongings, NodeHome
from sexton.daemon.reload import TakesRestart
from sexton.daemon.stores import (
    OnPruned,
    Place,
    aside,
    make_store,
    next_home,
    output_directory,
    place_of,
    words_directory,
)
from sexton.model.clock import Clock
from sexton.model.errors import StoreError
from sexton.model.settings import StateSettings
from sexton.run.background import Background
from sexton.run.live import Run
from sexton.run.registry import Registry
from sexton.run.slots import Slots
from sexton.store.coordination import Store, bounded
from sexton.store.directory.threads import check_wanted
from sexton.store.inuse import StoreInUse
from sexton.store.mounts import is_shared

logger = logging.getLogger("sexton.store")

LOOK_SECONDS = 0.5
OPEN_SECONDS = 30.0
"""How long a store may take to open."""
END_SECONDS = 5.0
"""What the stores that were left get when the daemon ends."""


class Departure:
    """A store that was left, as long as it is owed something."""

    def __init__(self, place: Place, store: Store, behind: Slots, owed: Mapping[str, Run], since: datetime) -> None:
        self.place = place
        self.store = store
        self.behind = behind
        self.owed = owed
        self.since = since
        self.answers = True
        """It has answered the last heartbeat."""
        self.wanted = True
        """It must not be closed: it is being told what has become of what waits, or we are about to come back to it."""
        self.task: asyncio.Task[None]

    def seen(self, registry: Registry) -> StoreLeft:
        owed = tuple(run.id for run in self.owed.values() if not is_over(run, registry))
        return StoreLeft(since=self.since, answers=self.answers, runs=owed)


class Moving:
    """Takes a daemon from one store to another of the same capabilities."""

    def __init__(
        self, store: StoreInUse, home: NodeHome, belongings: Belongings, fleet: Fleet, slots: Slots, registry: Registry,
        jobs: Jobs, clock: Clock, on_pruned: OnPruned,
    ) -> None:
        self._store = store
        self._first = home
        self._homes = [home]
        """Ours now (the last), and those that were left: what our zygotes have there is for no other daemon."""
        self._belongings = belongings
        self._fleet = fleet
        self._slots = slots
        self._registry = registry
        self._jobs = jobs
        self._clock = clock
        self._on_pruned = on_pruned
        self._departures: list[Departure] = []
        self._arrivals = Background()
        self._ending = False

    def left(self) -> tuple[StoreLeft, ...]:
        """The stores that are owed something still."""
        return tuple(departure.seen(self._registry) for departure in self._departures)

    async def to(self, here: StateSettings, there: StateSettings) -> TakesRestart | None:
        """Use the store of the section `there` instead of that of `here`. Raises StoreError when one of the two does
        not do what it must; then, and when it takes a restart, everything stays as it was."""
        if (why := await self._takes_restart(here, there)) is not None:
            return TakesRestart(why)
        place = await place_of(there)
        for departure in [one for one in self._departures if one.place == place]:
            if not departure.task.done() and any(not is_over(run, self._registry) for run in departure.owed.values()):
                departure.wanted = True
                try:
                    return await self._to(departure.store, here, there, departure)
                finally:
                    departure.wanted = False
            await asyncio.wait({departure.task}, timeout=OPEN_SECONDS)  # it is being closed: then it is opened anew
        new = await aside(there, lambda: make_store(there, self._on_pruned))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await new.open()
        except TimeoutError:
            raise StoreError(f"it was not open within {OPEN_SECONDS:g} seconds") from None
        try:
            stays = await self._to(new, here, there, None)
        except BaseException:
            await new.close()
            raise
        if stays is not None:
            await new.close()
        return stays

    async def _takes_restart(self, here: StateSettings, there: StateSettings) -> str | None:
        if (here.node_name, here.local_path) != (there.node_name, there.local_path):
            return "the node's name or folder has changed, too"
        if here.on_store_unavailable is not there.on_store_unavailable:
            return "onStoreUnavailable has changed, too"
        if self._store.capabilities.shared != await aside(there, lambda: is_shared(there)):
            return "one store is for several nodes and the other for one"
        return self._unready()

    def _unready(self) -> str | None:
        if self._ending:
            return "the daemon ends"
        kept = [run.id for run in self._registry if run.launch.keep and not run.recorded.is_set()]
        return f"runs that may outlive the daemon live (onDaemonLoss: keep): {', '.join(kept)}" if kept else None

    async def _to(
        self, new: Store, here: StateSettings, there: StateSettings, back_to: Departure | None,
    ) -> TakesRestart | None:
        place, home = await place_of(here), await aside(there, lambda: self._move_in(there))
        if home is None:
            return TakesRestart(f"another daemon is called {self._fleet.me.name} there")
        bringing = Bringing(self._store, new, self._registry, self._fleet.me)
        try:
            why = await self._bring(bringing, new, here, there, home)
        except BaseException:
            await self._give_up(bringing, new, there, home, back_to)
            raise
        if why is not None:
            await self._give_up(bringing, new, there, home, back_to)
            return TakesRestart(why)
        await self._arrive(bringing, new, there, home, place, back_to)
        return None

    def _move_in(self, there: StateSettings) -> NodeHome | None:
        home = next_home(there, self._homes)
        try:
            check_wanted()
        except StoreError:
            if home is not None and home not in self._homes:
                home.leave()
            raise
        return home

    # ---------------------------------------------------------------- before

    async def _bring(
        self, bringing: Bringing, new: Store, here: StateSettings, there: StateSettings, home: NodeHome,
    ) -> str | None:
        """Make what is here known there; or why that takes a restart. Raises StoreError."""
        if strange := await bringing.settle_unfinished():
            return f"an earlier daemon has left runs there, which a start deals with: {', '.join(strange)}"
        await aside(there, lambda: self._prepare(home, here, there))
        if new.capabilities.shared:
            await bounded(new.announce(self._fleet.facts()))  # who has an intent must be seen to live
        await bringing.bring()
        return self._unready()

    def _prepare(self, home: NodeHome, here: StateSettings, there: StateSettings) -> None:
        self._belongings.words.leave_word(words_directory(home))
        note_halfway(_folder(home), here, there)

    async def _give_up(
        self, bringing: Bringing, new: Store, there: StateSettings, home: NodeHome, back_to: Departure | None,
    ) -> None:
        try:
            await aside(there, lambda: forget_halfway(_folder(home)))
        except StoreError as failure:
            logger.warning("the note of a move that was given up stays: %s", failure)
        if home not in self._homes:
            home.leave()
        if back_to is not None:
            return  # it is left still, and gets what it is owed
        try:
            await bringing.take_back()
            if new.capabilities.shared:
                await bounded(new.leave(self._fleet.me.id))
        except StoreError as failure:
            logger.warning("the store that was not moved to may hold what it was told of this node: %s", failure)

    # ---------------------------------------------------------------- after

    async def _arrive(
        self, bringing: Bringing, new: Store, there: StateSettings, home: NodeHome, before: Place,
        back_to: Departure | None,
    ) -> None:
        owed = {run.id: run for run in bringing.known.values()
                if not run.waits_for_slots and not is_over(run, self._registry)}
        waiting = [run for run in bringing.known.values() if run.waits_for_slots]
        left = self._store.move(new, owed)
        behind = self._slots.move(left, None if back_to is None else back_to.behind)
        if back_to is not None:
            back_to.task.cancel()
        files = output_directory(there, home)
        self._belongings.output_files.move(files, there.max_output_bytes)
        self._belongings.words.move(words_directory(home))
        self._belongings.kept.move(_folder(home), files, there.max_output_bytes)
        if home in self._homes:
            self._homes.remove(home)
        self._homes.append(home)
        logger.warning("the store has moved, as the configuration says; %d run(s) that live have their records in both",
                       len(owed))
        self._hold_slots(behind)
        departure = self._leave(Departure(before, left, behind, owed, self._clock.now()))
        try:
            await self._settle_in(bringing, there, home)
            await _take_leave(bringing, left, waiting)
        finally:
            departure.wanted = False

    async def _settle_in(self, bringing: Bringing, there: StateSettings, home: NodeHome) -> None:
        """What is left to tell the new store, and to hear from it."""
        try:
            await aside(there, lambda: forget_halfway(_folder(home)))
            await bringing.bring_late()
            await self._look_around()
        except StoreError as failure:
            logger.error("after the move of the store: %s", failure)

    def _hold_slots(self, behind: Slots) -> None:
        """The runs that live need their slots there, too."""
        needed = [(job, run) for job, held in behind.held() if held.lost is None for run in held.runs]
        for job in {job for job, _ in needed}:
            logger.warning("Job %s: its cluster concurrency slot stays in the previous state store while the run "
                           "continues here, and is renewed there until it ends; the next launch claims in the new "
                           "store", job)
        for job, run in needed:
            self._arrivals.begin(self._hold_slot(job, run))

    async def _hold_slot(self, job: str, run_id: str) -> None:
        run = self._registry.get(run_id)
        if run is None:
            return
        await self._slots.take_along(job, run_id)
        await run.freed.wait()
        self._slots.give_back(job, run_id)

    async def _look_around(self) -> None:
        """Who is there, what is paused, what was run. Raises StoreError."""
        await self._fleet.look()
        await self._fleet.refresh()
        strange = [entry.spec.name for entry in self._jobs if not entry.recent]
        if strange:
            histories = await self._store.recent(REMEMBERED_RUNS)
            self._jobs.recall({name: histories[name] for name in strange if name in histories})

    # ---------------------------------------------------------------- the store that was left

    def _leave(self, departure: Departure) -> Departure:
        self._departures.append(departure)
        departure.task = asyncio.get_running_loop().create_task(self._depart(departure))
        departure.task.add_done_callback(lambda _: self._departures.remove(departure))
        return departure

    async def _depart(self, departure: Departure) -> None:
        left, behind = departure.store, departure.behind
        beside = [asyncio.create_task(behind.keep_renewing(), name="slots of the store that was left")]
        if left.capabilities.shared:
            inbox = Inbox(left, self._fleet.me.id, self._registry, behind)
            beside += [asyncio.create_task(inbox.run(), name="inbox of the store that was left"),
                       asyncio.create_task(self._stay_known(departure), name="heartbeats for the store that was left")]
        try:
            for run in departure.owed.values():
                await run.recorded.wait()
            while departure.wanted or not all(  # noqa: ASYNC110  rare: one keeps its place, and is amended
                is_over(run, self._registry) for run in departure.owed.values()
            ):
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for task in beside:
                task.cancel()
        try:
            await behind.close()
            if left.capabilities.shared:
                await bounded(left.leave(self._fleet.me.id))
        except StoreError as failure:
            departure.answers = False
            logger.warning("the store that was left cannot be told that this node is gone from it: %s", failure)
        try:
            await self._store.leave_for_good(left)
            logger.info("the store that was left is owed nothing more")
        except StoreError as failure:
            logger.warning("the store that was left did not close cleanly: %s", failure)

    async def _stay_known(self, departure: Departure) -> None:
        """Its other nodes must not take our runs for those of a node that has fallen silent."""
        while True:
            await asyncio.sleep(self._slots.ttl() / 3)
            try:
                await bounded(departure.store.announce(self._fleet.facts()))
                departure.answers = True
            except StoreError as failure:
                if departure.answers:
                    logger.warning("the store that was left does not answer: %s", failure)
                departure.answers = False

    async def close(self) -> None:
        """The daemon ends, and has recorded its runs. A move that is being prepared is not made any more."""
        self._ending = True
        going = {departure.task for departure in self._departures}
        if going:
            await asyncio.wait(going, timeout=END_SECONDS)
        for task in (*going, *self._arrivals.tasks):
            task.cancel()
        for home in self._homes:
            if home is not self._first:  # which whoever has got it leaves
                home.leave()


async def _take_leave(bringing: Bringing, left: Store, waiting: Collection[Run]) -> None:
    try:
        await bringing.take_leave(left, waiting)
    except StoreError as failure:
        logger.error("the store that was left cannot be told that what waited there waits in the new one (%s): a "
                     "daemon that is started on it would start that a second time", failure)


def _folder(home: NodeHome) -> Path:
    assert home.directory is not None
    return home.directory


def is_over(run: Run, registry: Registry) -> bool:
    """Its record is written, or waits to be, and will not be amended."""
    return run.recorded.is_set() and registry.get(run.id) is None

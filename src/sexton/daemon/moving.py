"""A reload that names another store: what begins from now on is in the new one, and the old one gets what it is owed.

Order matters, because a crash may come anywhere: the new store knows this node, the job states and the runs that live
before anything is decided there; the old one is told of ends, and of this node's life, until the last of those runs is
over. (Binding page: "A reload that moves the store"; docs/decisions/0018-moving-the-store.md.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import msgspec

from sexton.daemon import boot, catchup, pauses
from sexton.daemon.fleet import Fleet
from sexton.daemon.inbox import Inbox
from sexton.daemon.jobs import REMEMBERED_RUNS, Jobs
from sexton.daemon.node import Belongings, NodeHome
from sexton.daemon.nodestate import own_key
from sexton.daemon.reload import TakesRestart
from sexton.daemon.stores import OnPruned, is_shared, make_store, next_home, output_directory, words_directory
from sexton.model.errors import StoreError
from sexton.model.run import Outcome, Phase
from sexton.model.settings import StateSettings
from sexton.run import retries
from sexton.run.live import Run
from sexton.run.registry import Registry
from sexton.run.slots import Slots, bounded
from sexton.store.coordination import Store
from sexton.store.inuse import StoreInUse

logger = logging.getLogger("sexton.store")

LOOK_SECONDS = 0.5
END_SECONDS = 5.0
"""What the stores that were left get when the daemon ends."""
FLEET_WIDE = (pauses.KEY,)
NODES_OWN = (boot.KEY, retries.KEY, catchup.OWED, catchup.DECIDED)
"""Keys of job states."""
WAITS_ON = "the daemon's configuration names another store; the run waits on there"


class Moving:
    """Takes a daemon from one store to another of the same capabilities."""

    def __init__(
        self, store: StoreInUse, home: NodeHome, belongings: Belongings, fleet: Fleet, slots: Slots, registry: Registry,
        jobs: Jobs, on_pruned: OnPruned,
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
        self._on_pruned = on_pruned
        self._departures: set[asyncio.Task[None]] = set()
        self._arrivals: set[asyncio.Task[None]] = set()

    async def to(self, here: StateSettings, there: StateSettings) -> TakesRestart | None:
        """Use the store of the section `there` instead of that of `here`. Raises StoreError when one of the two does
        not do what it must; then, and when it takes a restart, everything stays as it was."""
        if (why := self._takes_restart(here, there)) is not None:
            return TakesRestart(why)
        new = make_store(there, self._on_pruned)
        await new.open()
        try:
            return await self._to(new, there)
        except BaseException:
            await new.close()
            raise

    def _takes_restart(self, here: StateSettings, there: StateSettings) -> str | None:
        if (here.node_name, here.local_path) != (there.node_name, there.local_path):
            return "the node's name or folder has changed, too"
        if here.on_store_unavailable is not there.on_store_unavailable:
            return "onStoreUnavailable has changed, too"
        if is_shared(here) != is_shared(there):
            return "one store is for several nodes and the other for one"
        kept = [run.id for run in self._registry if run.launch.keep and not run.recorded.is_set()]
        return f"runs that may outlive the daemon live (onDaemonLoss: keep): {', '.join(kept)}" if kept else None

    async def _to(self, new: Store, there: StateSettings) -> TakesRestart | None:
        home = await asyncio.to_thread(next_home, there, self._homes)
        if home is None:
            await new.close()
            return TakesRestart(f"another daemon is called {self._fleet.me.name} there")
        words, here = self._belongings.words, self._homes[-1]
        try:
            await asyncio.to_thread(words.move, words_directory(home))
            known = await self._bring(new)
        except BaseException as failure:
            if home not in self._homes:
                home.leave()
            await asyncio.to_thread(words.move, words_directory(here))
            if isinstance(failure, OSError):
                raise StoreError(f"{home.directory}: {failure.strerror}") from failure
            raise
        await self._arrive(new, home, there, known)
        return None

    # ---------------------------------------------------------------- before

    async def _bring(self, new: Store) -> dict[str, Run]:
        """Make what is here known there. Returns the runs that live, all of them: nothing has been waited for since the
        last look. Raises StoreError."""
        if new.capabilities.shared:
            await bounded(new.announce(self._fleet.facts()))  # who has an intent must be seen to live
        for key in FLEET_WIDE:
            await self._bring_states(new, key)
        for key in NODES_OWN:
            await self._bring_states(new, own_key(key, self._fleet.me.name) if new.capabilities.shared else key)
        known: dict[str, Run] = {}
        while fresh := [run for run in self._registry if run.id not in known]:
            for run in fresh:
                known[run.id] = run
                await _bring_run(new, run)
        return known

    async def _bring_states(self, new: Store, key: str) -> None:
        """What is told there already is newer: another node has moved before us."""
        told = await bounded(new.states(key))
        for job, value in (await bounded(self._store.states(key))).items():
            if job not in told:
                await bounded(new.put_state(job, key, value))

    # ---------------------------------------------------------------- after

    async def _arrive(self, new: Store, home: NodeHome, there: StateSettings, known: dict[str, Run]) -> None:
        owed = {run.id: run for run in known.values() if not run.waits_for_slots}
        left = self._store.move(new, owed)
        behind = self._slots.move(left)
        files = output_directory(there, home)
        self._belongings.output_files.move(files, there.max_output_bytes)
        assert home.directory is not None
        self._belongings.kept.move(home.directory, files, there.max_output_bytes)
        if home in self._homes:
            self._homes.remove(home)
        self._homes.append(home)
        logger.warning("the store has moved, as the configuration says; %d run(s) that live have their records in both",
                       len(owed))
        self._keep(self._arrivals, *self._hold_slots(behind))
        self._keep(self._departures, self._depart(left, behind, owed))
        try:
            await self._settle(left, new, known)
            await self._look_around()
        except StoreError as failure:
            logger.error("after the move of the store: %s", failure)

    def _hold_slots(self, behind: Slots) -> list[Coroutine[Any, Any, None]]:
        """The runs that live need their slots there, too."""
        needed = [(job, run) for job, held in behind.held() if held.lost is None for run in held.runs]
        for job in {job for job, _ in needed}:
            logger.warning("Job %s: its cluster concurrency slot stays in the previous state store while the run "
                           "continues here, and is renewed there until it ends; the next launch claims in the new "
                           "store", job)
        return [self._hold_slot(job, run) for job, run in needed]

    async def _hold_slot(self, job: str, run_id: str) -> None:
        run = self._registry.get(run_id)
        if run is None:
            return
        await self._slots.take_along(job, run_id)
        await run.freed.wait()
        self._slots.give_back(job, run_id)

    async def _settle(self, left: Store, new: Store, known: dict[str, Run]) -> None:
        """What ended while it was brought; and the queue, which waits in one store only. Raises StoreError."""
        for run in known.values():
            if run.recorded.is_set() and not run.unconfirmed:
                record = await bounded(left.get(run.id))
                if record is not None and record.phase is Phase.RECORDED:
                    await bounded(new.record(record))
            elif run.waits_for_slots:
                moved = msgspec.structs.replace(
                    run.record(), phase=Phase.RECORDED, outcome=Outcome.SKIPPED, fail_reason=WAITS_ON)
                await bounded(left.record(moved))

    async def _look_around(self) -> None:
        """Who is there, what is paused, what was run. Raises StoreError."""
        await self._fleet.look()
        await self._fleet.refresh()
        strange = [entry.spec.name for entry in self._jobs if not entry.recent]
        if strange:
            histories = await self._store.recent(REMEMBERED_RUNS)
            self._jobs.recall({name: histories[name] for name in strange if name in histories})

    # ---------------------------------------------------------------- the store that was left

    async def _depart(self, left: Store, behind: Slots, owed: dict[str, Run]) -> None:
        beside = [asyncio.create_task(behind.keep_renewing(), name="slots of the store that was left")]
        if left.capabilities.shared:
            inbox = Inbox(left, self._fleet.me.id, self._registry, behind)
            beside += [asyncio.create_task(inbox.run(), name="inbox of the store that was left"),
                       asyncio.create_task(self._stay_known(left), name="heartbeats for the store that was left")]
        try:
            for run in owed.values():
                await run.recorded.wait()
                while self._registry.get(run.id) is not None:  # noqa: ASYNC110  rare: it keeps its place, and is amended
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            for task in beside:
                task.cancel()
        try:
            await behind.close()
            if left.capabilities.shared:
                await bounded(left.leave(self._fleet.me.id))
            await self._store.leave_for_good(left)
            logger.info("the store that was left is owed nothing more")
        except StoreError as failure:
            logger.warning("the store that was left cannot be told that this node is gone from it: %s", failure)

    async def _stay_known(self, left: Store) -> None:
        """Its other nodes must not take our runs for those of a node that has fallen silent."""
        answers = True
        while True:
            await asyncio.sleep(self._slots.ttl() / 3)
            try:
                await bounded(left.announce(self._fleet.facts()))
                answers = True
            except StoreError as failure:
                if answers:
                    logger.warning("the store that was left does not answer: %s", failure)
                answers = False

    async def close(self) -> None:
        """The daemon ends, and has recorded its runs."""
        if self._departures:
            await asyncio.wait(set(self._departures), timeout=END_SECONDS)
        for task in (*self._departures, *self._arrivals):
            task.cancel()
        for home in self._homes:
            if home is not self._first:  # which whoever has got it leaves
                home.leave()

    @staticmethod
    def _keep(tasks: set[asyncio.Task[None]], *coroutines: Coroutine[Any, Any, None]) -> None:
        for coroutine in coroutines:
            task = asyncio.get_running_loop().create_task(coroutine)
            tasks.add(task)
            task.add_done_callback(tasks.discard)


async def _bring_run(new: Store, run: Run) -> None:
    """One that is recorded keeps its place. Raises StoreError."""
    if run.recorded.is_set():
        await bounded(new.record(run.record()))
    else:
        await bounded(new.intend(run.launch))
        await bounded(new.keep(run.record()))

"""The pools of this daemon: who holds slots, who waits for some, and whose turn it is.

Nothing here waits. A run that is to have slots gets them in one step, with its message in its mailbox, so no two runs
can be given the same ones. They are free again when the run is gone (`Run.freed`), not before.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta

from sexton.admission.decide import Refusal, Refuse, Replace, Start, Turn, overlap
from sexton.admission.pools import Order, Waiting, choose, order
from sexton.model.clock import Clock
from sexton.model.job import ConcurrencyPolicy, JobSpec
from sexton.model.pool import PoolSettings, PoolUse, Ticket
from sexton.model.run import Trigger
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.run.registry import Registry

logger = logging.getLogger("sexton.pools")

PAUSED_LOOK_SECONDS = 60.0


class Entry:
    """A run in the queue."""

    __slots__ = ("key", "overtaken", "run", "ticket")

    def __init__(self, run: Run, ticket: Ticket) -> None:
        self.run, self.ticket = run, ticket
        self.key: Order = order(ticket.priority, ticket.since, run.id)
        self.overtaken = 0


class Holding:
    """Slots that a run has. `heir` gets them when it is gone, as far as it needs them."""

    __slots__ = ("heir", "run", "slots", "wanted")

    def __init__(self, run: Run, slots: int, wanted: int) -> None:
        self.run, self.slots, self.wanted = run, slots, wanted
        self.heir: Holding | None = None


class Pool:
    """One pool: its settings, None once the configuration has it no more, and the runs in it."""

    def __init__(self, settings: PoolSettings) -> None:
        self.name = settings.name
        self.settings: PoolSettings | None = settings
        self.holdings: dict[str, Holding] = {}
        self.entries: dict[str, Entry] = {}
        self._order: list[Order] = []
        self.used = 0
        """Slots that are held."""
        self.replacing = 0
        """Entries whose runs may inherit slots."""
        self.admitted = 0
        self.waited_seconds = 0.0
        self.expired = 0
        self.refused = 0

    @property
    def capacity(self) -> int:
        return self.settings.slots if self.settings is not None else 0

    def queue(self) -> Iterator[Entry]:
        """In the order of the turns."""
        return (self.entries[key[2]] for key in self._order)

    def put(self, entry: Entry) -> None:
        self.entries[entry.run.id] = entry
        entry.run.waits_for_slots = True
        insort(self._order, entry.key)
        self.replacing += _replaces(entry)

    def take(self, run_id: str) -> Entry | None:
        entry = self.entries.pop(run_id, None)
        if entry is not None:
            entry.run.waits_for_slots = False
            del self._order[bisect_left(self._order, entry.key)]
            self.replacing -= _replaces(entry)
        return entry

    def hold(self, holding: Holding) -> None:
        self.holdings[holding.run.id] = holding
        self.used += holding.slots

    def release(self, run_id: str) -> None:
        """The run is gone: its slots are free, or its heir's."""
        holding = self.holdings.pop(run_id, None)
        if holding is None:
            return
        self.used -= holding.slots
        heir = holding.heir
        if heir is not None:
            more = min(heir.wanted - heir.slots, holding.slots)
            heir.slots += more
            self.used += more
        if holding.run.job.concurrency_policy is not ConcurrencyPolicy.REPLACE:
            return
        for victim in self.holdings.values():
            if victim.heir is holding:
                victim.heir = None  # it replaces nobody any more


def withdraw(run: Run, request: StopRequested) -> None:
    """Stop a run, and take it out of its queue in the same step: nobody is replaced for it any more."""
    if run.waits_for_slots:
        run.leave_queue(run)
    run.mailbox.post(request)


def _replaces(entry: Entry) -> bool:
    return entry.run.job.concurrency_policy is ConcurrencyPolicy.REPLACE


class Pools:
    def __init__(self, registry: Registry, clock: Clock, admit: Callable[[Run, tuple[str, ...]], None]) -> None:
        """`admit` is called for each run that gets its slots, with the ids of the runs that it is to replace."""
        self._registry = registry
        self._clock = clock
        self._admit = admit
        self._pools: dict[str, Pool] = {}
        self._watched: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._looks: dict[str, asyncio.TimerHandle] = {}
        self.seconds_paused: Callable[[str], float] = lambda job: 0.0
        """How long a job is paused from now; then its runs wait, except those that somebody started by hand."""
        self.closed = False
        """The daemon is shutting down: nobody gets slots any more."""

    def __iter__(self) -> Iterator[Pool]:
        return iter(list(self._pools.values()))

    def get(self, name: str) -> Pool | None:
        return self._pools.get(name)

    def queued(self, job: str) -> list[Run]:
        """The runs of the job that wait for slots, oldest first."""
        return [run for run in self._registry.of(job) if run.waits_for_slots]

    # ---------------------------------------------------------------- settings

    def configure(self, settings: Sequence[PoolSettings]) -> None:
        """Take up the pools of a configuration. Fewer slots than are held take nothing from anybody: nobody gets any
        until enough are free."""
        named = {one.name: one for one in settings}
        for pool in self:
            new = named.pop(pool.name, None)
            if new is not None and new.slots < pool.used:
                logger.warning("Pool %s has %d slot(s) now and %d are held: it drains first", pool.name, new.slots,
                               pool.used)
            pool.settings = new
            self._drop_if_over(pool)
        for one in named.values():
            self._pools[one.name] = Pool(one)
        self.look_everywhere()

    def _drop_if_over(self, pool: Pool) -> None:
        if pool.settings is None and not pool.holdings and not pool.entries:
            del self._pools[pool.name]

    # ---------------------------------------------------------------- coming

    def ticket(self, use: PoolUse, now: datetime, definition: str, since: datetime | None = None) -> Ticket:
        return Ticket(pool=use.name, slots=use.slots, priority=use.priority, since=since or now,
                      expires_at=now + timedelta(seconds=use.timeout), definition=definition)

    def refusal(self, job: JobSpec, leaving: int) -> Refuse | None:
        """Why a run of the job cannot be put into its pool's queue, which `leaving` runs are about to leave; None if it
        can."""
        assert job.pool is not None
        pool = self._pools.get(job.pool.name)
        if pool is None or pool.settings is None:
            return Refuse(Refusal.QUEUE_FULL, f"job {job.name!r}: there is no pool {job.pool.name!r} now")
        if len(pool.entries) - leaving < pool.settings.max_queued:
            return None
        pool.refused += 1
        return Refuse(
            Refusal.QUEUE_FULL,
            f"job {job.name!r}: {len(pool.entries)} run(s) wait for pool {pool.name!r}, and no more may "
            f"(maxQueued {pool.settings.max_queued})")

    def enqueue(self, run: Run) -> None:
        """Give the run, which is in the registry, its place in the queue, and slots if it is its turn."""
        ticket = run.launch.ticket
        assert ticket is not None
        pool = self._pools.get(ticket.pool)
        assert pool is not None
        pool.put(Entry(run, ticket))
        run.leave_queue = self.withdraw
        for live in self._registry.of(run.job.name):
            if not live.waits_for_slots and not live.freed.is_set() and live.id not in pool.holdings:
                self._watch(live, ticket.pool)
        self.look(pool)

    def hold(self, run: Run) -> None:
        """A run of an earlier daemon goes on here: its slots are taken, whether there are enough or not."""
        ticket = run.launch.ticket
        if ticket is None:
            return
        pool = self._pools.get(ticket.pool)
        if pool is None:
            pool = self._pools[ticket.pool] = Pool(PoolSettings(name=ticket.pool, slots=1))
            pool.settings = None
        pool.hold(Holding(run, ticket.slots, ticket.slots))
        self._watch(run, pool.name)

    # ---------------------------------------------------------------- whose turn it is

    def look(self, pool: Pool) -> None:
        """Give slots to everybody whose turn it is."""
        if self.closed or not pool.entries or pool.settings is None:
            return
        if pool.used >= pool.capacity and not pool.replacing:
            return
        turns: dict[str, Turn] = {}
        while True:
            waiting = (
                self._waiting(pool, entry, turns) for entry in pool.queue()
                if not isinstance(turns.get(entry.run.job.name), Refuse)  # its job does not let it: often said already
            )
            choice = choose(pool.capacity, pool.used, waiting, heirs=pool.replacing > 0)
            if choice is None:
                return
            for run_id in choice.overtakes:
                pool.entries[run_id].overtaken += choice.takes
            entry = pool.entries[choice.start]
            self._give(pool, entry, turns.pop(entry.run.job.name))

    def _waiting(self, pool: Pool, entry: Entry, turns: dict[str, Turn]) -> Waiting:
        job = entry.run.job
        turn = turns.get(job.name)
        if turn is None:
            running = [run.id for run in self._registry.running(job.name)]
            unconfirmed = [run.id for run in self._registry.unconfirmed(job.name)]
            turn = turns[job.name] = overlap(job, running, unconfirmed)
        paused = self._seconds_paused(entry.run)
        if paused > 0:
            self._look_again(pool, paused)
        inherits = 0
        if isinstance(turn, Replace):
            inherits = sum(found.slots for found in self._legacies(pool, turn.victims))
        ready = not isinstance(turn, Refuse) and paused <= 0
        return Waiting(entry.run.id, entry.ticket.slots, ready, inherits, entry.overtaken)

    def _seconds_paused(self, run: Run) -> float:
        return 0.0 if run.launch.trigger is Trigger.MANUAL else self.seconds_paused(run.job.name)

    def _look_again(self, pool: Pool, seconds: float) -> None:
        """A pause that ends by itself is not told of."""
        loop = asyncio.get_running_loop()
        due, timer = loop.time() + min(seconds, PAUSED_LOOK_SECONDS), self._looks.get(pool.name)
        if timer is None or timer.when() > due or timer.when() <= loop.time():
            if timer is not None:
                timer.cancel()
            self._looks[pool.name] = loop.call_at(due, self.look, pool)

    def look_everywhere(self) -> None:
        """Something outside the pools has changed: a pause was ended."""
        for pool in self:
            self.look(pool)

    @staticmethod
    def _legacies(pool: Pool, victims: Collection[str]) -> list[Holding]:
        found = (pool.holdings.get(victim) for victim in victims)
        return [holding for holding in found if holding is not None and holding.heir is None]

    def _give(self, pool: Pool, entry: Entry, turn: Turn) -> None:
        run = entry.run
        pool.take(run.id)
        victims = turn.victims if isinstance(turn, Replace) else ()
        assert isinstance(turn, Start | Replace)
        legacies = self._legacies(pool, victims)
        at_once = max(0, entry.ticket.slots - sum(legacy.slots for legacy in legacies))
        holding = Holding(run, at_once, entry.ticket.slots)
        pool.hold(holding)
        for legacy in legacies:
            legacy.heir = holding
        pool.admitted += 1
        pool.waited_seconds += max(0.0, (self._clock.now() - run.launch.created_at).total_seconds())
        self._watch(run, pool.name)
        self._admit(run, victims)

    def why_it_waits(self, pool: Pool, entry: Entry) -> str:
        """In words, as things stand now."""
        turns: dict[str, Turn] = {}
        waiting = self._waiting(pool, entry, turns)
        turn = turns[entry.run.job.name]
        if isinstance(turn, Refuse):
            return turn.message
        if (paused := self._seconds_paused(entry.run)) > 0:
            return f"its job is paused for {paused:.0f} more seconds"
        if self.closed:
            return "nothing is started now"
        free = max(0, pool.capacity - pool.used)
        if waiting.needs > free:
            return f"it needs {waiting.needs} slot(s) and {free} of {pool.capacity} are free"
        return "a run before it has been overtaken often enough: what becomes free is for that one"

    # ---------------------------------------------------------------- going

    def withdraw(self, run: Run, *, expired: bool = False) -> None:
        """The run waits no longer: it is to stop, or its time is over. No effect if it has its slots."""
        ticket = run.launch.ticket
        pool = self._pools.get(ticket.pool) if ticket is not None else None
        if pool is None or pool.take(run.id) is None:
            return
        pool.expired += expired
        self._drop_if_over(pool)
        self.look(pool)  # it may have barred the way

    def _watch(self, run: Run, pool: str) -> None:
        """Whose end may let others start."""
        key = (run.id, pool)
        if key not in self._watched:
            self._watched[key] = asyncio.get_running_loop().create_task(self._when_freed(run, pool))

    async def _when_freed(self, run: Run, name: str) -> None:
        await run.freed.wait()
        self._watched.pop((run.id, name), None)
        pool = self._pools.get(name)
        if pool is not None:
            pool.release(run.id)
            self._drop_if_over(pool)
            self.look(pool)

    def close(self) -> None:
        """Nobody gets slots any more. Those who wait are left to the next daemon, or to whoever stops them."""
        self.closed = True

    def open(self) -> None:
        """Go on after `close`."""
        self.closed = False
        self.look_everywhere()

"""Whose turn it is at a pool: order, capacity, and that nobody waits for ever. Properties over whole histories."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.admission.decide import Refusal, Refuse, Start, Wait, decide, overlap
from sexton.admission.pools import Choice, Waiting, choose, order
from sexton.model.job import ConcurrencyPolicy, JobSpec, Place
from sexton.model.pool import PoolUse
from sexton.model.run import Trigger

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def one(name: str, slots: int = 1, *, ready: bool = True, inherits: int = 0, overtaken: int = 0) -> Waiting:
    return Waiting(name, slots, ready, inherits, overtaken)


@pytest.mark.parametrize(("used", "queue", "expected"), [
    (0, [], None),
    (0, [one("a"), one("b")], Choice("a", 1)),
    (4, [one("a")], None),
    (3, [one("a", 2)], None),
    (3, [one("a", 2), one("b")], Choice("b", 1, ("a",))),
    (3, [one("a", 2, overtaken=4), one("b")], None),
    (3, [one("a", 2, overtaken=3), one("b")], Choice("b", 1, ("a",))),
    (2, [one("a", 3, overtaken=3), one("b", 2), one("c")], Choice("c", 1, ("a", "b"))),
    (3, [one("a", ready=False), one("b")], Choice("b", 1)),
    (0, [one("a", 4, ready=False), one("b", 4)], Choice("b", 4)),
    (4, [one("a", 2, inherits=2)], Choice("a", 0)),
    (4, [one("a", 3, inherits=2)], None),
    (3, [one("a", 3, inherits=2)], Choice("a", 1)),
    (4, [one("a", 2, overtaken=4), one("b", 1, inherits=1)], Choice("b", 0)),
    (6, [one("a")], None),
])
def test_who_is_next(used: int, queue: list[Waiting], expected: Choice | None) -> None:
    """Four slots. The first that fits; a large head is passed until a pool's worth of slots has gone by; who is not
    ready bars nobody; who inherits slots needs only the rest, and takes nothing from a head."""
    assert choose(4, used, queue) == expected


def test_a_full_pool_is_not_searched() -> None:
    """Where nobody can inherit, the first look says it all."""
    looked = []

    def queue() -> object:
        for number in range(1000):
            looked.append(number)
            yield one(str(number))

    assert choose(4, 4, queue(), heirs=False) is None and len(looked) <= 1  # type: ignore[arg-type]


class Simulated:
    """A pool over time: arrivals, ends, and after each a look, as `run/pools.py` does it."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.clock = 0
        self.queue: list[tuple[tuple[int, datetime, str], Waiting]] = []
        self.held: dict[str, int] = {}
        self.started: list[str] = []

    def arrive(self, slots: int, priority: int, *, ready: bool = True) -> str:
        self.clock += 1
        name = f"{self.clock:06}"
        key = order(priority, EPOCH + timedelta(seconds=self.clock), name)
        self.queue = sorted([*self.queue, (key, one(name, slots, ready=ready))], key=lambda pair: pair[0])
        self.look()
        return name

    def end(self, which: int) -> None:
        if self.held:
            del self.held[sorted(self.held)[which % len(self.held)]]
            self.look()

    @property
    def used(self) -> int:
        return sum(self.held.values())

    def look(self) -> None:
        while (choice := choose(self.capacity, self.used, [waiting for _, waiting in self.queue])) is not None:
            self.check(choice)
            chosen = next(waiting for _, waiting in self.queue if waiting.id == choice.start)
            self.held[choice.start] = chosen.slots
            self.started.append(choice.start)
            self.queue = [
                (key, msgspec.structs.replace(waiting, overtaken=waiting.overtaken + choice.takes)
                 if waiting.id in choice.overtakes else waiting)
                for key, waiting in self.queue if waiting.id != choice.start
            ]
            assert self.used <= self.capacity

    def check(self, choice: Choice) -> None:
        """Who is passed is ready, stands before the chosen one, and does not fit."""
        place = [waiting.id for _, waiting in self.queue].index(choice.start)
        before = [waiting for _, waiting in self.queue[:place] if waiting.ready]
        assert choice.overtakes == tuple(waiting.id for waiting in before)
        assert all(waiting.needs > self.capacity - self.used for waiting in before)


ARRIVAL = st.tuples(st.just("arrive"), st.integers(1, 6), st.integers(-2, 2), st.booleans())
END = st.tuples(st.just("end"), st.integers(0, 50), st.just(0), st.just(True))


def play(capacity: int, steps: list[tuple[str, int, int, bool]], look: Callable[[Simulated], None]) -> None:
    pool = Simulated(capacity)
    for what, number, priority, ready in steps:
        if what == "arrive":
            pool.arrive(min(number, capacity), priority, ready=ready)
        else:
            pool.end(number)
        look(pool)


@given(st.integers(1, 6), st.lists(st.one_of(ARRIVAL, END), max_size=60))
def test_never_more_slots_than_there_are(capacity: int, steps: list[tuple[str, int, int, bool]]) -> None:
    """Whatever arrives and ends: the capacity holds, and nobody is passed by more than a pool's worth of slots."""
    def look(pool: Simulated) -> None:
        assert pool.used <= capacity
        assert all(waiting.overtaken <= capacity for _, waiting in pool.queue)

    play(capacity, steps, look)


@given(st.integers(1, 6), st.lists(st.one_of(ARRIVAL, END), max_size=60))
def test_no_slot_idles_without_a_reason(capacity: int, steps: list[tuple[str, int, int, bool]]) -> None:
    """What is free fits nobody who is ready, or is kept for one that has been passed often enough."""
    def look(pool: Simulated) -> None:
        room = capacity - pool.used
        for _, waiting in pool.queue:
            if waiting.ready:
                assert waiting.needs > room
                room = min(room, capacity - waiting.overtaken)

    play(capacity, steps, look)


@given(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), max_size=40))
def test_equal_sizes_go_by_priority_and_age(steps: list[tuple[int, bool]]) -> None:
    """Where everybody needs the same, nobody is overtaken: the highest priority, then the oldest, always goes next."""
    pool = Simulated(1)
    waiting: list[tuple[int, str]] = []
    for priority, ends in steps:
        busy = bool(pool.held)
        name = pool.arrive(1, priority)
        if busy:
            waiting.append((-priority, name))
        if ends and waiting:
            waiting.sort()
            pool.end(0)
            assert pool.started[-1] == waiting.pop(0)[1]


@given(st.integers(2, 8), st.integers(2, 8))
def test_small_ones_cannot_starve_a_large_one(capacity: int, slots: int) -> None:
    """However many small ones keep coming, the large one starts after a pool's worth of them and the ends of those that
    run."""
    slots = min(slots, capacity)
    pool = Simulated(capacity)
    for _ in range(capacity):
        pool.arrive(1, 0)
    large = pool.arrive(slots, 0)
    steps = 0
    while large not in pool.held:
        pool.arrive(1, 0)
        pool.end(0)
        steps += 1
        assert steps <= 2 * capacity + 1, "the bound: a pool's worth may pass, then it drains"


@given(st.integers(2, 8))
def test_large_ones_cannot_starve_a_small_one(capacity: int) -> None:
    """A small one is passed by nobody who came later, however many large ones come."""
    pool = Simulated(capacity)
    pool.arrive(capacity, 0)
    first = pool.arrive(capacity, 0)
    small = pool.arrive(1, 0)
    for _ in range(3):
        pool.arrive(capacity, 0)
    pool.end(0)
    assert first in pool.held and small not in pool.held
    pool.end(0)
    assert small in pool.held


def job(policy: ConcurrencyPolicy = ConcurrencyPolicy.ALLOW, most: int | None = None, *, pool: bool = False) -> JobSpec:
    return JobSpec(name="j", command="true", schedule="@daily", place=Place("jobs.yaml", 1, 1),
                   concurrency_policy=policy, max_instances=most, pool=PoolUse(name="p") if pool else None)


@pytest.mark.parametrize("policy", ConcurrencyPolicy)
@pytest.mark.parametrize("trigger", Trigger)
def test_a_job_with_a_pool_waits_whatever_its_policy(policy: ConcurrencyPolicy, trigger: Trigger) -> None:
    """The policy is asked when the turn comes, so a Forbid job that runs is not dropped."""
    assert decide(job(policy, pool=True), trigger, ["a"], shutting_down=False) == Wait("p")
    assert isinstance(decide(job(policy, pool=True), trigger, [], shutting_down=True), Refuse)


@pytest.mark.parametrize(("running", "unconfirmed", "allowed"), [
    ((), (), True), (("a",), (), True), (("a", "b"), (), False), (("a", "b", "c"), (), False),
    ((), ("z",), True), (("a",), ("z",), False),
])
def test_max_instances_bounds_allow(running: tuple[str, ...], unconfirmed: tuple[str, ...], allowed: bool) -> None:
    """Two may run; one that could not be terminated counts until it is gone."""
    answer = overlap(job(most=2), running, unconfirmed)
    assert isinstance(answer, Start) == allowed
    if isinstance(answer, Refuse):
        assert answer.refusal is Refusal.TOO_MANY and "maxInstances 2" in answer.message

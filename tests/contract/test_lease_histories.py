"""Never two holders: histories of nodes whose clocks are wrong, that stop, crash and are not answered.

By default some hundreds of each store. `SEXTON_LEASE_HISTORIES=100000` makes it that many of each; `SEXTON_LEASE_SEED`
is where they begin. Random plans by seed for the number, hypothesis for a small one when something breaks: both run the
same world.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from lease_disk import DirectoryStore, use_simulated_disk
from lease_nodes import Broken, use_simulated_clock
from lease_stores import DatabaseStore, LocalStore, ModelServer, RealServer
from lease_world import (
    FASTEST,
    NODES,
    SLOWEST,
    Kind,
    LeaseStore,
    Plan,
    Step,
    World,
    plan_from,
)

from sexton.run import slots
from sexton.store.coordination import Lease
from sexton.store.directory import terms
from sexton.store.local import LocalCoordination

HISTORIES = int(os.environ.get("SEXTON_LEASE_HISTORIES", "200"))
FIRST = int(os.environ.get("SEXTON_LEASE_SEED", "1"))
STORES: dict[str, Callable[[World], LeaseStore]] = {
    "postgres": DatabaseStore, "directory": DirectoryStore, "local": LocalStore,
}


@pytest.fixture(autouse=True)
def simulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        use_simulated_clock(patch.setattr)
        use_simulated_disk(patch.setattr)
        yield


def live(plan: Plan, store: Callable[[World], LeaseStore]) -> World:
    world = World(plan, store)
    try:
        return world.run()
    except Broken as broken:
        broken.add_note(f"seed {plan.seed}")
        raise


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("store", STORES)
def test_at_no_instant_do_two_nodes_trust_a_lease(store: str) -> None:
    """Nor does a fence fall, nor does a stale release free anything, nor is the lease lost for good, nor does a run
    start with a lease that its node does not trust."""
    grants = sum(live(plan_from(seed), STORES[store]).grants for seed in range(FIRST, FIRST + HISTORIES))
    assert grants > 2 * HISTORIES, "there is something to see"


def machine(store: str) -> type[RuleBasedStateMachine]:
    """The same world, step by step as hypothesis wants it: what breaks is made small."""

    class Machine(RuleBasedStateMachine):
        @initialize(seed=st.integers(0, 2**32), ttl=st.sampled_from([5.0, 30.0]), grain=st.sampled_from([1, 10**9]),
                    rates=st.tuples(*[st.sampled_from([SLOWEST, 1.0, FASTEST])] * (NODES + 1)))
        def begin(self, seed: int, ttl: float, grain: int, rates: tuple[float, ...]) -> None:
            self.world = World(Plan(seed, ttl, rates, grain, ()), STORES[store])

        @rule(kind=st.sampled_from(Kind), gap=st.floats(0, 1.2), node=st.integers(0, NODES - 1), amount=st.floats(0, 1))
        def step(self, kind: Kind, gap: float, node: int, amount: float) -> None:
            self.world.take(Step(gap, kind, node, amount))

        @rule(node=st.integers(0, NODES - 1))
        def start(self, node: int) -> None:
            self.world.take(Step(0.2, Kind.START, node, 0.0))

        def teardown(self) -> None:
            if hasattr(self, "world"):
                self.world.end()

    return Machine


@pytest.mark.parametrize("store", STORES)
def test_whatever_hypothesis_thinks_of(store: str) -> None:
    """Steps in any order and number, with shrinking."""
    steps = settings(max_examples=max(40, HISTORIES // 20), stateful_step_count=25, deadline=None, database=None,
                     suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine(store), settings=steps)  # type: ignore[no-untyped-call]


def test_the_real_server_answers_as_its_model_does(database: str) -> None:
    """The statements, one by one, in the same histories, with PostgreSQL's clock in the hand of the test."""
    server = RealServer(database)
    try:
        for seed in range(FIRST, FIRST + max(30, HISTORIES // 200)):
            server.clear()
            live(plan_from(seed), lambda world: DatabaseStore(world, server))
        assert server.asked > 500
    finally:
        server.connection.close()


TELLING = 23, 86, 155, 330, 354, 455, 599
"""Seeds of histories in which one of the mutations shows, so that it need not be looked for each time."""


def holder_alone(standing: terms.Standing, lease: Lease) -> tuple[bool, terms.Term | None]:
    """A release that does not look at the fence."""
    if standing.lease is None or standing.lease.holder != lease.holder:
        return False, None
    return True, terms.Term(name=lease.name, holder=None, node="", fence=standing.lease.fence, ttl=0.0)


def no_margin(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slots, "TRUST_MARGIN", 0.0)


def from_the_answer_on(patch: pytest.MonkeyPatch) -> None:
    true = slots._trusted_until
    patch.setattr(slots, "_trusted_until", lambda began, ttl: true(slots.boottime(), ttl))


def unfenced_releases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(terms, "release", holder_alone)
    patch.setattr(ModelServer, "check_fence", False)

    async def release(self: LocalCoordination, lease: Lease) -> bool:
        term = self._terms.get(lease.name)
        if term is None or term.lease.holder != lease.holder:
            return False
        del self._terms[lease.name]
        return True

    patch.setattr(LocalCoordination, "release", release)


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(("mutation", "words"), [
    (no_margin, "both trust"), (from_the_answer_on, "both trust"), (unfenced_releases, "a stale release|both trust"),
])
def test_the_histories_would_show_it(
    store: str, mutation: Callable[[pytest.MonkeyPatch], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the margin, with trust that is counted from the answer on, with releases whose fence nobody checks."""
    mutation(monkeypatch)
    with pytest.raises(Broken, match=words):
        for seed in (*TELLING, *range(1, 3000)):
            live(plan_from(seed), STORES[store])

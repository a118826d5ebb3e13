"""What is due together is claimed together: how often the store is asked, who gets what, and what a failure costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from sexton.daemon import claiming
from sexton.daemon.claiming import ROUND, Rounds
from sexton.daemon.jobs import Jobs
from sexton.daemon.onefire import AGAIN, OneFire
from sexton.model.errors import StoreError
from sexton.model.job import JobSpec, Place, RunOn
from sexton.model.node import NodeIdentity
from sexton.model.settings import OnStoreUnavailable
from sexton.store.coordination import Claimed, Occurrence, bounded
from sexton.store.memory.store import MemoryStore

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PATIENCE = 10.0


class Asked(MemoryStore):
    """Remembers what it was asked for, answers when it may, and fails where it is to."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: list[tuple[list[Occurrence], int]] = []
        self.answering = asyncio.Event()
        self.answering.set()
        self.broken: set[Occurrence] = set()
        self.per_round = 10_000

    async def claim_fires(self, wanted: Sequence[Occurrence], by: NodeIdentity, most: int) -> Claimed:
        self.rounds.append((list(wanted), most))
        await asyncio.sleep(0)
        await self.answering.wait()
        sound = [one for one in wanted if one not in self.broken][: self.per_round]
        if not sound:
            raise StoreError("it is broken")
        return await super().claim_fires(sound, by, most)


@pytest.fixture
async def store() -> AsyncIterator[Asked]:
    made = Asked()
    await made.open()
    yield made
    await made.close()


def node(name: str) -> NodeIdentity:
    return NodeIdentity(id=f"{name}#1", name=name, pid=1, pid_started_ticks=1, boot_id="b", pid_namespace=1)


def rounds(store: Asked, name: str, *others: str) -> Rounds:
    return Rounds(store, node(name), lambda: [node(other).id for other in others])


def many(count: int) -> list[Occurrence]:
    return [Occurrence(f"job-{number}", NOON) for number in range(count)]


async def ask(one: Rounds, wanted: Sequence[Occurrence]) -> list[bool]:
    return list(await asyncio.gather(*map(one.claim, wanted)))


async def begun(store: Asked) -> None:
    """The first round is under way."""
    async with asyncio.timeout(PATIENCE):
        while not store.rounds:
            await asyncio.sleep(0)


async def test_what_comes_together_is_asked_for_once(store: Asked) -> None:
    """A node alone asks for 400 in one round, for 1,100 in three of a bounded size; each gets its own answer."""
    await store.claim_fire("job-7", NOON, node("other"))
    answers = await ask(rounds(store, "a"), many(400))
    assert answers == [number != 7 for number in range(400)] and len(store.rounds) == 1
    store.rounds.clear()
    assert (await ask(rounds(store, "b"), many(1100))).count(True) == 700
    assert len(store.rounds) == 3 and max(len(wanted) for wanted, _ in store.rounds) == ROUND


async def test_launches_in_several_turns_of_the_loop_are_one_round(store: Asked) -> None:
    """A scheduler that breathes between sixteen launches at a time asks once all the same."""
    one, asked = rounds(store, "a"), []
    for number, wanted in enumerate(many(64)):
        asked.append(asyncio.ensure_future(one.claim(wanted)))
        if number % 16 == 15:
            await asyncio.sleep(0)
    assert all(await asyncio.gather(*asked)) and len(store.rounds) == 1


async def test_what_comes_meanwhile_is_the_next_round(store: Asked) -> None:
    """One round at a time: the store that is slow is not asked for each of what is due until it answers."""
    one = rounds(store, "a")
    store.answering.clear()
    first = asyncio.ensure_future(one.claim(many(1)[0]))
    await begun(store)
    later = asyncio.ensure_future(ask(one, many(50)[1:]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(store.rounds) == 1
    store.answering.set()
    assert await first and all(await later) and [len(wanted) for wanted, _ in store.rounds] == [1, 49]


async def test_each_node_takes_its_own_share_first(store: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten nodes, one after the other, each for its first round: a thousand occurrences are divided among them."""
    monkeypatch.setattr(claiming, "COURTESY_SECONDS", 300.0)  # a slow machine would be through with it
    names = [f"n{number}" for number in range(10)]
    firsts: Counter[Occurrence] = Counter()
    for name in names:
        store.rounds.clear()
        asked = asyncio.ensure_future(ask(rounds(store, name, *names), many(1000)))
        await begun(store)
        wanted, most = store.rounds[0]
        firsts.update(wanted)
        assert 60 <= len(wanted) == most <= 140
        asked.cancel()
    assert firsts == dict.fromkeys(many(1000), 1)


async def test_a_node_that_is_ahead_leaves_others_their_share(store: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for its own alone, and who comes within a while has its share. What comes meanwhile and is its own, or
    nobody's, does not wait."""
    monkeypatch.setattr(claiming, "COURTESY_SECONDS", 300.0)
    ahead, behind = rounds(store, "a", "b"), rounds(store, "b", "a")
    early = asyncio.ensure_future(ask(ahead, many(200)))
    await begun(store)
    own = set(store.rounds[0][0])
    assert all(await ask(behind, [one for one in many(200) if one not in own])) and 60 < len(own) < 140
    mine = next(one for one in (Occurrence(f"x{n}", NOON) for n in range(99)) if ahead._place(one) == 0)
    async with asyncio.timeout(PATIENCE):
        assert await ahead.claim(mine) and not early.done()
        foreign = [Occurrence(f"y{n}", NOON) for n in range(20)]
        assert all(await asyncio.gather(*(ahead.claim(one, at_once=True) for one in foreign))) and not early.done()
    early.cancel()


async def test_nodes_at_the_same_time_share_evenly(store: Asked) -> None:
    """Five nodes ask for the same 1,000 at once: each occurrence is one node's, and nobody has more than twice its
    share."""
    names = [f"n{number}" for number in range(5)]
    answers = await asyncio.gather(*(ask(rounds(store, name, *names), many(1000)) for name in names))
    assert [some.count(True) for some in zip(*answers, strict=True)] == [1] * 1000
    assert max(some.count(True) for some in answers) <= 400


async def test_the_share_of_a_node_that_is_not_there_is_taken(store: Asked) -> None:
    """More in each round: a thousand occurrences that are for fifty nodes take one node a few rounds."""
    answers = await ask(rounds(store, "n0", *(f"n{number}" for number in range(50))), many(1000))
    assert all(answers) and len(store.rounds) < 12


async def test_a_round_that_fails_is_an_error_for_each_and_the_next_is_asked(store: Asked) -> None:
    """Of several; what was decided has its answer, and a later question is a new one."""
    one, wanted = rounds(store, "a"), many(30)
    store.broken.update(wanted[10:])
    told = await asyncio.gather(*map(one.claim, wanted), return_exceptions=True)
    assert told[:10] == [True] * 10 and all(isinstance(failure, StoreError) for failure in told[10:])
    assert len({id(failure) for failure in told[10:]}) == 20
    store.broken.clear()
    assert all(await ask(one, wanted))


async def test_a_store_that_hangs_costs_one_round(store: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """All who wait hear of it when the first round was not answered in time, not one round after the other; what came
    meanwhile is asked for in a round of its own."""
    monkeypatch.setattr(claiming, "bounded", lambda operation: bounded(operation, 0.1))
    one = rounds(store, "a")
    store.answering.clear()
    asked = [asyncio.ensure_future(one.claim(wanted)) for wanted in many(3 * ROUND)]
    await begun(store)
    later = asyncio.ensure_future(one.claim(Occurrence("later", NOON)))
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(failure, StoreError) for failure in told) and not later.done()
    assert [wanted for wanted, _ in store.rounds[1:]] in ([], [[Occurrence("later", NOON)]])
    store.answering.set()
    assert await later


async def test_who_stops_waiting_is_not_asked_for(store: Asked) -> None:
    """What was given up before its round began is claimed by nobody here."""
    one, wanted = rounds(store, "a"), many(3)
    store.answering.clear()
    first = asyncio.ensure_future(one.claim(wanted[0]))
    await begun(store)
    given_up, kept = asyncio.ensure_future(one.claim(wanted[1])), asyncio.ensure_future(one.claim(wanted[2]))
    await asyncio.sleep(0)
    given_up.cancel()
    store.answering.set()
    assert await first and await kept
    assert [round for round, _ in store.rounds] == [[wanted[0]], [wanted[2]]]


async def test_two_who_want_the_same_have_the_same_answer(store: Asked) -> None:
    """The schedule and a catch-up, as with two questions to the store."""
    one = rounds(store, "a")
    assert await asyncio.gather(one.claim(many(1)[0]), one.claim(many(1)[0])) == [True, True]
    assert len(store.rounds) == 1


@pytest.mark.parametrize("policy", OnStoreUnavailable)
async def test_without_an_answer_the_policy_decides_each(store: Asked, policy: OnStoreUnavailable) -> None:
    """A batch of which some were decided, and the rest was not: `degrade` fires those, `fail-closed` does not; both are
    counted. The declined ones are noted in rounds, too."""
    jobs = Jobs()
    entries = [jobs.put(JobSpec(name=f"job-{number}", command="true", schedule="* * * * *", place=Place("", 1, 1),
                                run_on=RunOn.ONE_NODE)) for number in range(12)]
    store.broken.update(many(12)[4:])
    await store.claim_fire("job-0", NOON, node("other"))
    one = OneFire(store, node("a"), jobs, policy)
    fires = await asyncio.gather(*(one.is_ours(entry, NOON) for entry in entries))
    assert fires == [False, True, True, True] + [policy is OnStoreUnavailable.DEGRADE] * 8
    assert one.unanswered == 8 and one.fired_elsewhere == 1
    store.rounds.clear()
    await asyncio.gather(*(one.decline(entry.spec.name, NOON) for entry in entries))
    assert len(store.rounds) == 1
    assert [fire.by for fire in await store.fired("job-3" + AGAIN, NOON - timedelta(days=1))] == ["a#1"]


async def test_a_decision_to_skip_is_noted_at_once(store: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nobody else's share: should the node die before it is noted, another one would fire what was skipped."""
    monkeypatch.setattr(claiming, "COURTESY_SECONDS", 300.0)
    one = OneFire(store, node("a"), Jobs(), OnStoreUnavailable.DEGRADE, lambda: ["b#1", "c#1"])
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(one.decline(wanted.job, NOON) for wanted in many(20)))
    assert len(store.rounds) == 1

"""A queue against a model of it: whatever workers, clients and reapers do, each run ends once and nobody has what is
another's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from sexton.model.node import NodeIdentity
from sexton.model.run import Launch, Outcome, Phase, RunRecord, Trigger
from sexton.store.memory import MemoryStore
from sexton.store.queue import CancelAnswer, Cancelling, Claim, Entry, Finish

T = TypeVar("T")
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
WORKERS = [NodeIdentity(id=f"w{n}#1", name=f"w{n}", pid=1, pid_started_ticks=0, boot_id="other", pid_namespace=0)
           for n in range(3)]
"""Of another boot of the machine: whoever reaps finds all of them silent."""


def ended(launch: Launch) -> RunRecord:
    return RunRecord(launch=launch, phase=Phase.RECORDED, outcome=Outcome.SUCCESS, finished_at=LONG_AGO)


class Queues(RuleBasedStateMachine):
    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = MemoryStore(max_runs_per_job=0)
        self.do(self.store.open())
        self.queue = self.store.queue
        self.waiting: dict[str, Entry] = {}
        self.active: dict[str, Claim] = {}
        self.asked: set[str] = set()
        self.ended: dict[str, Outcome] = {}

    def do(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.loop.run_until_complete(wait())

    def teardown(self) -> None:
        self.loop.close()

    @rule(number=st.integers(1, 12), priority=st.integers(-1, 1), once=st.booleans(), queue=st.sampled_from("xy"))
    def enqueue(self, number: int, priority: int, once: bool, queue: str) -> None:
        launch = Launch(id=f"run-{number:02}", job="j", trigger=Trigger.MANUAL, node="n", created_at=LONG_AGO)
        entry = Entry(launch=launch, priority=priority, once=once, queue=queue, available_at=LONG_AGO)
        self.do(self.queue.enqueue([entry]))
        if launch.id not in self.waiting.keys() | self.active.keys() | self.ended.keys():
            self.waiting[launch.id] = entry

    @rule(target=claims, by=st.sampled_from(WORKERS), queues=st.sampled_from(["x", "y", "xy", "yx"]),
          want=st.integers(0, 4))
    def claim(self, by: NodeIdentity, queues: str, want: int) -> Any:
        step = self.do(self.queue.step(by, list(queues), want))
        ready = sorted((entry for entry in self.waiting.values() if entry.queue in queues),
                       key=lambda entry: (-entry.priority, entry.launch.id))[:want]
        assert [claim.entry for claim in step.claimed] == ready
        for claim in step.claimed:
            del self.waiting[claim.entry.launch.id]
            self.active[claim.entry.launch.id] = claim
        return multiple(*step.claimed)

    @rule(claim=claims)
    def finish(self, claim: Claim) -> None:
        """Also one that was lost, and one that is finished already."""
        run = claim.entry.launch.id
        done = Finish(by=claim.by, fence=claim.fence, record=ended(claim.entry.launch))
        step = self.do(self.queue.step(WORKERS[0], [], 0, [done]))
        if self.active.get(run) == claim:
            del self.active[run]
            self.ended[run] = Outcome.SUCCESS
            self.asked.discard(run)
        assert step.stale == (() if self.ended.get(run) is Outcome.SUCCESS else (run,))

    @rule(claim=consumes(claims))
    def give_back(self, claim: Claim) -> None:
        run = claim.entry.launch.id
        self.do(self.queue.give_back([claim]))
        if self.active.get(run) == claim:
            del self.active[run]
            if run in self.asked:
                self.asked.discard(run)
                self.ended[run] = Outcome.CANCELLED
            else:
                self.waiting[run] = claim.entry

    @rule(number=st.integers(1, 12))
    def cancel(self, number: int) -> None:
        run = f"run-{number:02}"
        answer = self.do(self.queue.cancel(run, Cancelling(reason="r")))
        if run in self.waiting:
            assert answer is CancelAnswer.NEVER_STARTED
            del self.waiting[run]
            self.ended[run] = Outcome.CANCELLED
        elif run in self.active:
            assert answer is CancelAnswer.ASKED
            self.asked.add(run)
        else:
            assert answer is CancelAnswer.UNKNOWN

    @rule()
    def reap(self) -> None:
        reaped = self.do(self.queue.reap(3600.0))
        for run, claim in list(self.active.items()):
            del self.active[run]
            if claim.entry.once or run in self.asked:
                self.ended[run] = Outcome.UNKNOWN
                self.asked.discard(run)
                assert run in {record.launch.id for record in reaped.lost}
            else:
                self.waiting[run] = claim.entry
                assert run in reaped.again

    @rule(by=st.sampled_from(WORKERS))
    def sign_of_life(self, by: NodeIdentity) -> None:
        asked = self.do(self.queue.alive(by))
        assert asked.keys() == {run for run in self.asked if self.active[run].by == by.id}

    @invariant()
    def everything_is_where_it_belongs(self) -> None:
        for run in [f"run-{number:02}" for number in range(1, 13)]:
            found, record = self.do(self.queue.entry(run)), self.do(self.store.get(run))
            assert found == self.waiting.get(run, self.active.get(run))
            assert (record.outcome if record is not None else None) is self.ended.get(run)


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

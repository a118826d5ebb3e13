"""Retries when the end of the daemon comes in between."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec

from sexton.admission.decide import Refusal, Refuse
from sexton.model.clock import Clock, Monotonic
from sexton.model.job import JobSpec, Place
from sexton.model.retry import PendingRetry, RetryPolicy, RetryState
from sexton.run.background import Background
from sexton.run.facilities import Counters
from sexton.run.identity import definition_of
from sexton.run.retries import KEY, Retries
from sexton.store.memory.store import MemoryStore

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
CLOCK = Clock(now=lambda: NOON, monotonic=lambda: Monotonic(0.0))
JOB = JobSpec(name="j", command="false", schedule="0 * * * *", place=Place("t", 1, 1),
              retry=RetryPolicy(maximum_retries=3))


class Ending:
    """A launcher that has begun to shut down since it was asked last."""

    node, shutting_down = "n", False

    def __init__(self) -> None:
        async def settle() -> None:
            pass

        self.asked = asyncio.Event()
        self.background = Background()
        self.facilities = SimpleNamespace(counters=Counters(), supervisors=SimpleNamespace(settle=settle))

    def launch(self, *_: Any, **__: Any) -> Refuse:
        self.asked.set()
        return Refuse(Refusal.SHUTTING_DOWN, "the daemon is shutting down")


async def test_a_retry_that_meets_the_end_is_left_to_the_next_daemon() -> None:
    """It was settled, and then not launched because the end of the daemon had begun meanwhile: it waits again."""
    store = MemoryStore()
    await store.open()
    pending = PendingRetry(attempt=2, not_before=NOON, delay=1.0, occurrence=NOON, began_at=NOON, after="r",
                           definition=definition_of(JOB))
    await store.put_state("j", KEY, msgspec.json.encode(RetryState(pending=pending)).decode())
    launcher = Ending()
    retries = Retries(launcher, store, CLOCK, lambda name: JOB, durable=True, fail_closed=False)  # type: ignore[arg-type]
    await retries.take_up({"j": JOB})
    async with asyncio.timeout(5):
        await launcher.asked.wait()
    await retries.close()
    text = await store.get_state("j", KEY)
    assert text is not None and msgspec.json.decode(text, type=RetryState).pending == pending

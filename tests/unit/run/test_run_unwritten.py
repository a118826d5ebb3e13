"""Records that wait for a store that cannot take them now."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from sexton.model.errors import StoreError
from sexton.model.run import Launch, Outcome, Phase, RunRecord, Trigger
from sexton.run import unwritten as module
from sexton.run.unwritten import Unwritten
from sexton.store.memory.store import MemoryStore

AT = datetime(2026, 3, 1, tzinfo=UTC)


def record(run_id: str, job: str = "j") -> RunRecord:
    launch = Launch(id=run_id, job=job, trigger=Trigger.MANUAL, node="n", created_at=AT)
    return RunRecord(launch=launch, phase=Phase.RECORDED, outcome=Outcome.SUCCESS, finished_at=AT)


class Full(MemoryStore):
    full = True

    async def record(self, record: RunRecord) -> None:
        if self.full:
            raise StoreError("full")
        await super().record(record)


async def test_what_is_refused_waits_and_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused again it goes on waiting; taken it waits no more, and is in the ledger once."""
    monkeypatch.setattr(module, "OFFER_SECONDS", 0.01)
    ledger, waiting = Full(), Unwritten()
    await ledger.open()
    for number in range(3):
        waiting.add(record(f"r{number}"), ledger)
    await asyncio.sleep(0.05)
    assert len(waiting) == 3 and waiting.get("r1") is not None and len(waiting.of("j")) == 3 and not waiting.of("k")
    ledger.full = False
    async with asyncio.timeout(5):
        while len(waiting):
            await asyncio.sleep(0.01)
    assert [run.launch.id for run in (await ledger.history("j", 10)).runs] == ["r0", "r1", "r2"]


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The oldest is lost first, and said."""
    monkeypatch.setattr(module, "LIMIT", 2)
    waiting = Unwritten()
    for number in range(3):
        waiting.add(record(f"r{number}"), Full())
    assert [one.launch.id for one in waiting.of(None)] == ["r1", "r2"] and "r0 is lost" in caplog.text

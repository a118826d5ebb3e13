"""The store in use while a reload puts another in its place: no record is lost between the two."""

from __future__ import annotations

import asyncio
import logging

import pytest
from ledger_samples import launch, recorded, running

from sexton.model.errors import StoreError
from sexton.model.run import Phase, RunRecord
from sexton.store import inuse
from sexton.store.inuse import StoreInUse
from sexton.store.memory import MemoryStore


class Readable(MemoryStore):
    """Can be looked into after its end."""

    async def close(self) -> None:
        self.closed = True


class Gated(Readable):
    """Takes records only when it is let, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()
        self.broken = False

    async def record(self, record: RunRecord) -> None:
        self.asked.set()
        await self.gate.wait()
        if self.broken:
            raise StoreError("gone for good")
        await super().record(record)

    async def put_state(self, job: str, key: str, value: str) -> None:
        self.asked.set()
        await self.gate.wait()
        await super().put_state(job, key, value)


async def moved(old: MemoryStore, living: int) -> tuple[StoreInUse, MemoryStore]:
    """One run lives in the old store while the move is made."""
    store, new = StoreInUse(old), Readable()
    await store.open()
    await new.open()
    await store.intend(launch(living))
    await new.intend(launch(living))
    await new.keep(running(living))
    store.move(new, [launch(living).id])
    return store, new


async def phase_in(store: MemoryStore, number: int) -> Phase | None:
    record = await store.get(launch(number).id)
    return None if record is None else record.phase


async def test_a_run_that_began_before_is_recorded_in_both() -> None:
    """The end of a run that lived through the move is in both stores; one that begins after it is in the new one."""
    old = Readable()
    store, new = await moved(old, 1)
    await store.intend(launch(2))
    await store.record(recorded(1))
    await store.record(recorded(2))
    await store.leave_for_good(old)
    assert old.closed and not hasattr(new, "closed")
    assert [await phase_in(new, number) for number in (1, 2)] == [Phase.RECORDED, Phase.RECORDED]
    assert [await phase_in(old, number) for number in (1, 2)] == [Phase.RECORDED, None]


async def test_a_record_that_is_being_written_lands_in_the_new_store() -> None:
    """The store changes while the old one writes: the record is in both when the caller hears of it."""
    old, new = Gated(), Readable()
    store = StoreInUse(old)
    await store.open()
    await new.open()
    await store.intend(launch(1))
    await new.intend(launch(1))
    writing = asyncio.create_task(store.record(recorded(1)))
    await old.asked.wait()
    store.move(new, [launch(1).id])
    old.gate.set()
    await writing
    assert await phase_in(new, 1) is Phase.RECORDED and await phase_in(old, 1) is Phase.RECORDED


async def test_a_state_that_is_being_written_lands_in_the_new_store() -> None:
    """Likewise a fact about a job."""
    old, new = Gated(), Readable()
    store = StoreInUse(old)
    await store.open()
    await new.open()
    writing = asyncio.create_task(store.put_state("backup", "pause", "until noon"))
    await old.asked.wait()
    store.move(new, [])
    old.gate.set()
    await writing
    assert await new.get_state("backup", "pause") == "until noon"


async def test_nobody_waits_for_a_store_that_was_left(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that hangs or fails holds up no record and not the end; what it will say of the run is told."""
    monkeypatch.setattr(inuse, "OWED_SECONDS", 0.05)
    for broken in (False, True):
        old = Gated()
        old.broken = broken
        if broken:
            old.gate.set()
        store, new = await moved(old, 1)
        with caplog.at_level(logging.WARNING):
            await asyncio.wait_for(store.record(recorded(1)), 1.0)
            await asyncio.wait_for(store.close(), 5.0)
        assert await phase_in(new, 1) is Phase.RECORDED
        assert "whoever opens it next will call it interrupted" in caplog.text
        caplog.clear()

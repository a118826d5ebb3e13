"""Slots when the store is moved: what is held behind, and what is ours again when the daemon comes back."""

from __future__ import annotations

import asyncio

import pytest

from sexton.model.node import NodeIdentity
from sexton.run.slots import Slots, slot_name
from sexton.store.coordination import Granted, Lease
from sexton.store.inuse import StoreInUse
from sexton.store.memory import MemoryStore

HERE, THERE = (NodeIdentity(id=f"{name}#1", name=name, pid=1, pid_started_ticks=1, boot_id="b", pid_namespace=1)
               for name in ("here", "there"))
TTL = 5.0


class Slow(MemoryStore):
    """Releases only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()

    async def release(self, lease: Lease) -> bool:
        await self.gate.wait()
        return await super().release(lease)


async def opened() -> tuple[Slow, Slow, StoreInUse, Slots]:
    a, b = Slow(), Slow()
    await a.open()
    await b.open()
    store = StoreInUse(a)
    return a, b, store, Slots(store, HERE, lambda: TTL)


def come_back(store: StoreInUse, slots: Slots, to: Slow, behind: Slots) -> Slots:
    return slots.move(store.move(to, []), behind)


async def test_there_and_back_is_one_lease() -> None:
    """A slot that was held before has the same fence after, is ours to share, and one release ends it."""
    a, b, store, slots = await opened()
    granted = await slots.claim("j", "run-1")
    assert isinstance(granted, Granted)
    behind = slots.move(store.move(b, []))
    await slots.take_along("j", "run-1")
    other = come_back(store, slots, a, behind)
    held = slots.of("j")
    assert held is not None and held.lease == granted.lease and slots.share("j", "run-2")
    assert [job for job, _ in other.held()] == ["j"] and not behind.held()
    slots.give_back("j", "run-1")
    await asyncio.gather(slots.close(), other.close(), behind.close())
    assert await a.read(slot_name("j")) is not None, "run-2 needs it"
    assert await b.read(slot_name("j")) is None, "in the store that was left only run-1 did"
    slots.give_back("j", "run-2")
    await slots.close()
    assert await a.read(slot_name("j")) is None


@pytest.mark.parametrize("late", [True, False])
async def test_a_release_that_comes_late_frees_no_other_slot(late: bool) -> None:
    """The run ends while its store is left, its slot's release is under way when the daemon comes back, and the next
    run of the job claims: what arrives then does not free the slot of that one."""
    a, b, store, slots = await opened()
    await slots.claim("j", "run-1")
    behind = slots.move(store.move(b, []))
    a.gate.clear()
    slots.give_back("j", "run-1")
    await asyncio.sleep(0)
    come_back(store, slots, a, behind)
    if not late:
        a.gate.set()
        await behind.close()
    claiming = asyncio.create_task(slots.claim("j", "run-2"))
    for _ in range(5):
        await asyncio.sleep(0)
    a.gate.set()
    assert isinstance(await claiming, Granted)
    await behind.close()
    held, there = slots.of("j"), await a.read(slot_name("j"))
    assert held is not None and there is not None and there.by == held.lease
    await slots.close()


async def test_a_claim_that_is_under_way_is_asked_again() -> None:
    """The store changes there and back while a claim waits: what is trusted is what the store in use has said."""
    a, b, store, slots = await opened()
    asked, go_on = asyncio.Event(), asyncio.Event()
    claim, times = a.claim, 0

    async def gated(name: str, by: NodeIdentity, ttl: float, *, heir_of: str | None = None) -> Granted | object:
        nonlocal times
        times += 1
        asked.set()
        await go_on.wait()
        return await claim(name, by, ttl, heir_of=heir_of)

    a.claim = gated  # type: ignore[method-assign,assignment]
    claiming = asyncio.create_task(slots.claim("j", "run-1"))
    await asked.wait()
    behind = slots.move(store.move(b, []))
    come_back(store, slots, a, behind)
    go_on.set()
    assert isinstance(await claiming, Granted) and times == 2
    assert await b.read(slot_name("j")) is None
    await slots.close()

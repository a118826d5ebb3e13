"""The mailbox: order, bounds, one reader."""

from __future__ import annotations

import asyncio

from sexton.model.clock import Monotonic
from sexton.run.mailbox import Mailbox, VictimEnded


def message(number: int) -> VictimEnded:
    return VictimEnded(str(number))


async def test_messages_come_out_in_order() -> None:
    """First in, first out, and none is lost when several arrive before the reader wakes."""
    box = Mailbox()
    for number in range(5):
        box.post(message(number))
    assert [await box.take() for _ in range(5)] == [message(number) for number in range(5)]


async def test_a_waiting_reader_is_woken_by_a_post() -> None:
    """The reader sleeps until something arrives."""
    box = Mailbox()
    reader = asyncio.ensure_future(box.take())
    await asyncio.sleep(0)
    assert not reader.done()
    box.post(message(1))
    box.post(message(2))
    assert await reader == message(1) and await box.take() == message(2)


async def test_a_bound_in_the_past_gives_none_at_once() -> None:
    """No message and no time left: None, without a turn of the loop."""
    box = Mailbox()
    assert await box.take(Monotonic(asyncio.get_running_loop().time() - 1)) is None


async def test_what_has_arrived_goes_before_a_bound_that_has_passed() -> None:
    """An exit that is in the box when the deadline is looked at counts as having come first."""
    box = Mailbox()
    box.post(message(1))
    past = Monotonic(asyncio.get_running_loop().time() - 1)
    assert await box.take(past) == message(1) and await box.take(past) is None


async def test_a_bound_ends_a_wait() -> None:
    """None comes at the bound, not before, and the box still works after it."""
    box = Mailbox()
    loop = asyncio.get_running_loop()
    bound = Monotonic(loop.time() + 0.02)
    assert await box.take(bound) is None and loop.time() >= bound
    box.post(message(1))
    assert await box.take(Monotonic(loop.time() + 10)) == message(1)


async def test_a_cancelled_reader_loses_nothing() -> None:
    """A reader that goes away while waiting leaves the box usable."""
    box = Mailbox()
    reader = asyncio.ensure_future(box.take(Monotonic(asyncio.get_running_loop().time() + 60)))
    await asyncio.sleep(0)
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    box.post(message(1))
    assert await box.take() == message(1)

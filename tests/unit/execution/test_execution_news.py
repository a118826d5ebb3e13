"""News may wait for starts, and never for a decision."""

from __future__ import annotations

import asyncio

from sexton.execution.held import Held
from sexton.execution.messages import Emptied, ExecutionMessage
from sexton.execution.news import News
from sexton.model.clock import Monotonic


class NoKeeper:
    def take_back(self, held: Held) -> None: ...
    def let_go(self, supervisor: object) -> None: ...
    def hear(self) -> None: ...


def parts() -> tuple[News, Held, list[ExecutionMessage]]:
    heard: list[ExecutionMessage] = []
    return News(asyncio.get_running_loop()), Held(NoKeeper(), 1, b"", [], heard.append), heard


MESSAGE = Emptied(Monotonic(1.0), True)


async def test_news_waits_while_runs_wait_to_be_started() -> None:
    """What a run does with its end must not hold up the next start; without starts it is told at once."""
    news, held, heard = parts()
    news.add(held, MESSAGE)
    news.look(starts_wait=True)
    assert heard == []
    news.look(starts_wait=False)
    assert heard == [MESSAGE]


async def test_news_is_told_before_a_decision() -> None:
    """`hear` passes on everything, however much there is."""
    news, held, heard = parts()
    for _ in range(100):
        news.add(held, MESSAGE)
    news.look(starts_wait=True)
    news.hear()
    assert len(heard) == 100


async def test_the_answer_to_an_order_does_not_wait() -> None:
    """Of a run that is being stopped, everything is told at once, also in the middle of a burst."""
    news, held, heard = parts()
    held.ordered = True
    news.add(held, MESSAGE)
    news.look(starts_wait=True)
    assert heard == [MESSAGE]

"""How a run is brought down: graceful step, bounded wait for its own process, forced step always, proof.

The order and the bounds are the binding page's ("Cancellation and killTimeout"); that the forced step reaches every
process of the run, and that the end is proven, is ours.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Protocol

from sexton.execution.messages import KillRefused, Signalled
from sexton.model.clock import Monotonic
from sexton.model.run import Phase

logger = logging.getLogger("sexton.run")

CONFIRM_SECONDS = 10.0
"""How long the proof is waited for before the run counts as ended with survivors (the page's rule)."""
SIGNAL_ANSWER_SECONDS = 5.0
KILL_ANSWER_SECONDS = 5.0
"""A supervisor says soon whom it cannot end; one that is silent for so long cannot act."""

ROUSE_SECONDS = 0.05
"""Between two attempts to set a silent supervisor going."""


class Subject(Protocol):
    """The run, as far as bringing it down is concerned."""

    @property
    def force(self) -> bool: ...
    @property
    def at_once(self) -> bool: ...
    @property
    def signalled(self) -> Signalled | None: ...
    @property
    def kill_refused(self) -> KillRefused | None: ...
    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int | None: ...
    @property
    def kill_timeout(self) -> float: ...
    @property
    def grace_is_for_the_tree(self) -> bool: ...
    @property
    def process_gone(self) -> bool: ...
    @property
    def tree_gone(self) -> bool: ...
    @property
    def supervisor_lost(self) -> bool: ...

    def enter(self, phase: Phase) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def end_supervisor(self) -> None: ...
    def rouse(self) -> None: ...
    def now(self) -> Monotonic: ...
    def until(self, condition: Callable[[], bool], limit: Monotonic | None) -> Awaitable[bool]: ...


async def bring_down(run: Subject) -> None:
    """End the run. Returns when the sequence has finished: the tree is proven gone, or it refuses to go."""
    run.enter(Phase.STOPPING)
    if not run.at_once:
        await _graceful_step(run)
    run.enter(Phase.KILLING)
    await _forced_step(run)


async def _graceful_step(run: Subject) -> None:
    """SIGTERM to the group, then up to killTimeout for the job's own process (or, by killWaitsFor, for all of them); at
    once when that has gone already."""
    asked = run.now()
    run.terminate()
    # The answer that the signal is out (or refused) comes first, so that no forced step is noted before it.
    def answered() -> bool:
        return run.signalled is not None or run.tree_gone or run.supervisor_lost

    await _until_answered(run, answered, SIGNAL_ANSWER_SECONDS)
    if run.kill_timeout > 0:
        since = run.signalled.at if run.signalled is not None else asked
        await run.until(lambda: _gave_in(run) or run.force, Monotonic(since + run.kill_timeout))
    if run.signalled is not None:
        _tell_refusal(run, run.signalled.group_errno, run.signalled.process_errno)
    if _gave_in(run):
        return
    if run.force:
        logger.info("Job %s: the time to end gracefully is cut short by request, killing it...", run.name)
    else:
        logger.info(
            "Job %s did not gracefully terminate after %g seconds, killing it...", run.name, run.kill_timeout
        )


async def _until_answered(run: Subject, answered: Callable[[], bool], seconds: float) -> bool:
    """An order may be waited for in vain, because the run stops its supervisor again and again: so it is set going
    again and again, and does a little each time."""
    limit = run.now() + seconds
    while not await run.until(answered, Monotonic(min(limit, run.now() + ROUSE_SECONDS))):
        if run.now() >= limit:
            return False
        run.rouse()
    return True


def _gave_in(run: Subject) -> bool:
    return run.tree_gone if run.grace_is_for_the_tree else run.process_gone


def _tell_refusal(run: Subject, group: int, process: int) -> None:
    """Of one step: the errnos for the group, and for the own process alone when the group was refused."""
    if group not in (0, errno.ESRCH):
        logger.warning(
            "Job %s: could not signal the process group of pid %s (%s); falling back to signalling that process alone",
            run.name, run.pid, os.strerror(group),
        )
    if process not in (0, errno.ESRCH):
        logger.warning("Job %s: could not signal its process (pid %s): %s", run.name, run.pid, os.strerror(process))


async def _forced_step(run: Subject) -> None:
    """SIGKILL to everything the run is made of, whatever its own process did; then wait for the proof."""
    if not run.tree_gone:
        run.kill()
    run.enter(Phase.CONFIRMING)
    limit = Monotonic(run.now() + CONFIRM_SECONDS)
    def settled_or_slow() -> bool:
        return run.tree_gone or run.kill_refused is not None

    if not await _until_answered(run, settled_or_slow, KILL_ANSWER_SECONDS):
        run.end_supervisor()  # it neither did it nor said why: stopped, or frozen, by its own run
    settled = await run.until(lambda: run.tree_gone or _will_not_die(run.kill_refused), limit)
    if run.tree_gone:
        return
    if run.kill_refused is not None and _will_not_die(run.kill_refused) and not run.process_gone:
        _tell_refusal(run, run.kill_refused.group_errno, run.kill_refused.errno)
    logger.error(
        "Job %s: its processes could not be ended%s", run.name,
        f" ({os.strerror(run.kill_refused.errno)})" if run.kill_refused else "" if settled else " in time",
    )


def _will_not_die(refused: KillRefused | None) -> bool:
    """A refusal is final; a process that has not died yet (ETIMEDOUT) gets the whole bound."""
    return refused is not None and refused.errno != errno.ETIMEDOUT

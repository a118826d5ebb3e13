"""The run as `execution/stop.py` sees it: what it may ask and order while it brings the run down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sexton.execution.messages import KillRefused, Signalled
from sexton.model.clock import Monotonic
from sexton.model.job import KillWaitsFor
from sexton.model.run import Phase, StopCause
from sexton.run.live import Run, Until


class Subject:
    def __init__(self, run: Run, until: Until) -> None:
        self._run = run
        self._until = until

    @property
    def name(self) -> str:
        return self._run.job.name

    @property
    def pid(self) -> int | None:
        return self._run.pid

    @property
    def kill_timeout(self) -> float:
        return self._run.job.kill_timeout

    @property
    def grace_is_for_the_tree(self) -> bool:
        return self._run.job.kill_waits_for is KillWaitsFor.TREE

    @property
    def force(self) -> bool:
        return self._run.force

    @property
    def at_once(self) -> bool:
        """At its memory cap a run is killed whole: no graceful step, no killTimeout."""
        return self._run.stop is not None and self._run.stop.cause is StopCause.LIMITS

    @property
    def signalled(self) -> Signalled | None:
        return self._run.signalled

    @property
    def kill_refused(self) -> KillRefused | None:
        return self._run.kill_refused

    @property
    def process_gone(self) -> bool:
        return self._run.process_gone

    @property
    def tree_gone(self) -> bool:
        return self._run.emptied is not None or self._run.swept

    @property
    def supervisor_lost(self) -> bool:
        """Nobody is there to take an order; the zygote is ending what there was."""
        return self._run.lost

    def enter(self, phase: Phase) -> None:
        self._run.advance(phase)
        if phase is Phase.KILLING:
            self._run.mark_forced()

    def terminate(self) -> None:
        if self._run.held is not None:
            self._run.held.terminate()

    def kill(self) -> None:
        if self._run.held is not None:
            self._run.held.kill()

    def end_supervisor(self) -> None:
        if self._run.held is not None:
            self._run.held.end_supervisor()

    def rouse(self) -> None:
        if self._run.held is not None:
            self._run.held.rouse()

    def now(self) -> Monotonic:
        return self._run.clock.monotonic()

    def until(self, condition: Callable[[], bool], limit: Monotonic | None) -> Awaitable[bool]:
        return self._until(self._run, condition, limit)

"""Runs that are made ready before their instant, when many are due at once.

Deciding, claiming and writing the intents of a thousand runs takes longer than it takes to start them. What needs no
knowledge of the instant itself is done just before it; the gate opens when it has come. A job of which a run is there
already is left out: what its overlap policy says is decided at the instant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime

from sexton.daemon.jobs import JobEntry, Jobs
from sexton.execution.gate import Gate
from sexton.execution.supervisors import Supervisors
from sexton.model.run import StopCause
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.schedule.agenda import Agenda, Due

BREATH = 16
"""Launches between two looks of the event loop at everything else, so that the first are not held up by the last."""


class Ahead:
    def __init__(self, agenda: Agenda, jobs: Jobs, launcher: Launcher, supervisors: Supervisors,
                 may_be_ready: Callable[[JobEntry], bool] = lambda entry: True) -> None:
        """`may_be_ready` says of which jobs nothing but their overlap is to be decided at the instant."""
        self._may_be_ready = may_be_ready
        self._agenda = agenda
        self._jobs = jobs
        self._launcher = launcher
        self._supervisors = supervisors
        self._gate = Gate()
        self._ready: dict[Due, Run] = {}
        self._begun: dict[Due, Run] = {}
        self._instant: datetime | None = None

    async def make_ready(self, instant: datetime) -> None:
        """Claim a run for each job that is due at `instant` and of which none is running. Once for an instant."""
        if instant == self._instant:
            return
        self._drop(self._ready)
        self._gate, self._instant, self._ready = Gate(), instant, {}
        self._agenda.foresee(instant)
        for number, due in enumerate(self._agenda.due_at(instant), 1):
            entry = self._jobs.get(due.job)
            run = None
            if entry is not None and self._may_be_ready(entry):
                run = self._launcher.launch_ahead(entry.spec, instant, self._gate)
            if run is not None:
                self._ready[due] = run
            if number % BREATH == 0:
                await asyncio.sleep(0)

    async def look_again(self) -> None:
        """After a reload or when the clock was set: give up what will not be due at the instant after all."""
        gone = {due: run for due, run in self._ready.items() if not self._still_due(due, run)}
        if gone:
            self._drop(gone)
            await asyncio.sleep(0)  # they leave the gate before it opens
        if not self._ready:
            self._instant = None

    def _still_due(self, due: Due, run: Run) -> bool:
        entry = self._jobs.get(due.job)
        same = entry is not None and entry.spec == run.job and self._may_be_ready(entry)
        return same and self._agenda.next_of(due.job) == due.scheduled_for

    def open(self, now: datetime) -> None:
        """If the instant has come, start what is ready for it."""
        if self._instant is None or now < self._instant or self._gate.open:
            return
        self._supervisors.open_gate(self._gate)
        self._begun, self._ready = self._ready, {}

    def has_begun(self, due: Due) -> bool:
        """Whether this occurrence has its run. One that was stopped before its instant has not: it is decided anew."""
        run = self._begun.pop(due, None)
        return run is not None and run.stop is None

    def _drop(self, runs: dict[Due, Run]) -> None:
        reason = "not started: its job or the clock was changed just before its instant"
        for due, run in list(runs.items()):
            self._ready.pop(due, None)
            run.mailbox.post(StopRequested(StopCause.CANCEL, reason=reason))

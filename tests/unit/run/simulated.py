"""The life of one run with a clock that nobody waits for: `conduct` is real, processes and pipes are a script.

`World.after` says what will happen when; waiting moves the clock to the next of those things, or to the bound.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sexton.execution.messages import (
    Emptied,
    Exited,
    KillRefused,
    Signalled,
    Started,
    StartFailed,
    Stream,
    SupervisorLost,
    Swept,
)
from sexton.model.clock import Clock, Monotonic
from sexton.model.job import ConcurrencyPolicy, JobSpec, Place, WhenUnconfirmed
from sexton.model.run import Containment, Launch, OutputFacts, RunRecord, StopCause, Trigger, Usage
from sexton.run import conduct as conduct_module
from sexton.run.conduct import conduct
from sexton.run.facilities import Facilities
from sexton.run.live import Run
from sexton.run.mailbox import Message, StopRequested
from sexton.run.registry import Registry

BEGIN = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
PID = 4242
USAGE = Usage(cpu_user_seconds=0.0, cpu_system_seconds=0.0, max_rss_bytes=0)


def job(**options: Any) -> JobSpec:
    options.setdefault("capture_stderr", False)
    options.setdefault("when_unconfirmed", WhenUnconfirmed.RELEASE)  # the rule of the page
    return JobSpec(name="j", command="true", schedule="@daily", place=Place("jobs.yaml", 1, 1), **options)


def launch(name: str = "j", run_id: str = "run-1") -> Launch:
    return Launch(id=run_id, job=name, trigger=Trigger.MANUAL, node="here", created_at=BEGIN)


class Pipes:
    """The captured streams: which are open, and who closed them when."""

    log = None

    def __init__(self, world: World, *streams: Stream) -> None:
        self._world = world
        self.open_streams = list(streams)
        self.closed_by_us: list[tuple[float, Stream]] = []

    def eof(self, *streams: Stream) -> None:
        for stream in streams or tuple(self.open_streams):
            self.open_streams = [s for s in self.open_streams if s is not stream]

    def close(self, stream: Stream) -> None:
        assert stream in self.open_streams
        self.closed_by_us.append((self._world.time, stream))
        self.eof(stream)

    def catch_up(self) -> None:
        """What was not read yet is read."""
        if self._world.unread:
            self.eof()

    def wrote(self, stream: Stream) -> bool:
        return False

    def facts(self) -> OutputFacts:
        return OutputFacts()


class Process:
    """The supervisor's side: how the scripted process answers the two steps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.orders: list[tuple[float, str]] = []
        self.dies_of_term_after: float | None = 0.01
        self.dies_of_kill_after: float | None = 0.01
        self.group_errno = self.process_errno = self.kill_errno = 0
        self.over = False
        self.under_way: list[Message] = []

    def withdraw(self) -> bool:
        return not self._world.start_asked_supervisor

    def hear(self) -> None:
        """Tell what is under way; what the process says otherwise reaches the run at once."""
        for message in self.under_way:
            self._world.run.learn(message)
        self.under_way = []

    def terminate(self) -> None:
        world = self._world
        self.orders.append((world.time, "TERM"))
        world.after(0.001, lambda: Signalled(world.now, self.group_errno, self.process_errno))
        if self.dies_of_term_after is not None and world.run.exited is None:
            world.after(self.dies_of_term_after, lambda: self.exit(signal.SIGTERM))

    def kill(self) -> None:
        world = self._world
        self.orders.append((world.time, "KILL"))
        if self.kill_errno:
            world.after(0.001, lambda: KillRefused(world.now, self.kill_errno, PID))
        elif self.dies_of_kill_after is not None:
            world.after(self.dies_of_kill_after, lambda: self.exit(signal.SIGKILL))
            world.after(self.dies_of_kill_after, lambda: Emptied(world.now, True))

    def rouse(self) -> None:
        """To a supervisor that runs this is nothing."""

    def end_supervisor(self) -> None:
        self.orders.append((self._world.time, "END"))
        self._world.after(0.01, lambda: SupervisorLost(self._world.now))
        self._world.after(0.02, lambda: Swept(self._world.now))

    def exit(self, status: int) -> Exited | None:
        """A wait status: a signal number, or an exit code times 256. The second end of a process is none."""
        if self.over:
            return None
        self.over = True
        return Exited(int(status), self._world.now, USAGE)

    def release(self) -> None:
        self.orders.append((self._world.time, "RELEASE"))

    def left_behind(self) -> tuple[()]:
        return ()


@dataclass
class World:
    """Clock, script and the run."""

    monkeypatch: pytest.MonkeyPatch
    time: float = 1000.0
    start_asked_supervisor: bool = True
    records: list[RunRecord] = field(default_factory=list)
    recorded_at: float | None = None
    intents: int = 0

    def __post_init__(self) -> None:
        self._script: list[tuple[float, int, Callable[[], Any]]] = []
        self._count = itertools.count()
        self._began = self.time
        self.clock = Clock(
            now=lambda: BEGIN + timedelta(seconds=self.time - self._began), monotonic=lambda: Monotonic(self.time)
        )
        self.process = Process(self)
        self.pipes: Pipes | None = None
        self.unread = False
        """The end of the output is in the pipes, and nobody has read so far."""
        self.starts = True
        self.start_heard_late = 0.0

    # ---------------------------------------------------------------- script

    @property
    def now(self) -> Monotonic:
        return Monotonic(self.time)

    def since_start(self, at: float | None) -> float:
        assert at is not None
        return round(at - self._began, 3)

    def after(self, seconds: float, happens: Callable[[], Any]) -> None:
        """Script: what `happens` returns, if anything, is a message for the run."""
        heapq.heappush(self._script, (self.time + seconds, next(self._count), happens))

    def exits(self, seconds: float, code: int = 0, *, empty: bool = True) -> None:
        """The own process ends by itself; with `empty` nothing else of the run is left."""
        self.after(seconds, lambda: self.process.exit(code << 8))
        if empty:
            self.after(seconds, lambda: Emptied(self.now, True))

    def eof(self, seconds: float, *streams: Stream) -> None:
        self.after(seconds, lambda: self.pipes.eof(*streams) if self.pipes else None)

    def stop(self, seconds: float, cause: StopCause = StopCause.CANCEL, *, force: bool = False) -> None:
        self.after(seconds, lambda: StopRequested(cause, force=force))

    # ---------------------------------------------------------------- life

    async def until(self, run: Run, condition: Callable[[], bool], limit: Monotonic | None = None) -> bool:
        while not condition():
            if not self._script or (limit is not None and self._script[0][0] > limit):
                assert limit is not None, "waits for ever: nothing more is scripted"
                self.time = max(self.time, float(limit))
                return False
            at, _, happens = heapq.heappop(self._script)
            self.time = max(self.time, at)
            message = happens()
            if message is not None:
                run.learn(message)
        return True

    def _submit(self, run: Run, _: Facilities) -> None:
        run.held = self.process  # type: ignore[assignment]
        streams = [Stream.STDOUT] * run.job.capture_stdout + [Stream.STDERR] * run.job.capture_stderr
        if streams:
            self.pipes = Pipes(self, *streams)
            run.capture = self.pipes  # type: ignore[assignment]
        if self.starts:
            began = self.now
            heard = self.time + self.start_heard_late
            heapq.heappush(self._script, (heard, -1, lambda: Started(PID, began, Containment.SUPERVISOR)))
        elif self.start_asked_supervisor:
            heapq.heappush(self._script, (self.time, -1, lambda: StartFailed(2, "cannot execute", self.now)))

    async def _intend(self, _: Launch) -> None:
        self.intents += 1

    async def _record(self, record: RunRecord) -> None:
        self.records.append(record)
        self.recorded_at = self.time

    async def live(self, spec: JobSpec, victims: frozenset[str] = frozenset()) -> RunRecord:
        """The whole life of one run of the job; its record."""
        self.monkeypatch.setattr(conduct_module, "_until", self.until)
        self.monkeypatch.setattr(conduct_module, "_submit", self._submit)
        ledger = SimpleNamespace(
            intend=self._intend, record=self._record, capabilities=SimpleNamespace(durable=False)
        )
        self.run = Run(spec, launch(spec.name), self.clock, victims)
        registry = Registry()
        registry.add(self.run)
        daemon = Facilities(
            ledger=ledger, supervisors=None, registry=registry, clock=self.clock, mirror=None,  # type: ignore[arg-type]
            output_files=None, on_recorded=lambda run, record: None,
        )
        await conduct(self.run, daemon)
        assert daemon.counters.internal_errors == 0
        assert len(registry) == 0 and self.run.recorded.is_set() and self.run.freed.is_set()
        assert len(self.records) == 1 or spec.when_unconfirmed is WhenUnconfirmed.HOLD
        return self.records[0]

    @property
    def ended(self) -> float:
        return self.since_start(self.run.ended_mono)

    @property
    def recorded(self) -> float:
        return self.since_start(self.recorded_at)


def lines(caplog: pytest.LogCaptureFixture, part: str, level: int | None = None) -> list[str]:
    """Log lines with the part, of exactly that level when one is given."""
    return [r.getMessage() for r in caplog.records if part in r.getMessage() and level in (None, r.levelno)]


NOT_GRACEFUL = "did not gracefully terminate after"
HELD = "did not reach end-of-file within 30.0 seconds of the job being killed"
EXCEEDED = "exceeded its executionTimeout of"
WARNING = logging.WARNING
REPLACE = ConcurrencyPolicy.REPLACE

"""The jobs this daemon has now, with what it remembers of each: last runs, totals, skips."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from sexton.daemon.measures import DURATION_BOUNDS, Histogram
from sexton.execution.capture import CUT_MARK
from sexton.model.job import JobSpec
from sexton.model.run import EXIT_NOT_STARTED, Outcome, RunRecord, StopCause
from sexton.store.port import JobHistory, ended_at

REMEMBERED_RUNS = 20
KEPT_LINES_BYTES = 64 * 1024
SHOWN_LINES = 1000
CHECK_PREFIX = "verify."
"""Before the names of the streams of a check (`verify`) among the lines of its run."""


class Skip:
    """The latest launch of a job that did not happen."""

    __slots__ = ("at", "reason", "scheduled_for")

    def __init__(self, at: datetime, reason: str, scheduled_for: datetime | None) -> None:
        self.at, self.reason, self.scheduled_for = at, reason, scheduled_for


class Figures:
    """Counted by this process, for the metrics."""

    __slots__ = ("cpu_system", "cpu_user", "durations", "last_ended", "peak_rss", "start_failures", "stops")

    def __init__(self) -> None:
        self.stops: dict[StopCause, int] = {}
        self.start_failures = 0
        self.cpu_user = self.cpu_system = 0.0
        self.peak_rss = 0
        self.durations: Histogram | None = None
        """None before the first run: most jobs of a large configuration run seldom."""
        self.last_ended: dict[Outcome, datetime] = {}

    def add(self, record: RunRecord) -> None:
        if record.stop is not None:
            self.stops[record.stop.cause] = self.stops.get(record.stop.cause, 0) + 1
        self.start_failures += record.exit_code == EXIT_NOT_STARTED and record.pid is None
        if record.usage is not None:
            self.cpu_user += record.usage.cpu_user_seconds
            self.cpu_system += record.usage.cpu_system_seconds
            self.peak_rss = max(self.peak_rss, record.usage.max_rss_bytes)
        if record.duration is not None:
            if self.durations is None:
                self.durations = Histogram(DURATION_BOUNDS)
            self.durations.add(record.duration)
        if record.outcome is not None and record.finished_at is not None:
            self.last_ended[record.outcome] = record.finished_at


class JobEntry:
    """One job and what has become of its runs in this process (and, with a store, before)."""

    __slots__ = (
        "figures", "final_failures", "last_lines", "last_skip", "left_behind", "memory_exceeded", "recent", "skipped",
        "spec", "timeouts", "totals", "unconfirmed",
    )

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.figures = Figures()
        self.recent: deque[RunRecord] = deque(maxlen=REMEMBERED_RUNS)
        self.totals: dict[Outcome, int] = dict.fromkeys(Outcome, 0)
        """Runs recorded by this process: a counter that only rises."""
        self.timeouts = 0
        self.final_failures = 0
        """Failures that no further attempt follows."""
        self.unconfirmed = 0
        """Runs that we stopped and whose end could not be proven."""
        self.left_behind = 0
        """Processes that runs which ended by themselves left behind."""
        self.memory_exceeded = 0
        """Runs that reached their memory cap."""
        self.skipped = 0
        self.last_skip: Skip | None = None
        self.last_lines: tuple[tuple[str, str], ...] = ()
        """The end of the last run's captured output, (stream, line); see `keep_lines`."""

    def keep_lines(self, lines: Sequence[tuple[str, str]]) -> None:
        """Keep the last lines within KEPT_LINES_BYTES: what the log view shows when nothing runs. The line that the
        bound runs through is cut, not lost."""
        room, kept = KEPT_LINES_BYTES, []
        for stream, line in reversed(lines):
            if len(line) >= room:
                kept.append((stream, line[:room] + CUT_MARK))
                break
            room -= len(line) + 1
            kept.append((stream, line))
        self.last_lines = tuple(reversed(kept))

    def recall(self, history: JobHistory) -> None:
        if self.recent:
            self.merge(history)  # a run that was taken over has ended meanwhile, and may be in both
        else:
            self.recent.extend(history.runs)

    def merge(self, history: JobHistory) -> None:
        """What the store knows by now, of runs on other nodes too; what it does not know yet stays."""
        runs = {record.launch.id: record for record in (*self.recent, *history.runs)}
        newest = sorted(runs.values(), key=ended_at)[-REMEMBERED_RUNS:]
        self.recent = deque(newest, maxlen=REMEMBERED_RUNS)

    def remember(self, record: RunRecord) -> None:
        self.recent.append(record)
        self.figures.add(record)
        if record.outcome is not None:
            self.totals[record.outcome] += 1
        self.memory_exceeded += record.limits is not None and record.limits.memory_exceeded
        if record.stop is not None:
            self.timeouts += record.stop.cause is StopCause.TIMEOUT
            self.unconfirmed += record.stop.confirmed_at is None
        elif record.gone is not None:
            self.left_behind += len(record.gone.survivors)

    def amend(self, record: RunRecord) -> None:
        """A record that was written anew takes the place of the former one."""
        for place, known in enumerate(self.recent):
            if known.launch.id == record.launch.id:
                self.recent[place] = record

    def skip(self, at: datetime, reason: str, scheduled_for: datetime | None, count: int = 1) -> None:
        self.skipped += count
        self.last_skip = Skip(at, reason, scheduled_for)

    @property
    def last_run(self) -> RunRecord | None:
        """The run that ended last (ties: recorded later), whatever the order of recording was."""
        return _last(tuple(self.recent))  # a copy: a scrape looks from a thread of its own

    @property
    def last_launched(self) -> RunRecord | None:
        """As `last_run`, without those that were skipped: they have done nothing that could have failed."""
        return _last([record for record in self.recent if record.outcome is not Outcome.SKIPPED])


def _last(records: Iterable[RunRecord]) -> RunRecord | None:
    last: RunRecord | None = None
    for record in records:
        if record.finished_at is not None and (last is None or last.finished_at is None
                                               or record.finished_at >= last.finished_at):
            last = record
    return last


class Jobs:
    def __init__(self) -> None:
        self._entries: dict[str, JobEntry] = {}
        self.version = 0
        """Grows when a job is added, changed or removed."""

    def put(self, spec: JobSpec) -> JobEntry:
        """Add a job or give it a new definition; what is remembered of it stays."""
        self.version += 1
        entry = self._entries.get(spec.name)
        if entry is None:
            entry = self._entries[spec.name] = JobEntry(spec)
        else:
            entry.spec = spec
        return entry

    def remove(self, name: str) -> None:
        self.version += 1
        self._entries.pop(name, None)

    def merge(self, histories: Mapping[str, JobHistory]) -> None:
        """As `recall`, for jobs that are known already."""
        for name, history in histories.items():
            if (entry := self._entries.get(name)) is not None:
                entry.merge(history)

    def recall(self, histories: Mapping[str, JobHistory]) -> None:
        for name, history in histories.items():
            if (entry := self._entries.get(name)) is not None:
                entry.recall(history)

    def get(self, name: str) -> JobEntry | None:
        return self._entries.get(name)

    def spec_of(self, name: str) -> JobSpec | None:
        entry = self._entries.get(name)
        return None if entry is None else entry.spec

    def by_name(self) -> dict[str, JobSpec]:
        return {name: entry.spec for name, entry in self._entries.items()}

    def specs(self) -> list[JobSpec]:
        return [entry.spec for entry in self._entries.values()]

    def __iter__(self) -> Iterator[JobEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

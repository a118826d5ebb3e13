"""What the daemon does about each thing that happens to a run: history, figures, reports, retries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sexton.daemon.jobs import CHECK_PREFIX, SHOWN_LINES, Jobs
from sexton.daemon.measures import Measures
from sexton.daemon.reporting import Reporting
from sexton.daemon.statsd import Statsd, start_lines, stop_lines
from sexton.model.clock import Clock
from sexton.model.job import RunOn
from sexton.model.run import Outcome, RunRecord
from sexton.outcome.retry import Fate
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.run.retries import Retries


class Aftermath:
    """`launcher` and `retries` are given later: they need what needs this."""

    launcher: Launcher
    retries: Retries

    def __init__(self, jobs: Jobs, reporting: Reporting, measures: Measures, statsd: Statsd, clock: Clock) -> None:
        self._jobs = jobs
        self._reporting = reporting
        self._measures = measures
        self._statsd = statsd
        self._clock = clock
        self.on_declined: Callable[[str, datetime | None], None] = lambda job, scheduled_for: None
        """Told of an occurrence that was this node's to fire, and that it refused."""

    def remember(self, record: RunRecord) -> None:
        if (entry := self._jobs.get(record.launch.job)) is not None:
            entry.remember(record)
            if record.outcome is Outcome.SKIPPED:
                entry.skip(self._clock.now(), record.fail_reason or "", record.launch.scheduled_for)

    def recorded(self, run: Run, record: RunRecord) -> None:
        fate = self.retries.recorded(run, record)
        self._reporting.on_recorded(run, record, permanent=fate is Fate.FINAL)
        self._measures.recorded(record, run.job.jitter)
        if (where := run.job.statsd) is not None:
            self._statsd.send(where, stop_lines(where.prefix, record))
        self.remember(record)
        if (entry := self._jobs.get(run.job.name)) is not None:
            entry.final_failures += fate is Fate.FINAL
            entry.keep_lines(_last_lines(run))

    def started(self, run: Run) -> None:
        if (where := run.job.statsd) is not None:
            self._statsd.send(where, start_lines(where.prefix))

    def amended(self, run: Run, record: RunRecord) -> None:
        self._measures.proven(record)
        if (entry := self._jobs.get(run.job.name)) is not None:
            entry.amend(record)

    def refused(self, run: Run) -> None:
        self.launcher.refused_count += 1
        self.retries.refused(run)
        if run.refusal is not None and (entry := self._jobs.get(run.job.name)) is not None:
            entry.skip(self._clock.now(), run.refusal.message, run.launch.scheduled_for)
        if run.job.run_on is RunOn.ONE_NODE:
            self.on_declined(run.job.name, run.launch.scheduled_for)


def _last_lines(run: Run) -> list[tuple[str, str]]:
    """What the log view shows of it when nothing runs: its own lines, then those of its check."""
    found: list[tuple[str, str]] = []
    for part, prefix in ((run, ""), (run.check, CHECK_PREFIX)):
        if part is not None and part.capture is not None:
            found += [(prefix + stream.value, line) for stream, line in part.capture.saved()[-SHOWN_LINES:]]
    return found

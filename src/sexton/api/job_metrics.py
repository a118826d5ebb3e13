"""Metrics of single jobs by the reference daemon's names, beside those of `metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from sexton.daemon.control import Control
from sexton.daemon.jobs import JobEntry
from sexton.daemon.measures import DURATION_BOUNDS, Histogram
from sexton.model.run import Outcome, RunRecord, StopCause
from sexton.outcome.reporters.facts import schedule_text

NAME = ["job_name"]
NOTHING = Histogram(DURATION_BOUNDS)


def _gauge(name: str, help_text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sexton_job_{name}", help_text, labels=NAME)


def job_figures(control: Control) -> Iterator[Metric]:
    """What is known of each job and of its last run."""
    info = InfoMetricFamily("sexton_job", "The job's definition", labels=NAME)
    enabled = _gauge("enabled", "0 for a job that is never due")
    paused = _gauge("paused", "1 while scheduled launches are held back")
    upcoming = _gauge("next_run_timestamp_seconds", "The next occurrence")
    entries = list(control.jobs)
    for entry in entries:
        spec, name = entry.spec, [entry.spec.name]
        info.add_metric(name, {"schedule": schedule_text(spec.schedule), "policy": spec.concurrency_policy.value})
        enabled.add_metric(name, float(spec.enabled))
        paused.add_metric(name, float(control.pauses.of(spec.name) is not None))
        if (at := control.next_fire(spec.name)) is not None:
            upcoming.add_metric(name, at.timestamp())
    yield from (info, enabled, paused, upcoming, *_counted(entries), *_last_runs(entries))


def _counted(entries: list[JobEntry]) -> Iterator[Metric]:
    stops = CounterMetricFamily("sexton_job_stops", "Runs that were ended by the daemon, by cause",
                                labels=["job_name", "cause"])
    unstarted = CounterMetricFamily("sexton_job_start_failures", "Runs that could not be started", labels=NAME)
    cpu = CounterMetricFamily("sexton_job_cpu_seconds", "CPU time of all runs", labels=["job_name", "mode"])
    peak = _gauge("peak_rss_bytes", "Largest resident memory of any run")
    durations = HistogramMetricFamily("sexton_job_duration_seconds", "How long runs took", labels=NAME)
    for entry in entries:
        name, figures = entry.spec.name, entry.figures
        for cause in StopCause:
            stops.add_metric([name, cause.value], figures.stops.get(cause, 0))
        unstarted.add_metric([name], figures.start_failures)
        cpu.add_metric([name, "user"], figures.cpu_user)
        cpu.add_metric([name, "system"], figures.cpu_system)
        if figures.peak_rss:
            peak.add_metric([name], figures.peak_rss)
        histogram = figures.durations or NOTHING
        durations.add_metric([name], histogram.cumulated(), histogram.total)
    yield from (stops, unstarted, cpu, peak, durations)


def _last_runs(entries: list[JobEntry]) -> Iterator[Metric]:
    at = _gauge("last_run_timestamp_seconds", "When the last run ended")
    duration = _gauge("last_run_duration_seconds", "How long it took")
    code = _gauge("last_run_exit_code", "Its exit code; -100 for a timeout, 127 when it was not started")
    success = _gauge("last_run_success", "1 for a success")
    good = _gauge("last_success_timestamp_seconds", "When the last success ended")
    bad = _gauge("last_failure_timestamp_seconds", "When the last failure ended")
    for entry in entries:
        name = [entry.spec.name]
        for family, outcome in ((good, Outcome.SUCCESS), (bad, Outcome.FAILURE)):
            if (ended := _latest(entry, outcome)) is not None:
                family.add_metric(name, ended.timestamp())
        last = entry.last_run
        if last is None or last.finished_at is None:
            continue
        at.add_metric(name, last.finished_at.timestamp())
        success.add_metric(name, float(last.outcome is Outcome.SUCCESS))
        _add(duration, name, last.duration)
        _add(code, name, last.exit_code)
    yield from (at, duration, code, success, good, bad)


def _add(family: GaugeMetricFamily, name: list[str], value: float | None) -> None:
    if value is not None:
        family.add_metric(name, value)


def _latest(entry: JobEntry, outcome: Outcome) -> datetime | None:
    """Of this process, or of what the store remembered."""
    ended = entry.figures.last_ended.get(outcome)
    remembered: list[RunRecord] = [record for record in tuple(entry.recent) if record.outcome is outcome]
    found = [record.finished_at for record in remembered if record.finished_at is not None]
    return max([*found, *([ended] if ended is not None else [])], default=None)


def daemon_figures(control: Control) -> Iterator[Metric]:
    """Of the daemon: starts, stops, reports."""
    info = InfoMetricFamily("sexton", "The daemon", value={"version": control.version, "node": control.node})
    yield info
    yield GaugeMetricFamily("sexton_start_time_seconds", "When the daemon started",
                            value=control.started_at.timestamp())
    specs = control.jobs.specs()
    states = GaugeMetricFamily("sexton_jobs", "Jobs by state", labels=["state"])
    states.add_metric(["enabled"], sum(spec.enabled for spec in specs))
    states.add_metric(["disabled"], sum(not spec.enabled for spec in specs))
    states.add_metric(["paused"], sum(control.pauses.of(spec.name) is not None for spec in specs))
    yield states
    late = HistogramMetricFamily("sexton_start_lateness_seconds", "From the due instant to the process")
    late.add_metric([], control.measures.lateness.cumulated(), control.measures.lateness.total)
    proof = HistogramMetricFamily("sexton_stop_to_proof_seconds", "From the request to stop a run to the proof that "
                                  "nothing of it is left", labels=["cause"])
    for cause, histogram in control.measures.proof.items():
        proof.add_metric([cause.value], histogram.cumulated(), histogram.total)
    yield from (late, proof, *_reports(control))


def _reports(control: Control) -> Iterator[Metric]:
    health = control.reports()
    done = CounterMetricFamily("sexton_reports", "Reports by what became of them", labels=["channel", "result"])
    retried = CounterMetricFamily("sexton_report_retries", "Attempts beyond the first", labels=["channel"])
    for channel, counts in health.channels.items():
        for result in ("delivered", "failed", "dropped"):
            done.add_metric([channel, result], getattr(counts, result))
        retried.add_metric([channel], counts.retried)
    yield from (done, retried)
    yield GaugeMetricFamily("sexton_reports_waiting", "Reports that wait", value=health.waiting)
    yield GaugeMetricFamily("sexton_reports_in_flight", "Reports under way", value=health.in_flight)
    yield GaugeMetricFamily("sexton_report_destinations_failing", "Destinations whose latest delivery failed",
                            value=health.failing_count)
    yield CounterMetricFamily("sexton_statsd_dropped", "Datagrams that could not be sent",
                              value=control.statsd_dropped())
    yield CounterMetricFamily("sexton_log_lines_dropped", "Lines of the log that nobody read",
                              value=control.logs_dropped())
    yield CounterMetricFamily("sexton_log_lines_suppressed", "Lines of the log that only repeated others",
                              value=control.logs_suppressed())

"""Prometheus metrics, made at the moment of the scrape from what the daemon counts anyway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sexton.api.job_metrics import daemon_figures, job_figures
from sexton.api.node_metrics import node_figures
from sexton.api.pool_metrics import pool_metrics
from sexton.api.pools import PoolView, pool_view
from sexton.api.state_metrics import state_figures
from sexton.api.use import resources_of
from sexton.daemon.control import Control
from sexton.model.run import Outcome
from sexton.model.sla import SlaCheck

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Living(NamedTuple):
    """Runs by job: those that have not ended, and those that could not be terminated. And the pools."""

    running: Counter[str]
    unconfirmed: Counter[str]
    pools: list[PoolView]


class _Collector:
    def __init__(self, control: Control, living: Living) -> None:
        self._control = control
        self._living = living

    def collect(self) -> Iterator[Metric]:
        health = self._control.health()
        yield GaugeMetricFamily("sexton_config_last_reload_successful", "1 when the last load was taken up",
                                value=float(health.last_reload.ok))
        yield GaugeMetricFamily("sexton_config_last_reload_success_timestamp_seconds", "When one was last taken up",
                                value=self._control.reloader.last_success.timestamp())
        yield CounterMetricFamily("sexton_config_reload_failures", "Loads that were refused",
                                  value=health.reload_failures)
        yield CounterMetricFamily("sexton_store_failures", "Writes that the store refused", value=health.store_failures)
        yield CounterMetricFamily("sexton_internal_errors", "Bugs of the daemon that cost a run, not the daemon",
                                  value=health.internal_errors)
        yield GaugeMetricFamily("sexton_store_ok", "0 while the store takes no records",
                                value=float(health.store_problem is None))
        yield GaugeMetricFamily("sexton_unwritten_records", "Records that wait for the store",
                                value=health.unwritten_records)
        yield GaugeMetricFamily("sexton_stores_left", "Stores that a reload has left and that are owed something",
                                value=len(health.stores_left))
        yield CounterMetricFamily("sexton_untold_ends", "Ends of runs that a store that was left could not be told",
                                  value=health.ends_untold)
        yield GaugeMetricFamily("sexton_api_connections", "Open connections to the API", value=health.connections.open)
        yield CounterMetricFamily("sexton_api_connections_closed_idle", "Idle ones closed for new ones",
                                  value=health.connections.closed_idle)
        yield CounterMetricFamily("sexton_api_connections_refused", "Connections turned away, or not accepted",
                                  value=health.connections.turned_away + health.connections.not_accepted)
        yield CounterMetricFamily("sexton_mirror_dropped_bytes", "Captured output not repeated: nobody read ours",
                                  value=health.mirror_dropped_bytes)
        yield from state_figures(self._control.ledger)
        yield from node_figures(self._control)
        yield from daemon_figures(self._control)
        yield from job_figures(self._control)
        yield from pool_metrics(self._living.pools)
        yield from self._jobs()

    def _jobs(self) -> Iterator[Metric]:
        runs = CounterMetricFamily("sexton_job_runs", "Recorded runs by outcome", labels=["job_name", "status"])
        timeouts = CounterMetricFamily("sexton_job_timeouts", "Runs ended by executionTimeout", labels=["job_name"])
        unconfirmed = CounterMetricFamily(
            "sexton_job_unconfirmed_terminations", "Stopped runs of which something may be left", labels=["job_name"]
        )
        retries = CounterMetricFamily("sexton_job_retries", "Retries launched", labels=["job_name"])
        final = CounterMetricFamily("sexton_job_permanent_failures", "Failures that no further attempt follows",
                                    labels=["job_name"])
        paused = GaugeMetricFamily("sexton_job_paused", "1 while the job is paused", labels=["job_name"])
        late = GaugeMetricFamily("sexton_job_late", "1 while a promise of `sla` is broken",
                                 labels=["job_name", "check"])
        breaches = CounterMetricFamily("sexton_job_sla_breaches", "Breaches of `sla` that have begun",
                                       labels=["job_name", "check"])
        kept = GaugeMetricFamily("sexton_job_unconfirmed", "Runs that could not be terminated and keep their place",
                                 labels=["job_name"])
        left = CounterMetricFamily("sexton_job_processes_left", "Left behind by runs that ended by themselves",
                                   labels=["job_name"])
        skipped = CounterMetricFamily("sexton_job_skipped", "Launches that did not happen", labels=["job_name"])
        running = GaugeMetricFamily("sexton_job_running", "Runs that have not ended", labels=["job_name"])
        for entry in list(self._control.jobs):
            name = entry.spec.name
            for outcome in Outcome:
                runs.add_metric([name, outcome.value], entry.totals[outcome])
            timeouts.add_metric([name], entry.timeouts)
            unconfirmed.add_metric([name], entry.unconfirmed)
            skipped.add_metric([name], entry.skipped)
            running.add_metric([name], self._living.running[name])
            kept.add_metric([name], self._living.unconfirmed[name])
            left.add_metric([name], entry.left_behind)
            if entry.spec.sla is not None:
                now = {breach.check for breach in self._control.sla.of(name)}
                for check in SlaCheck:
                    late.add_metric([name, check.value], float(check in now))
                    breaches.add_metric([name, check.value], self._control.sla.count.get((name, check), 0))
            paused.add_metric([name], float(self._control.pauses.of(name) is not None))
            retries.add_metric([name], self._control.retries.count.get(name, 0))
            final.add_metric([name], entry.final_failures)
        yield from (late, breaches, retries, final, paused, runs, timeouts, unconfirmed, kept, left, skipped, running)
        yield from self._limits()

    def _limits(self) -> Iterator[Metric]:
        exceeded = CounterMetricFamily(
            "sexton_job_memory_limit_exceeded", "Runs that reached their memory cap", labels=["job_name"])
        enforced = GaugeMetricFamily(
            "sexton_job_last_run_limits_enforced", "1 when a cgroup held the last run to all its caps",
            labels=["job_name"])
        cpu = GaugeMetricFamily("sexton_job_last_run_cpu_seconds", "CPU time of the last run", labels=["job_name"])
        rss = GaugeMetricFamily("sexton_job_last_run_max_rss_bytes", "Largest resident memory of the last run",
                                labels=["job_name"])
        caps = {
            "cpu": GaugeMetricFamily("sexton_job_cpu_limit_cpus", "CPUs that a run may use", labels=["job_name"]),
            "memory": GaugeMetricFamily(
                "sexton_job_memory_limit_bytes", "Memory that a run may use", labels=["job_name"]),
            "processes": GaugeMetricFamily(
                "sexton_job_process_limit", "Processes and threads that a run may have", labels=["job_name"]),
        }
        for entry in list(self._control.jobs):
            name, limits, last = [entry.spec.name], entry.spec.resource_limits, entry.last_run
            exceeded.add_metric(name, entry.memory_exceeded)
            for cap, family in caps.items():
                if limits is not None and (value := getattr(limits, cap)) is not None:
                    family.add_metric(name, value)
            if last is not None and last.limits is not None:
                enforced.add_metric(name, float(last.limits.enforced))
            if last is not None and (used := resources_of(last)) is not None:
                cpu.add_metric(name, used.cpu_seconds)
                rss.add_metric(name, used.max_rss_bytes)
        yield from (exceeded, enforced, cpu, rss, *caps.values())


def count_living(control: Control) -> Living:
    """To be done on the event loop: the registry changes under a thread that walks it."""
    return Living(
        Counter(run.job.name for run in control.registry if run.counts_as_running),
        Counter(run.job.name for run in control.registry if run.unconfirmed),
        [pool_view(pool) for pool in control.pools],
    )


def render(control: Control, living: Living) -> bytes:
    """The exposition text. Takes no lock and changes nothing, so a worker thread may do it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(control, living))
    return generate_latest(registry)

"""Metrics of slots and nodes; those that the reference daemon has carry its names."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sexton.daemon.control import Control
from sexton.model.job import ConcurrencyScope


def node_figures(control: Control) -> Iterator[Metric]:
    fleet, facilities = control.fleet, control.launcher.facilities
    seen = fleet.seen()
    silent = sum(fleet.is_silent(one) for one in seen)
    nodes = GaugeMetricFamily("sexton_nodes", "Nodes at the last look", labels=["state"])
    nodes.add_metric(["alive"], max(1, len(seen) - silent))
    nodes.add_metric(["silent"], silent)
    yield nodes
    yield GaugeMetricFamily("sexton_nodes_seen", "0 while the other nodes cannot be seen",
                            value=float(fleet.problem is None))
    own = next((one for one in seen if one.facts.identity.id == fleet.me.id), None)
    yield GaugeMetricFamily("sexton_node_clock_offset_seconds", "How far this clock is ahead of the store's",
                            value=own.clock_offset if own is not None else 0.0)
    yield CounterMetricFamily("sexton_fires_elsewhere", "Occurrences of one-node jobs that other nodes fired",
                              value=fleet.one_fire.fired_elsewhere if fleet.one_fire is not None else 0)
    yield CounterMetricFamily("sexton_fires_unanswered", "Claims of occurrences that the store did not answer",
                              value=fleet.one_fire.unanswered if fleet.one_fire is not None else 0)
    yield CounterMetricFamily("sexton_slots_unanswered", "Claims of slots that the store did not answer",
                              value=facilities.counters.slots_unanswered)
    slots = facilities.slots
    if slots is None:
        return
    yield CounterMetricFamily("sexton_slots_lost", "Slots that another node took over while runs lived here",
                              value=slots.lost)
    yield CounterMetricFamily("sexton_slots_taken_over", "Slots won from nodes that had fallen silent",
                              value=slots.takeovers)
    yield CounterMetricFamily("sexton_slot_renewals_failed", "Renewals that the store did not answer",
                              value=slots.renewals_failed)
    held = GaugeMetricFamily("sexton_job_slot_held", "1 while this node holds the job's slot", labels=["job_name"])
    for entry in list(control.jobs):
        if entry.spec.concurrency_scope is ConcurrencyScope.CLUSTER:
            held.add_metric([entry.spec.name], float(slots.of(entry.spec.name) is not None))
    yield held

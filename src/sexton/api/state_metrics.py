"""Metrics of the store: what it is, what it has done, and how long that took."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, InfoMetricFamily, Metric, SummaryMetricFamily

from sexton.store.port import Counted, Ledger

KIND = ["op"]


def state_figures(ledger: Ledger) -> Iterator[Metric]:
    """A store in memory has an info and no figures: what it does takes no time and cannot fail."""
    told = {"durable": str(ledger.capabilities.durable).lower(), "shared": str(ledger.capabilities.shared).lower()}
    yield InfoMetricFamily("sexton_state", "The store", value=told)
    if not isinstance(ledger, Counted):
        return
    done = CounterMetricFamily("sexton_state_ops", "Reads and writes of the store", labels=KIND)
    failed = CounterMetricFamily("sexton_state_op_errors", "Reads and writes that have failed", labels=KIND)
    seconds = SummaryMetricFamily("sexton_state_op_seconds", "How long the rounds to the disk took", labels=KIND)
    for kind, operations in ledger.operations.items():
        done.add_metric([kind], operations.done)
        failed.add_metric([kind], operations.failed)
        seconds.add_metric([kind], operations.rounds, operations.seconds)
    yield from (done, failed, seconds)
    yield CounterMetricFamily("sexton_state_dropped_writes", "Notes on live runs that were lost",
                              value=ledger.lost_notes)

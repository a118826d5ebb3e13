"""Metrics of pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sexton.api.pools import PoolView


def pool_metrics(pools: Iterable[PoolView]) -> Iterator[Metric]:
    by = ["pool_name"]
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
        "slots": GaugeMetricFamily("sexton_pool_slots", "Slots that the pool has", labels=by),
        "inUse": GaugeMetricFamily("sexton_pool_slots_in_use", "Slots that runs hold", labels=by),
        "queued": GaugeMetricFamily("sexton_pool_queued", "Runs that wait for slots", labels=by),
        "admitted": CounterMetricFamily("sexton_pool_admitted", "Runs that got their slots", labels=by),
        "waitedSeconds": CounterMetricFamily("sexton_pool_waited_seconds", "Waited by the admitted runs", labels=by),
        "refused": CounterMetricFamily("sexton_pool_refused", "Launches that found the queue full", labels=by),
        "expired": CounterMetricFamily("sexton_pool_expired", "Runs that waited too long", labels=by),
    }
    for pool in pools:
        for field, family in families.items():
            family.add_metric([pool.name], getattr(pool, field))
    yield from families.values()

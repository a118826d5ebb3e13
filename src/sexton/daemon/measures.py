"""Figures that are counted as things happen, for the metrics: cheap to add to, read from another thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from sexton.model.run import RunRecord, StopCause, Trigger

DURATION_BOUNDS = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
LATENESS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0)
PROOF_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0)


class Histogram:
    """How often a value was at most each bound, and beyond the last."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulated(self) -> list[tuple[str, float]]:
        """Pairs of bound and count, as Prometheus has them."""
        counts, below, pairs = tuple(self.counts), 0, []
        for bound, count in zip((*self.bounds, None), counts, strict=True):
            below += count
            pairs.append(("+Inf" if bound is None else f"{bound:g}", float(below)))
        return pairs


class Measures:
    """Of the daemon as a whole."""

    def __init__(self) -> None:
        self.lateness = Histogram(LATENESS_BOUNDS)
        self.proof = {cause: Histogram(PROOF_BOUNDS) for cause in StopCause}

    def recorded(self, record: RunRecord, jitter: float) -> None:
        launch = record.launch
        on_time = launch.trigger is Trigger.SCHEDULE and launch.attempt == 1 and not jitter and not record.adopted
        if on_time and launch.scheduled_for is not None and record.started_at is not None:
            due = max(launch.scheduled_for, record.admitted_at or launch.scheduled_for)  # a wait for a pool is not ours
            self.lateness.add(max(0.0, (record.started_at - due).total_seconds()))
        self.proven(record)

    def proven(self, record: RunRecord) -> None:
        """To be told of each record of a stopped run that carries the proof, once."""
        stop = record.stop
        if stop is not None and stop.confirmed_at is not None:
            self.proof[stop.cause].add(max(0.0, (stop.confirmed_at - stop.requested_at).total_seconds()))

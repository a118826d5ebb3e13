"""Samples by table, metric, contestant and round; medians and paired ratios; the tables."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

BARE = "bare"
WORST = "(worst)"
"""At the end of a metric's name: its largest value counts, because what was lost once was lost."""

Rounds = dict[str, float]
"""By round. The names are text, so that samples are the same before and after a way through JSON."""
Table = dict[str, dict[str, Rounds]]
Samples = dict[str, Table]


def add(samples: Samples, title: str, who: str, number: int, metrics: Mapping[str, float]) -> None:
    for metric, value in metrics.items():
        samples.setdefault(title, {}).setdefault(metric, {}).setdefault(who, {})[str(number)] = value


def percentile(values: Sequence[float], share: float) -> float:
    """Between the two nearest ranks, in proportion."""
    ranked = sorted(values)
    place = (len(ranked) - 1) * share / 100
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (ranked[high] - ranked[low]) * (place - low)


def spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum in milliseconds."""
    return {
        f"{name} p50 ms": percentile(seconds, 50) * 1000,
        f"{name} p99 ms": percentile(seconds, 99) * 1000,
        f"{name} max ms": max(seconds) * 1000,
    }


def ratio(mine: Rounds, other: Rounds) -> float | None:
    """The median of the ratios of the rounds that both have: what disturbs a round disturbs both sides."""
    pairs = [mine[number] / other[number] for number in mine if other.get(number)]
    return statistics.median(pairs) if pairs else None


def shown(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 1000 or value == 0 else f"{value:.3g}"


def typical(metric: str, rounds: Rounds) -> float:
    return max(rounds.values()) if metric.endswith(WORST) else statistics.median(rounds.values())


def cell(metric: str, rounds: Rounds | None, first: Rounds | None, bare: Rounds | None) -> str:
    if not rounds:
        return "-"
    notes = [
        f"x{shown(found)} {name}"
        for name, other in (("first", first), (BARE, bare))
        if other and (found := ratio(rounds, other)) is not None
    ]
    return shown(typical(metric, rounds)) + (f" ({', '.join(notes)})" if notes else "")


def rendered(samples: Samples, names: Sequence[str]) -> str:
    """A Markdown table for each title. `first` is the first daemon named."""
    lines: list[str] = []
    for title, table in samples.items():
        count = max(len(rounds) for by_name in table.values() for rounds in by_name.values())
        lines += ["", f"### {title} ({count} round{'s' if count > 1 else ''})", ""]
        lines += ["| " + " | ".join(["metric", BARE, *names]) + " |", "|" + " --- |" * (len(names) + 2)]
        for metric, by_name in table.items():
            bare, first = by_name.get(BARE), by_name.get(names[0])
            row = [metric, cell(metric, bare, None, None)]
            others = [None, *([first] * (len(names) - 1))]
            pairs = zip(names, others, strict=True)
            row += [cell(metric, by_name.get(name), other, bare) for name, other in pairs]
            lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)

"""What runs use and may use, as the API shows it: of one record, of a job's live runs, of many records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sexton.model.limits import ResourceLimits
from sexton.model.run import RunRecord
from sexton.run.live import Run


class Resources(msgspec.Struct, kw_only=True):
    """What a run used: `scope` tells of which processes."""

    scope: str
    cpu_seconds: float
    cpu_user_seconds: float
    cpu_system_seconds: float
    max_rss_bytes: int
    peak_memory_bytes: int | None = None
    max_processes: int | None = None
    looks: int | None = None


def resources_of(record: RunRecord) -> Resources | None:
    """Of a monitored run all its processes together, else the own process and the children that it waited for."""
    tree, usage = record.tree, record.usage
    if tree is not None:
        return Resources(
            scope="tree", cpu_seconds=round(tree.cpu_user_seconds + tree.cpu_system_seconds, 6),
            cpu_user_seconds=tree.cpu_user_seconds, cpu_system_seconds=tree.cpu_system_seconds,
            max_rss_bytes=tree.max_rss_bytes, peak_memory_bytes=tree.peak_memory_bytes,
            max_processes=tree.max_processes, looks=tree.looks,
        )
    if usage is None:
        return None
    return Resources(
        scope="process", cpu_seconds=round(usage.cpu_user_seconds + usage.cpu_system_seconds, 6),
        cpu_user_seconds=usage.cpu_user_seconds, cpu_system_seconds=usage.cpu_system_seconds,
        max_rss_bytes=usage.max_rss_bytes,
    )


class Caps(msgspec.Struct, kw_only=True):
    """The limits of a job, as configured."""

    cpu: float | None
    memory_bytes: int | None
    processes: int | None
    required: bool


def caps_of(limits: ResourceLimits | None) -> Caps | None:
    if limits is None:
        return None
    return Caps(
        cpu=limits.cpu, memory_bytes=limits.memory, processes=limits.processes, required=limits.required
    )


class RunningResources(msgspec.Struct, kw_only=True):
    """The latest looks at a job's monitored runs, added up."""

    cpu_percent: float
    cpu_seconds: float
    rss_bytes: int
    processes: int
    instances: int


def running_resources(live: Sequence[Run]) -> RunningResources | None:
    looks = [run.monitored.looks[-1] for run in live if run.monitored is not None and run.monitored.looks]
    if not looks:
        return None
    return RunningResources(
        cpu_percent=round(sum(look.cpu_percent for look in looks), 1),
        cpu_seconds=round(sum(look.cpu_seconds for look in looks), 6), rss_bytes=sum(look.rss_bytes for look in looks),
        processes=sum(look.processes for look in looks), instances=len(looks),
    )


def use_stats(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Over the runs of one answer of which it is known, oldest first."""
    known = [found for record in runs if (found := resources_of(record)) is not None]
    cpu, rss = [found.cpu_seconds for found in known], [found.max_rss_bytes for found in known]
    return {
        "avg_cpu_seconds": round(sum(cpu) / len(cpu), 6) if cpu else None, "max_cpu_seconds": max(cpu, default=None),
        "last_cpu_seconds": cpu[-1] if cpu else None, "avg_rss_bytes": sum(rss) // len(rss) if rss else None,
        "max_rss_bytes": max(rss, default=None), "last_rss_bytes": rss[-1] if rss else None,
    }

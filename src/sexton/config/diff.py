"""What a reload changes: two sets of jobs compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sexton.model.job import JobSpec


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is defined otherwise than before."""

    before: JobSpec
    after: JobSpec
    schedule_changed: bool
    """Whether it may be due at other instants; if not, its next occurrence stays what it was."""


class JobDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of each job, by name. `unchanged` holds the new specs: their place may have moved."""

    added: tuple[JobSpec, ...] = ()
    changed: tuple[JobChange, ...] = ()
    removed: tuple[JobSpec, ...] = ()
    unchanged: tuple[JobSpec, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def diff_jobs(before: Iterable[JobSpec], after: Iterable[JobSpec]) -> JobDiff:
    """Decide what a new set of jobs changes. A job is the same if all but its place in the files is equal."""
    old = {job.name: job for job in before}
    added: list[JobSpec] = []
    changed: list[JobChange] = []
    unchanged: list[JobSpec] = []
    for job in after:
        previous = old.pop(job.name, None)
        if previous is None:
            added.append(job)
        elif previous == job or msgspec.structs.replace(previous, place=job.place) == job:
            unchanged.append(job)
        else:
            other = _due(previous) != _due(job)
            changed.append(JobChange(before=previous, after=job, schedule_changed=other))
    return JobDiff(
        added=tuple(added), changed=tuple(changed), removed=tuple(old.values()), unchanged=tuple(unchanged)
    )


def _due(job: JobSpec) -> tuple[object, ...]:
    """All that decides when a job is due; a disabled job never is."""
    return (job.schedule, job.timezone, job.utc, job.day_rule, job.enabled)

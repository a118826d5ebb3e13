"""What a reload changes: two sets of jobs compared. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sexton.model.job import JobSpec


class JobDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of each job, by name. `changed` and `unchanged` hold the new specs: of the latter the place may have
    moved."""

    added: tuple[JobSpec, ...] = ()
    changed: tuple[JobSpec, ...] = ()
    removed: tuple[JobSpec, ...] = ()
    unchanged: tuple[JobSpec, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def diff_jobs(before: Iterable[JobSpec], after: Iterable[JobSpec]) -> JobDiff:
    """Decide what a new set of jobs changes. A job is the same if all but its place in the files is equal."""
    old = {job.name: job for job in before}
    added: list[JobSpec] = []
    changed: list[JobSpec] = []
    unchanged: list[JobSpec] = []
    for job in after:
        previous = old.pop(job.name, None)
        if previous is None:
            added.append(job)
        elif previous == job or msgspec.structs.replace(previous, place=job.place) == job:
            unchanged.append(job)
        else:
            changed.append(job)
    return JobDiff(
        added=tuple(added), changed=tuple(changed), removed=tuple(old.values()), unchanged=tuple(unchanged)
    )

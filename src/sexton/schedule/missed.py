"""Which occurrences are owed after a time in which nobody fired them. Pure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from sexton.model.job import OnMissed
from sexton.model.pause import Pause
from sexton.schedule.occurrences import Occurrences

MOST = 100
"""Occurrences that are made up for: the newest."""
LOOKED_AT = 1000
"""How many are looked through: an every-second job that was away for a year must not hold up the start."""


class Owed(msgspec.Struct, frozen=True):
    """The occurrences to make up for, oldest first, and how many were given up."""

    occurrences: tuple[datetime, ...] = ()
    given_up: int = 0
    exact: bool = True
    """Whether `given_up` counts all of them."""


def owed_since(
    schedule: Occurrences, since: datetime, now: datetime, policy: OnMissed, deadline: float | None,
    pause: Pause | None = None, interrupted: Collection[datetime] = (), done: Collection[datetime] = (),
) -> Owed:
    """Decide what of (`since`, `now`] is owed, without what is `done`. `interrupted` are occurrences whose run was seen
    to begin and not to end: they are owed, too. What is older than `deadline` seconds, or lies in a pause, is not;
    run-once owes the newest alone."""
    if policy is OnMissed.SKIP:
        return Owed()
    missed, exact = _newest(schedule, since, now)
    oldest = None if deadline is None else now - timedelta(seconds=deadline)
    candidates = sorted(({*missed} - {*done}) | {*interrupted})
    wanted = [at for at in candidates if pause is None or not pause.since <= at < pause.until]
    in_time = [at for at in wanted if oldest is None or at >= oldest]
    kept = in_time[-1:] if policy is OnMissed.RUN_ONCE else in_time[-MOST:]
    once = policy is OnMissed.RUN_ONCE and bool(kept)
    return Owed(tuple(kept), 0 if once else len(wanted) - len(kept), exact)


def _newest(schedule: Occurrences, since: datetime, now: datetime) -> tuple[list[datetime], bool]:
    """The occurrences of (`since`, `now`], the newest of them if there are very many; whether that is all."""
    found: list[datetime] = []
    at = schedule.previous(now + timedelta(microseconds=1))
    while at is not None and at > since:
        if len(found) >= LOOKED_AT:
            return found, False
        found.append(at)
        at = schedule.previous(at)
    return found, True

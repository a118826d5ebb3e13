"""The place of a run that was stopped and could not be proven gone: kept, and watched, until it is or is abandoned."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from sexton.execution.messages import Emptied
from sexton.model.clock import Monotonic
from sexton.model.run import Survivor
from sexton.run.live import Run, Until

logger = logging.getLogger("sexton.run")

LOOK_SECONDS = 1.0
"""Between two looks at what no supervisor will tell: who else is in the run's cgroup."""


async def keep_place(run: Run, until: Until) -> None:
    """Wait for the proof, which a supervisor that still holds the run gives by itself, or for `abandon`."""
    if run.unconfirmed:
        _tell(run)
    while run.unconfirmed:
        limit = Monotonic(run.clock.monotonic() + LOOK_SECONDS)
        if not await until(run, lambda: not run.unconfirmed, limit):
            _look(run)
    if run.abandoned is not None:
        by = f" by {run.abandoned.requested_by}" if run.abandoned.requested_by else ""
        why = f": {run.abandoned.reason}" if run.abandoned.reason else ""
        logger.warning("Job %s: run %s is abandoned%s%s", run.job.name, run.id, by, why)
        return
    logger.info("Job %s: run %s, which could not be terminated, is gone", run.job.name, run.id)
    if run.stop is not None:
        run.stop = replace(run.stop, confirmed_at=run.clock.now())


def _tell(run: Run) -> None:
    logger.error(
        "Job %s: run %s could not be terminated and keeps its place (whenUnconfirmed: hold) until it is gone or "
        "abandoned: %s", run.job.name, run.id, ", ".join(map(describe, run.left)) or "nobody knows what is left of it",
    )


def _look(run: Run) -> None:
    """The supervisor has none of it any more, and somebody else was in its cgroup: has that one left, too?"""
    run.left = run.survivors()
    if run.emptied is not None and not run.left:
        run.learn(Emptied(run.clock.monotonic(), True))


def describe(survivor: Survivor) -> str:
    """For people: `pid 12 (uid 0, state D in request_wait_answer)`."""
    facts = [f"uid {survivor.uid}"] if survivor.uid is not None else []
    if survivor.state is not None:
        facts.append(f"state {survivor.state}" + (f" in {survivor.wchan}" if survivor.wchan else ""))
    return f"pid {survivor.pid}" + (f" ({', '.join(facts)})" if facts else "")

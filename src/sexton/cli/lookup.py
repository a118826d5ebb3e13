"""From what a person typed to the job or run that is meant, and watching a run."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable

from sexton.cli.answers import JobAnswer, JobName, RunAnswer
from sexton.cli.client import Client, decoded, route
from sexton.cli.failures import NotFound

FIRST_LOOK, LAST_LOOK, GROWTH = 0.03, 1.0, 1.4
"""Seconds between two looks at a run: soon at first, then ever less often."""
_RUN_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_run_id(text: str) -> bool:
    return _RUN_ID.fullmatch(text) is not None


def get_run(client: Client, run: str) -> RunAnswer:
    """Raises NotFound."""
    return decoded(client.get(route("runs", run)), RunAnswer)


def get_job(client: Client, name: str, *rest: str, query: dict[str, object] | None = None) -> bytes:
    """The answer of a route below a job. Raises NotFound, with the name that was probably meant."""
    try:
        return client.get(route("jobs", name, *rest), query)
    except NotFound:
        raise unknown_job(name, job_names(client)) from None


def job_of(client: Client, name: str) -> JobAnswer:
    """Raises NotFound."""
    return decoded(get_job(client, name), JobAnswer)


def job_names(client: Client) -> list[str]:
    return [job.name for job in decoded(client.get("/jobs"), list[JobName])]


def unknown_job(name: str, known: Iterable[str]) -> NotFound:
    """The failure for a name that no job has, with a suggestion where one is close."""
    from difflib import get_close_matches

    folded = {each.casefold(): each for each in known}
    close = get_close_matches(name.casefold(), folded, n=1)
    others = "`sexton jobs` lists them" if folded else "there are no jobs"
    hint = f"did you mean {folded[close[0]]!r}?" if close else others
    return NotFound(f"no job is named {name!r}", hint)


def watch(client: Client, run: str, done: Callable[[RunAnswer], bool], seconds: float) -> RunAnswer:
    """Look at a run until it is `done`, or `seconds` (infinity: no limit) have passed."""
    end = time.monotonic() + seconds
    pause = FIRST_LOOK
    while True:
        found = get_run(client, run)
        left = end - time.monotonic()
        if done(found) or left <= 0:
            return found
        time.sleep(min(pause, left))
        pause = min(pause * GROWTH, LAST_LOOK)

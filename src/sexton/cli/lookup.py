"""From what a person typed to the job or run that is meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sexton.cli.answers import JobAnswer, JobName, RunAnswer
from sexton.cli.client import Client, decoded, route
from sexton.cli.failures import NotFound

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

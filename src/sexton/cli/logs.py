"""`sexton logs`: the output of a run, or of a job's runs as they come."""

from __future__ import annotations

import codecs
import math
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator

import msgspec

from sexton.cli.answers import RunAnswer, RunsAnswer
from sexton.cli.client import Client, decoded, route
from sexton.cli.exits import Exit
from sexton.cli.failures import NotFound
from sexton.cli.lookup import get_run, is_run_id, job_of, watch
from sexton.cli.story import is_recorded
from sexton.cli.terminal import Cell, Screen, Tone, visible_lines
from sexton.cli.times import instant
from sexton.model.run import Phase

LOOK_SECONDS = 0.5
"""Between two looks for a new run of a job that is followed."""
PAGE = 100


class _Line(msgspec.Struct, frozen=True):
    line: str


def logs(options: Namespace, client: Client, screen: Screen) -> int:
    """Output on a terminal is made harmless; into a pipe or a file it goes byte for byte."""
    if is_run_id(options.what):
        run = get_run(client, options.what)
        _copy(_output(client, run, follow=options.follow), screen)
        return Exit.OK
    job = job_of(client, options.what)
    last = job.runs[-1] if job.runs else job.last_run.id if job.last_run else None
    if options.follow:
        _follow_job(client, job.name, last, screen)
    if last is None:
        screen.line(Cell("The job has not run yet.", Tone.FAINT))
        return Exit.OK
    _copy(_output(client, get_run(client, last), follow=False), screen)
    return Exit.OK


def _follow_job(client: Client, job: str, last: str | None, screen: Screen) -> None:
    """The running or last run, then every later one, until the reader or the daemon goes away."""
    waiting = [get_run(client, last)] if last is not None else []
    seen = ""
    while True:
        for run in waiting:
            at = f", started {instant(run.started_at)}" if run.started_at else ""
            screen.line(Cell(f"==> run {run.id} of {run.job}{at} <==", Tone.HEAD))
            _copy(_output(client, run, follow=True), screen)
            seen = max(seen, run.id)
        if not waiting:
            time.sleep(LOOK_SECONDS)
        waiting = _later(client, job, seen)


def _later(client: Client, job: str, seen: str) -> list[RunAnswer]:
    """Runs newer than the one seen last, oldest first: their ids are in the order of time."""
    found = decoded(client.get("/runs", {"job": job, "limit": PAGE}), RunsAnswer).runs
    return [run for run in reversed(found) if run.id > seen]


def _output(client: Client, run: RunAnswer, *, follow: bool) -> Iterator[bytes]:
    """The run's whole output. Without a store only the end of a job's last run is kept, in memory."""
    if follow and not _has_begun(run):  # it waits for the run that it replaces
        run = watch(client, run.id, _has_begun, math.inf)
    try:
        yield from client.stream(route("runs", run.id, "log"), {"follow": "1"} if follow else None)
    except NotFound:
        job = job_of(client, run.job)
        if not is_recorded(run) or job.running or job.last_run is None or job.last_run.id != run.id:
            raise
        yield from event_lines(client.stream(route("jobs", run.job, "logs")))


def _has_begun(run: RunAnswer) -> bool:
    return run.phase not in (Phase.QUEUED, Phase.CLAIMED, Phase.STARTING)


def event_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that a stream of server-sent events carries."""
    kind, rest = b"", b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"event: "):
                kind = line.removeprefix(b"event: ")
            elif line.startswith(b"data: ") and kind == b"line":
                yield (
                    decoded(line.removeprefix(b"data: "), _Line).line.encode("utf-8", "surrogatepass") + b"\n"
                )


def _copy(pieces: Iterable[bytes], screen: Screen) -> None:
    if not screen.terminal:
        for piece in pieces:
            screen.raw(piece)
        return
    for text in harmless(pieces):
        screen.raw(text.encode("utf-8", "backslashreplace"))


def harmless(pieces: Iterable[bytes]) -> Iterator[str]:
    """Output as text that a terminal does not act on; what is not UTF-8 is written out."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for piece in pieces:
        yield visible_lines(decoder.decode(piece))
    yield visible_lines(decoder.decode(b"", final=True))

"""`sexton start`, `cancel`, `abandon`, `pause`, `resume`: what makes a run, what ends one, and what holds them up."""

from __future__ import annotations

import os
import socket
import time
from argparse import Namespace

from sexton.cli.answers import PauseAnswer, RunAnswer, Started
from sexton.cli.client import Client, decoded, route
from sexton.cli.exits import Exit
from sexton.cli.failures import NotFound, Refused
from sexton.cli.lookup import get_run, is_run_id, job_names, job_of, unknown_job, watch
from sexton.cli.story import ending, has_ended, is_proven_gone, is_recorded, proof, state_of, succeeded, told_of
from sexton.cli.terminal import Cell, Screen, complain
from sexton.cli.times import instant, span

RECORD_SECONDS = 2.0
"""How long after a cancelled run's end its record is waited for; held output may keep it open much longer."""


def who() -> str:
    """Who runs this command, as `user@host`: what the record says when nobody says otherwise."""
    import getpass

    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def start(options: Namespace, client: Client, screen: Screen) -> int:
    """Print the run's id; with `--wait`, its end too, and then exit status 0 only for a success."""
    try:
        raw = client.post(route("jobs", options.job, "start"), {"requested_by": options.by or who()})
    except NotFound:
        raise unknown_job(options.job, job_names(client)) from None
    answer = decoded(raw, Started)
    waits = options.wait is not None
    if not options.json:
        screen.line(answer.run)
    elif not waits:
        screen.json(raw)
    if answer.waits_for:
        complain(f"it starts when the run it replaces has ended: {', '.join(answer.waits_for)}")
    if answer.holder is not None:
        complain(f"it starts when {answer.holder} gives up the slot of the job; `sexton show {answer.run}` tells")
    if not waits:
        return Exit.OK
    run = watch(client, answer.run, is_recorded, options.wait)
    if options.json:
        screen.json(client.get(route("runs", run.id)))
    if not is_recorded(run):
        complain(f"run {run.id} is {run.phase.value} after {span(options.wait)}; it goes on")
        return Exit.FAILED
    if not options.json:
        screen.line(Cell(ending(run), state_of(run).tone))
    return Exit.OK if succeeded(run) else Exit.FAILED


def cancel(options: Namespace, client: Client, screen: Screen) -> int:
    """Stop one run, or every run of a job; say what was proven. Exit status 0 only if all of it is gone for
    certain (with `--wait 0`: if it was asked for)."""
    body = {"reason": options.reason, "requested_by": options.by or who(), "force": options.force}
    whole_job, names = _targets(client, options.what, queued=options.queued)
    asked = [run for run in names if _ask(client, run, body, tolerant=len(names) > 1)]
    if not asked:
        raise Refused(f"job {options.what!r} is not running")
    end = time.monotonic() + options.wait
    runs = [_end_of(client, run, end - time.monotonic()) for run in asked]
    if options.json:
        pieces = [client.get(route("runs", run.id)) for run in runs]
        screen.json(b"[" + b",".join(pieces) + b"]" if whole_job else pieces[0])
    else:
        for run in runs:
            _tell(run, screen)
    if options.wait == 0:
        return Exit.OK
    return Exit.OK if all(has_ended(run) and is_proven_gone(run) for run in runs) else Exit.FAILED


def pause(options: Namespace, client: Client, screen: Screen) -> int:
    """Hold a job; it goes on by itself when the time is over."""
    body: dict[str, object] = {"note": options.note, "by": options.by or who()}
    if options.seconds is not None:
        body["durationSeconds"] = options.seconds
    raw = _of_job(client, options.job, "pause", body)
    if options.json:
        screen.json(raw)
        return Exit.OK
    held = decoded(raw, PauseAnswer).paused
    if held is not None:
        screen.line(f"job {options.job} is paused until {instant(held.until)}")
    return Exit.OK


def resume(options: Namespace, client: Client, screen: Screen) -> int:
    """End the pause of a job, if there is one."""
    raw = _of_job(client, options.job, "resume", {"by": options.by or who()})
    if options.json:
        screen.json(raw)
    else:
        screen.line(f"job {options.job} is not paused")
    return Exit.OK


def _of_job(client: Client, job: str, what: str, body: dict[str, object]) -> bytes:
    try:
        return client.post(route("jobs", job, what), body)
    except NotFound:
        raise unknown_job(job, job_names(client)) from None


def abandon(options: Namespace, client: Client, screen: Screen) -> int:
    """Give up the place of one run; what is left of it is shown, because it lives on."""
    body = {"reason": options.reason, "requested_by": options.by or who()}
    run = get_run(client, options.run)
    raw = client.post(route("runs", run.id, "abandon"), body)
    if options.json:
        screen.json(raw)
    else:
        screen.line(f"run {run.id} is abandoned; job {run.job} can run again")
        _tell_survivors(decoded(raw, RunAnswer), screen)
    return Exit.OK


def _targets(client: Client, what: str, *, queued: bool) -> tuple[bool, list[str]]:
    """Whether a job is meant, and the ids of the runs to stop. Raises NotFound, Refused."""
    if is_run_id(what):
        return False, [get_run(client, what).id]
    job = job_of(client, what)
    runs = [*(job.queued if queued else ()), *job.runs]
    if not runs:
        waiting = f"; {len(job.queued)} run(s) of it wait for their pool (--queued)" if job.queued else ""
        raise Refused(f"job {what!r} is not running{waiting}")
    return True, runs


def _ask(client: Client, run: str, body: dict[str, object], *, tolerant: bool) -> bool:
    """Ask a run to stop. One of several may have ended in the meantime: False."""
    try:
        client.post(route("runs", run, "cancel"), body)
    except Refused:
        if tolerant:
            return False
        raise
    return True


def _end_of(client: Client, run: str, seconds: float) -> RunAnswer:
    found = watch(client, run, has_ended, seconds)
    if has_ended(found) and not is_recorded(found):
        return watch(client, run, is_recorded, RECORD_SECONDS)
    return found


def _tell(run: RunAnswer, screen: Screen) -> None:
    if not has_ended(run):
        screen.line(f"run {run.id}: asked to stop, now ", state_of(run))
        return
    found = proof(run)
    screen.line(f"run {run.id}: ", Cell(ending(run), state_of(run).tone))
    screen.line("  gone: ", found)
    _tell_survivors(run, screen)


def _tell_survivors(run: RunAnswer, screen: Screen) -> None:
    for survivor in run.gone.survivors if run.gone else ():
        screen.line(f"  survivor: {told_of(survivor)}")

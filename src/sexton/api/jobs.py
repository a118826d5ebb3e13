"""Routes below /jobs, and /status."""

from __future__ import annotations

from datetime import datetime, timedelta

from aiohttp import web

from sexton.admission.decide import Refusal, Refuse
from sexton.api.bodies import CancelBody, PauseBody, ResumeBody, StartBody
from sexton.api.logs import job_logs
from sexton.api.routes import (
    BODY_PROBLEMS,
    Answer,
    Media,
    Parameter,
    Refused,
    Route,
    answer,
    control_of,
    integer_parameter,
    problem,
    read_body,
    whole,
)
from sexton.api.slots import slot_view
from sexton.api.use import running_resources
from sexton.api.views import (
    Cancelled,
    Fire,
    Fires,
    JobFacts,
    JobRuns,
    JobView,
    Paused,
    Queued,
    Started,
    StatusRow,
    job_view,
    run_stats,
    run_view,
)
from sexton.daemon.control import Control
from sexton.daemon.jobs import JobEntry
from sexton.model.pause import DEFAULT_SECONDS, LONGEST_NAME, LONGEST_NOTE, LONGEST_SECONDS
from sexton.schedule.explain import Explanation

DEFAULT_RUNS = 50
MAX_RUNS = 1000
CANCEL_WAIT_SLACK = 60.0
UNAVAILABLE = (Refusal.SHUTTING_DOWN, Refusal.QUEUE_FULL, Refusal.SLOT_UNKNOWN)
BY_THE_CLUSTER = (Refusal.SLOT_HELD, Refusal.SLOT_UNKNOWN)


def view_of(control: Control, entry: JobEntry) -> JobView:
    found = control.live_runs(entry.spec.name)
    live = [run for run in found if not run.waits_for_slots]
    facts = JobFacts(
        run_ids=[run.id for run in live], queued=[run.id for run in found if run.waits_for_slots],
        pids=[run.pid for run in live if run.pid is not None],
        unconfirmed=[run.id for run in live if run.unconfirmed],
        next_fire=control.next_fire(entry.spec.name), command=control.shown_command(entry.spec),
        is_reboot=control.is_reboot(entry), pending_retry=control.retries.pending(entry.spec.name),
        paused=control.pauses.of(entry.spec.name), breaches=control.sla.of(entry.spec.name), now=control.clock.now(),
        running_resources=running_resources(live), reboot_pending=control.boot_runs.pending(entry.spec.name),
        slot=slot_view(entry.spec, control.launcher.facilities.slots, live, control.node),
    )
    return job_view(entry, facts)


async def list_jobs(request: web.Request) -> web.Response:
    control = control_of(request)
    return answer([view_of(control, entry) for entry in control.jobs])


async def get_job(request: web.Request) -> web.Response:
    control = control_of(request)
    return answer(view_of(control, control.job(request.match_info["name"])))


async def job_runs(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    history = await control_of(request).history(name, whole(request, "limit", DEFAULT_RUNS, 1, MAX_RUNS))
    runs = list(history.runs)
    stats = run_stats(dict(history.totals), runs)
    return answer(JobRuns(name=name, runs=[run_view(record) for record in runs], stats=stats))


async def start(request: web.Request) -> web.Response:
    body = await read_body(request, StartBody)
    name = request.match_info["name"]
    control = control_of(request)
    result = await control.start(name, requested_by=body.requested_by or "api")
    if isinstance(result, Refuse):
        named = f"job {name!r} is not started: " if result.refusal in BY_THE_CLUSTER else ""
        raise Refused(503 if result.refusal in UNAVAILABLE else 409, named + result.message)
    waits_for = sorted(result.waits_for)
    await control.known(result)
    ticket = result.launch.ticket
    if ticket is not None:
        return answer(Queued(queued=name, queueId=result.id, pool=ticket.pool, run=result.id, waits_for=waits_for), 202)
    if result.pursues is not None:
        return answer(Queued(queued=name, queueId=result.id, pool=None, holder=result.pursues, run=result.id,
                             waits_for=waits_for), 202)
    return answer(Started(started=name, run=result.id, waits_for=waits_for))


async def cancel(request: web.Request) -> web.Response:
    """Answers when the cancel sequence of every instance has finished."""
    body = await read_body(request, CancelBody)
    control, name = control_of(request), request.match_info["name"]
    runs = await control.cancel_job(name, reason=body.reason, requested_by=body.requested_by or "api", force=body.force,
                                    queued=body.queued)
    bound = max(run.job.kill_timeout for run in runs) + CANCEL_WAIT_SLACK
    await control.wait_ended(runs, bound)
    return answer(Cancelled(cancelled=name, instances=len(runs)))


async def pause(request: web.Request) -> web.Response:
    body = await read_body(request, PauseBody)
    control, name = control_of(request), request.match_info["name"]
    until = _pause_end(body, control.clock.now())
    return answer(Paused(paused=await control.pause(name, until, note=body.note, requested_by=body.by or "api")))


def _pause_end(body: PauseBody, now: datetime) -> datetime:
    """Raises Refused for what is no bounded time ahead, and for texts that are too long."""
    if len(body.note or "") > LONGEST_NOTE or len(body.by or "") > LONGEST_NAME:
        raise Refused(400, f"note has at most {LONGEST_NOTE} characters, and by {LONGEST_NAME}")
    if body.until is not None and body.durationSeconds is not None:
        raise Refused(400, "either durationSeconds or until, not both")
    if body.until is not None and body.until.tzinfo is None:
        raise Refused(400, "until needs an offset, for example 2026-12-24T18:00:00Z")
    seconds = body.durationSeconds if body.durationSeconds is not None else DEFAULT_SECONDS
    if body.until is not None:
        seconds = (body.until - now).total_seconds()
    if not 1 <= seconds <= LONGEST_SECONDS:
        raise Refused(400, f"a pause lasts from 1 second to {LONGEST_SECONDS / 86400:g} days")
    return body.until or now + timedelta(seconds=seconds)


async def resume(request: web.Request) -> web.Response:
    body = await read_body(request, ResumeBody)
    await control_of(request).resume(request.match_info["name"], requested_by=body.by or "api")
    return answer(Paused(paused=None))


async def status(request: web.Request) -> web.Response:
    control = control_of(request)
    rows = [_row(view_of(control, entry)) for entry in control.jobs]
    if "application/json" in request.headers.get("Accept", ""):
        return answer(rows)
    return web.Response(text="".join(_line(row) + "\n" for row in rows))


def _row(view: JobView) -> StatusRow:
    state = "running" if view.running else "scheduled" if view.enabled else "disabled"
    return StatusRow(job=view.name, status=state, pid=view.pids, scheduled_in=view.scheduled_in,
                     never_fires=view.never_fires)


def _line(row: StatusRow) -> str:
    if row.status == "running":
        return f"{row.job}: running (pid: {', '.join(map(str, row.pid)) or 'starting'})"
    if row.status == "disabled":
        return f"{row.job}: disabled"
    if row.never_fires:
        return f"{row.job}: scheduled (never fires)"
    if isinstance(row.scheduled_in, float):
        return f"{row.job}: scheduled (in {_span(row.scheduled_in)})"
    return f"{row.job}: scheduled ({row.scheduled_in})"


def _span(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds >= size or size == 1:
            count = max(0, int(seconds // size))
            return f"{count} {unit}{'' if count == 1 else 's'}"
    raise AssertionError("unreachable")


async def next_fires(request: web.Request) -> web.Response:
    control, name = control_of(request), request.match_info["name"]
    now = control.clock.now()
    fires = control.fires_of(name, whole(request, "count", 10, 1, 1000))
    return answer(Fires(fires=[Fire(job=name, at=at, in_seconds=round((at - now).total_seconds(), 3)) for at in fires]))


async def explain(request: web.Request) -> web.Response:
    at = None
    if (text := request.query.get("at")) is not None:
        try:
            at = datetime.fromisoformat(text)
            if at.tzinfo is None:
                raise ValueError
            at.astimezone(control_of(request).clock.now().tzinfo)
        except (ValueError, OverflowError):
            raise Refused(400, f"at must be an ISO 8601 instant with an offset, not {text!r}") from None
    found = control_of(request).explain(request.match_info["name"], at)
    if found is None:
        raise Refused(409, "the job runs at the start of the daemon (@reboot), at no other time")
    return answer(found)


_UNKNOWN = {404: problem("There is no such job")}

ROUTES = (  # looked through in this order: what is asked for most comes first
    Route("GET", "/status", status, "One line (or JSON row) for each job",
          {200: Answer("Text, or JSON rows when Accept asks for them", list[StatusRow], media=Media.TEXT)}),
    Route("GET", "/jobs", list_jobs, "All jobs with their state", {200: Answer("All jobs", list[JobView])}),
    Route("POST", "/jobs/{name}/start", start, "Start a run now, through the same door as the schedule",
          {200: Answer("The run", Started),
           202: Answer("The run waits: for its pool, or for another node to give up the slot", Queued),
           409: problem("Forbidden by the overlap policy, here or on another node, by maxInstances, or disabled"),
           503: problem("The daemon is shutting down, the queue of the pool is full, or the store does not say whether "
                        "the slot is free (fail-closed)"), **_UNKNOWN, **BODY_PROBLEMS},
          body=StartBody),
    Route("GET", "/jobs/{name}", get_job, "One job with its state", {200: Answer("The job", JobView), **_UNKNOWN}),
    Route("GET", "/jobs/{name}/runs", job_runs, "Recorded runs of a job, oldest first",
          {200: Answer("Runs and totals", JobRuns), 400: problem("limit is wrong"), **_UNKNOWN},
          parameters=(integer_parameter("limit", 1, MAX_RUNS, "how many of the newest runs"),)),
    Route("GET", "/jobs/{name}/logs", job_logs, "Lines of the running or last run, then live ones",
          {200: Answer("Server-sent events: line, end", media=Media.EVENTS), **_UNKNOWN}),
    Route("GET", "/jobs/{name}/next", next_fires, "The coming occurrences of a job",
          {200: Answer("Occurrences", Fires), 400: problem("count is wrong"), **_UNKNOWN},
          parameters=(integer_parameter("count", 1, 1000, "how many"),)),
    Route("GET", "/jobs/{name}/explain", explain, "Why the job runs or does not run at an instant",
          {200: Answer("Field by field", Explanation), 400: problem("at is wrong"),
           409: problem("The job has no times"), **_UNKNOWN},
          parameters=(Parameter("at", {"type": "string", "format": "date-time"}, "the instant; now without it"),)),
    Route("POST", "/jobs/{name}/pause", pause, "Hold the schedule and the retries of a job, for a bounded time",
          {200: Answer("The pause", Paused), **BODY_PROBLEMS, **_UNKNOWN}, body=PauseBody),
    Route("POST", "/jobs/{name}/resume", resume, "End a pause",
          {200: Answer("No pause", Paused), **BODY_PROBLEMS, **_UNKNOWN}, body=ResumeBody),
    Route("POST", "/jobs/{name}/cancel", cancel, "Stop every instance; answers when the sequences have finished",
          {200: Answer("How many", Cancelled), 409: problem("Nothing is running"), **_UNKNOWN, **BODY_PROBLEMS},
          body=CancelBody),
)

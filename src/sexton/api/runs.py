"""Routes below /runs."""

from __future__ import annotations

import asyncio
from datetime import datetime

from aiohttp import web

from sexton.api.bodies import AbandonBody, StopBody
from sexton.api.logs import run_log
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
    number,
    problem,
    read_body,
    whole,
)
from sexton.api.views import RunList, RunView, run_view
from sexton.daemon.control import Control
from sexton.model.run import Outcome, Phase, RunRecord
from sexton.run.identity import bound_at

DEFAULT_RUNS = 100
MAX_RUNS = 1000
MAX_WAIT = 3600
LOOK_SECONDS = 0.25


async def list_runs(request: web.Request) -> web.Response:
    text, outcome = request.query.get("outcome"), None
    if text is not None:
        try:
            outcome = Outcome(text)
        except ValueError:
            raise Refused(400, f"outcome must be one of {', '.join(o.value for o in Outcome)}") from None
    limit = whole(request, "limit", DEFAULT_RUNS, 1, MAX_RUNS)
    since, until = _instant(request, "since"), _instant(request, "until")
    before = request.query.get("before")
    if until is not None:
        before = bound_at(until) if before is None else min(before, bound_at(until))
    records = await control_of(request).runs(
        job=request.query.get("job"), outcome=outcome, node=request.query.get("node"), limit=limit, before=before,
        after=None if since is None else bound_at(since),
    )
    following = records[-1].launch.id if len(records) == limit else None
    return answer(RunList(runs=[run_view(record) for record in records], next=following))


def _instant(request: web.Request, name: str) -> datetime | None:
    """Raises Refused."""
    text = request.query.get(name)
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text.replace(" ", "+"))  # a + in a query means a space
    except ValueError:
        raise Refused(400, f"{name} must be an instant such as 2026-12-24T18:00:00Z, not {text!r}") from None
    if instant.tzinfo is None:
        raise Refused(400, f"{name} needs an offset, for example 2026-12-24T18:00:00Z")
    return instant


async def get_run(request: web.Request) -> web.Response:
    return answer(run_view(await control_of(request).run(request.match_info["id"])))


async def cancel_run(request: web.Request) -> web.Response:
    """202 at once; with `wait`, 200 when the sequence has finished within that many seconds."""
    body = await read_body(request, StopBody)
    seconds = number(request, "wait", 0.0, 0.0, MAX_WAIT)
    control = control_of(request)
    run = await control.cancel_run(
        request.match_info["id"], reason=body.reason, requested_by=body.requested_by or "api", force=body.force
    )
    if isinstance(run, RunRecord):
        record = await _wait_elsewhere(control, run, seconds)
        return answer(run_view(record), 200 if record.phase is Phase.RECORDED else 202)
    ended = await control.wait_ended([run], seconds) if seconds else False
    return answer(run_view(run.record()), 200 if ended else 202)


async def _wait_elsewhere(control: Control, record: RunRecord, seconds: float) -> RunRecord:
    """A run on another node: the store says when it has ended."""
    try:
        async with asyncio.timeout(seconds):
            while record.phase is not Phase.RECORDED:
                await asyncio.sleep(LOOK_SECONDS)
                record = await control.run(record.launch.id)
    except TimeoutError:
        pass
    return record


async def abandon_run(request: web.Request) -> web.Response:
    """Answers when the place is free; 202 where its node was asked to give it up."""
    body = await read_body(request, AbandonBody)
    run = await control_of(request).abandon_run(
        request.match_info["id"], reason=body.reason, requested_by=body.requested_by or "api"
    )
    if isinstance(run, RunRecord):
        return answer(run_view(run), 202)
    return answer(run_view(run.record()))


_UNKNOWN = {404: problem("There is no such run")}

ROUTES = (
    Route("GET", "/runs", list_runs, "Runs of all jobs, newest first; live ones as they are now",
          {200: Answer("Runs", RunList), 400: problem("A parameter is wrong")},
          parameters=(
              Parameter("job", {"type": "string"}, "only runs of this job"),
              Parameter("outcome", {"type": "string", "enum": [o.value for o in Outcome]}, "only this outcome"),
              Parameter("node", {"type": "string"}, "only runs that were started on this node"),
              Parameter("since", {"type": "string", "format": "date-time"}, "only runs launched at or after this"),
              Parameter("until", {"type": "string", "format": "date-time"}, "only runs launched before this"),
              Parameter("before", {"type": "string"}, "only runs older than this id"),
              integer_parameter("limit", 1, MAX_RUNS, "how many"),
          )),
    Route("GET", "/runs/{id}", get_run, "One run", {200: Answer("The run", RunView), **_UNKNOWN}),
    Route("POST", "/runs/{id}/cancel", cancel_run, "Stop one run",
          {200: Answer("The sequence has finished within `wait`", RunView), 202: Answer("Asked", RunView),
           409: problem("The run has ended"), **_UNKNOWN, **BODY_PROBLEMS,
           400: problem("The body or a parameter is wrong")},
          body=StopBody,
          parameters=(Parameter("wait", {"type": "number", "minimum": 0, "maximum": MAX_WAIT},
                                "seconds to wait for the end"),)),
    Route("POST", "/runs/{id}/abandon", abandon_run, "Give up the place of a run that could not be terminated",
          {200: Answer("The place is free", RunView), 202: Answer("Its node was asked", RunView),
           409: problem("The run keeps no place"), **_UNKNOWN, **BODY_PROBLEMS},
          body=AbandonBody),
    Route("GET", "/runs/{id}/log", run_log, "The whole output of a run; honours Range",
          {200: Answer("Output", media=Media.TEXT), 206: Answer("A range of it", media=Media.TEXT),
           416: problem("No such range"), **_UNKNOWN},
          parameters=(Parameter("follow", {"type": "string", "enum": ["0", "1"]},
                                "stream lines until the run's output ends"),)),
)

"""The route for what a job's runs use now and have used."""

from __future__ import annotations

from datetime import datetime

import msgspec
from aiohttp import web

from sexton.api.routes import Answer, Route, answer, control_of, integer_parameter, problem, whole
from sexton.api.use import Resources, resources_of
from sexton.model.limits import Look

DEFAULT_RUNS = 50
MAX_RUNS = 1000


class LiveUse(msgspec.Struct, kw_only=True):
    """One running, monitored run; `samples` are the kept looks, oldest first."""

    run: str
    started_at: datetime | None
    pid: int | None
    samples: list[Look]


class RecordedUse(msgspec.Struct, kw_only=True):
    run: str
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str | None
    resources: Resources


class JobResources(msgspec.Struct, kw_only=True):
    """`runs` are recorded ones of which anything is known, oldest first."""

    name: str
    monitored: bool
    interval: float | None
    live: list[LiveUse]
    runs: list[RecordedUse]


async def job_resources(request: web.Request) -> web.Response:
    control, name = control_of(request), request.match_info["name"]
    history = await control.history(name, whole(request, "limit", DEFAULT_RUNS, 1, MAX_RUNS))
    monitoring = control.job(name).spec.monitor_resources
    live = [
        LiveUse(run=run.id, started_at=run.started_at, pid=run.pid, samples=list(run.monitored.looks))
        for run in control.live_runs(name) if run.monitored is not None
    ]
    runs = [
        RecordedUse(run=record.launch.id, started_at=record.started_at, finished_at=record.finished_at,
                    outcome=record.outcome.value if record.outcome else None, resources=found)
        for record in history.runs if (found := resources_of(record)) is not None
    ]
    return answer(JobResources(name=name, monitored=monitoring is not None,
                               interval=monitoring.interval if monitoring else None, live=live, runs=runs))


ROUTES = (
    Route("GET", "/jobs/{name}/resources", job_resources, "What the job's runs use now and have used",
          {200: Answer("Live looks and recorded sums", JobResources), 400: problem("limit is wrong"),
           404: problem("There is no such job")},
          parameters=(integer_parameter("limit", 1, MAX_RUNS, "how many of the newest runs"),)),
)

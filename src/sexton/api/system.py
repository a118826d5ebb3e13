"""Routes about the daemon itself, and about schedules in general."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, tzinfo

import msgspec
from aiohttp import web

from sexton import __version__
from sexton.api.routes import (
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
    whole,
)
from sexton.api.views import Fire, Fires, SchedulePreview
from sexton.daemon.health import Health
from sexton.daemon.reload import ReloadResult
from sexton.daemon.timetable import zone_named
from sexton.model.errors import ScheduleError
from sexton.model.job import DayRule
from sexton.schedule.describe import describe
from sexton.schedule.expression import Reboot, parse
from sexton.schedule.occurrences import occurrences_of


async def version(_: web.Request) -> web.Response:
    return web.Response(text=__version__)


async def health(request: web.Request) -> web.Response:
    return answer(control_of(request).health())


async def reload(request: web.Request) -> web.Response:
    result = await control_of(request).reload()
    return answer(result, 200 if result.ok else 422)


async def coming(request: web.Request) -> web.Response:
    control = control_of(request)
    now = control.clock.now()
    within = timedelta(seconds=number(request, "within", 86400.0, 0.0, 366 * 86400.0))
    fires = control.coming(within, whole(request, "limit", 100, 1, 10_000))
    return answer(Fires(fires=[
        Fire(job=due.job, at=due.scheduled_for, in_seconds=round((due.scheduled_for - now).total_seconds(), 3))
        for due in fires
    ]))


async def preview(request: web.Request) -> web.Response:
    """What an expression means and when it would fire, by the engine that fires it."""
    text = request.query.get("expr")
    if text is None:
        raise Refused(400, "expr is missing")
    zone_name = request.query.get("tz", "UTC")
    try:
        zone = zone_named(zone_name, utc=False)
    except (ValueError, OSError, KeyError):
        raise Refused(400, f"tz {zone_name!r} is not a time zone of the IANA database") from None
    count = whole(request, "count", 12, 1, 1000)
    try:
        rule = DayRule(request.query.get("dayRule", "or"))
    except ValueError:
        raise Refused(400, "dayRule must be or, or and") from None
    question = _Question(text, zone_name, zone, rule, count, request.query.get("seed", ""))
    return answer(_preview(question, control_of(request).clock.now()))


class _Question(msgspec.Struct, frozen=True):
    text: str
    zone_name: str
    zone: tzinfo
    rule: DayRule
    count: int
    seed: str


def _preview(asked: _Question, now: datetime) -> SchedulePreview:
    empty = SchedulePreview(expression=asked.text, timezone=asked.zone_name, valid=False, reboot=False,
                            description=None, fires=[], never_fires=False, error=None)
    try:
        expression = parse(asked.text, seed=asked.seed)
    except ScheduleError as wrong:
        empty.error = str(wrong) + (f" ({wrong.hint})" if wrong.hint else "")
        return empty
    empty.valid, empty.description = True, describe(expression, asked.rule)
    if isinstance(expression, Reboot):
        empty.reboot = True
        return empty
    empty.fires = occurrences_of(expression, asked.zone, asked.rule).following(now, asked.count)
    empty.never_fires = not empty.fires
    return empty


async def metrics(request: web.Request) -> web.Response:
    # prometheus_client is loaded by the first scrape, not at start
    from sexton.api.metrics import CONTENT_TYPE, count_living, render

    control = control_of(request)
    text = await asyncio.get_running_loop().run_in_executor(None, render, control, count_living(control))
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


ROUTES = (
    Route("GET", "/version", version, "The version, as text", {200: Answer("Version", media=Media.TEXT)}),
    Route("GET", "/health", health, "Whether the daemon does its work, and what it could not do",
          {200: Answer("Health", Health)}),
    Route("POST", "/reload", reload, "Load the configuration again and apply it, whole or not at all",
          {200: Answer("Applied", ReloadResult), 422: Answer("Errors; the old one stays", ReloadResult)}),
    Route("GET", "/schedule/next", coming, "The next occurrence of every job, soonest first",
          {200: Answer("Occurrences", Fires), 400: problem("A parameter is wrong")},
          parameters=(Parameter("within", {"type": "number", "minimum": 0, "maximum": 366 * 86400}, "seconds from now"),
                      integer_parameter("limit", 1, 10_000, "how many"))),
    Route("GET", "/schedule/preview", preview, "When an expression would fire",
          {200: Answer("Fires, or why the expression is wrong", SchedulePreview), 400: problem("A parameter is wrong")},
          parameters=(Parameter("expr", {"type": "string"}, "the expression; required"),
                      Parameter("tz", {"type": "string"}, "IANA zone, UTC without it"),
                      Parameter("dayRule", {"type": "string", "enum": ["or", "and"]}, "how two day fields combine"),
                      Parameter("seed", {"type": "string"}, "job name, for H"),
                      integer_parameter("count", 1, 1000, "how many"))),
    Route("GET", "/metrics", metrics, "Prometheus metrics", {200: Answer("Metrics", media=Media.TEXT)}),
)

"""The route table: one list that makes both the HTTP routes and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from sexton.api.views import Problem
from sexton.daemon.control import Control

CONTROL = web.AppKey("control", Control)

Body = TypeVar("Body", bound=msgspec.Struct)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Media(Enum):
    JSON = "application/json"
    TEXT = "text/plain"
    EVENTS = "text/event-stream"


class Parameter(msgspec.Struct, frozen=True):
    """A query parameter; `schema` is JSON Schema."""

    name: str
    schema: dict[str, Any]
    description: str


class Answer(msgspec.Struct, frozen=True):
    """With a type it is JSON; a media type beside it is another form of the same."""

    description: str
    type: Any = None
    media: Media = Media.JSON


class Route(msgspec.Struct, frozen=True):
    method: str
    path: str
    handler: Handler
    summary: str
    answers: dict[int, Answer]
    body: type[msgspec.Struct] | None = None
    parameters: tuple[Parameter, ...] = ()


class Refused(Exception):
    """A request that cannot be served: becomes `{"error": ...}` with the status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def problem(description: str) -> Answer:
    return Answer(description, Problem)


BODY_PROBLEMS = {400: problem("The body is not as expected"), 413: problem("The body is larger than 1 MiB"),
                 415: problem("The body is not JSON")}
"""Of every route that takes a body."""


def control_of(request: web.Request) -> Control:
    return request.app[CONTROL]


def answer(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")


async def read_body(request: web.Request, kind: type[Body]) -> Body:
    """The JSON body, or the defaults without one. Raises Refused for another media type or a wrong shape."""
    raw = await request.read()
    if not raw:
        return kind()
    if request.content_type != "application/json":
        raise Refused(415, f"the body must be application/json, not {request.content_type}")
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as wrong:
        raise Refused(400, f"the body is not as expected: {wrong}") from None


def number(request: web.Request, name: str, default: float, low: float, high: float) -> float:
    """A numeric query parameter within its range. Raises Refused."""
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise Refused(400, f"{name} must be a number, not {text!r}") from None
    if not low <= value <= high:
        raise Refused(400, f"{name} must be between {low:g} and {high:g}")
    return value


def whole(request: web.Request, name: str, default: int, low: int, high: int) -> int:
    value = number(request, name, default, low, high)
    if value != int(value):
        raise Refused(400, f"{name} must be a whole number")
    return int(value)


def integer_parameter(name: str, low: int, high: int, description: str) -> Parameter:
    return Parameter(name, {"type": "integer", "minimum": low, "maximum": high}, description)

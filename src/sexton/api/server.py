"""The HTTP server: sockets, the guard against foreign web pages, and errors as JSON."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import re
import socket
import stat
from collections.abc import Awaitable, Callable
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sexton.api import jobs, nodes, pools, resources, runs, system
from sexton.api.connections import Door, Runner, accepts_for
from sexton.api.openapi import document
from sexton.api.routes import CONTROL, Answer, Refused, Route, answer
from sexton.daemon.control import Control, NotRunning, Unknown
from sexton.model.errors import ListenError, StoreError
from sexton.model.settings import Configuration, WebSettings

logger = logging.getLogger("sexton.api")

ALLOWED_HOSTS = web.AppKey("allowed_hosts", frozenset[str])
ALLOWED_ORIGINS = web.AppKey("allowed_origins", frozenset[str])
DOOR = web.AppKey("door", list[Door])
EXTRA_HEADERS = web.AppKey("extra_headers", dict[str, str])
READING = ("GET", "HEAD", "OPTIONS")
BACKLOG = 128
"""Connections that may wait to be accepted."""
INSTANCE = os.urandom(8).hex()


async def openapi(_: web.Request) -> web.Response:
    return answer(document(ROUTES))


ROUTES: tuple[Route, ...] = (
    *system.ROUTES,
    *jobs.ROUTES,
    *resources.ROUTES,
    *runs.ROUTES,
    *pools.ROUTES,
    *nodes.ROUTES,
    Route("GET", "/openapi.json", openapi, "This document", {200: Answer("OpenAPI 3.1", dict)}),
)


def make_app(control: Control, settings: WebSettings) -> web.Application:
    app = web.Application(middlewares=[_guard])
    app[CONTROL] = control
    app[ALLOWED_ORIGINS] = frozenset(settings.allowed_origins)
    app[ALLOWED_HOSTS] = frozenset(urlsplit(origin).hostname or "" for origin in settings.allowed_origins)
    app[DOOR] = []
    app[EXTRA_HEADERS] = dict(settings.headers)
    for route in ROUTES:
        # aiohttp's own pattern for a part of a path leaves out braces, which a job's name may have.
        app.router.add_route(route.method, re.sub(r"{(\w+)}", r"{\1:[^/]+}", route.path), route.handler)
    app.on_response_prepare.append(_stamp)
    return app


async def _stamp(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.pop("Server", None)  # which Python and which aiohttp concerns nobody
    response.headers["Sexton-Instance"] = INSTANCE
    for name, value in request.app[EXTRA_HEADERS].items():
        response.headers.setdefault(name, value)


@web.middleware
async def _guard(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> web.StreamResponse:
    """Every answer that is no success is `{"error": reason}`; requests that a foreign web page could have made are
    refused."""
    doors, connection = request.app[DOOR], request.protocol
    for door in doors:
        door.begins(connection)
    try:
        return await _answer(request, handler)
    finally:
        for door in doors:
            door.ends(connection)


async def _answer(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> web.StreamResponse:
    try:
        _refuse_foreign(request)
        return await handler(request)
    except Refused as refused:
        return answer({"error": refused.reason}, refused.status)
    except Unknown as unknown:
        return answer({"error": str(unknown)}, 404)
    except NotRunning as idle:
        return answer({"error": str(idle)}, 409)
    except StoreError as failure:
        return answer({"error": f"the store cannot answer: {failure}"}, 503)
    except web.HTTPException as failure:
        reply = answer({"error": f"{failure.status}: {failure.reason}"}, failure.status)
        if (allow := failure.headers.get("Allow")) is not None:
            reply.headers["Allow"] = allow
        return reply
    except ConnectionError:
        return web.Response(status=499)  # the client went away: nobody is left to be answered
    except Exception:
        logger.exception("internal error in %s %s", request.method, request.path)
        return answer({"error": "500: Internal Server Error"}, 500)


def _refuse_foreign(request: web.Request) -> None:
    """A page in an operator's browser may send simple requests to loopback: its Origin gives it away, and a name
    that was rebound to loopback stands in Host. Tools send no Origin and name us as they reached us."""
    over_unix = request.transport is not None and isinstance(request.transport.get_extra_info("sockname"), str | bytes)
    try:
        host, is_loopback = _host_of(request.host)
    except ValueError:
        raise Refused(400, "Host is not an address") from None
    if not (over_unix or is_loopback or host in request.app[ALLOWED_HOSTS]):
        raise Refused(403, f"Host {host!r} is not an address of this daemon")
    origin = request.headers.get("Origin")
    if origin is None or request.method in READING or origin in request.app[ALLOWED_ORIGINS]:
        return
    if origin != f"http://{request.host}":
        raise Refused(403, f"requests from the origin {origin!r} are refused (web.allowedOrigins)")


def _worth_a_line(record: logging.LogRecord) -> bool:
    """What is no HTTP is answered with 400 by aiohttp, which would also write a traceback for it: whoever can connect
    could fill the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


@lru_cache(maxsize=64)
def _host_of(authority: str) -> tuple[str, bool]:
    """The host in `host:port`, and whether it means this machine. Raises ValueError."""
    host = urlsplit(f"//{authority}").hostname or ""
    return host, _is_loopback_name(host)


def _is_loopback_name(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def serve(control: Control, configuration: Configuration) -> Callable[[], Awaitable[None]]:
    """Listen on every address of `web.listen`. Returns how to stop. Raises ListenError when one cannot be had."""
    settings = configuration.settings.web
    if settings is None:
        logger.info("no API: without a `web` section, `sexton jobs` and the like cannot reach this daemon")
        return _nothing
    logging.getLogger("aiohttp.server").addFilter(_worth_a_line)
    app = make_app(control, settings)
    runner = Runner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    door = runner.door
    assert door is not None
    app[DOOR].append(door)
    control.connections = lambda: door.counts
    accepts = accepts_for(door.bound)
    try:
        for address in settings.listen:
            try:
                await _listen(runner, address, settings.socket_mode, accepts)
            except OSError as failure:
                why = os.strerror(failure.errno) if failure.errno else str(failure)
                raise ListenError(f"cannot listen on {address}: {why}") from failure
            logger.info("API on %s", address)
    except ListenError:
        await runner.cleanup()
        raise
    return runner.cleanup


async def _nothing() -> None:
    return None


def _answers(path: str) -> bool:
    """Whether somebody listens on the socket; never waits."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # a full backlog: somebody listens, and is busy
        except OSError:
            return False
        return True


async def _listen(runner: web.AppRunner, address: str, socket_mode: int | None, accepts: int) -> None:
    parts = urlsplit(address)
    if parts.scheme == "unix":
        path = parts.path
        try:
            if stat.S_ISSOCK(os.stat(path).st_mode):
                if _answers(path):
                    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), path)
                os.unlink(path)  # left by a daemon that was killed
        except FileNotFoundError:
            pass
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)  # from the first moment nobody but us may connect
        try:
            listening.bind(path)
        except OSError:
            listening.close()
            raise
        finally:
            os.umask(before)
        await _accept(runner, listening, accepts)
        if socket_mode is not None:
            os.chmod(path, socket_mode)
    else:
        for family, kind, protocol, _, at in socket.getaddrinfo(parts.hostname, parts.port or 80,
                                                                type=socket.SOCK_STREAM):
            listening = socket.socket(family, kind, protocol)
            try:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listening.bind(at)
            except OSError:
                listening.close()
                raise
            await _accept(runner, listening, accepts)


async def _accept(runner: web.AppRunner, listening: socket.socket, accepts: int) -> None:
    """asyncio accepts as many at once as may wait: fewer than that, where descriptors are few."""
    await web.SockSite(runner, listening, backlog=accepts).start()
    listening.listen(BACKLOG)

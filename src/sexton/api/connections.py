"""How many connections the API has at a time. Each takes a descriptor, and runs need those more: beyond the bound the
connection that has been idle for the longest is closed for a new one; when none is idle, the new one is turned away.
"""

from __future__ import annotations

import asyncio
import logging
import resource

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from sexton.daemon.health import Connections

logger = logging.getLogger("sexton.api")

SHARE = 4
"""The API gets one descriptor in so many."""
FEWEST, MOST = 8, 1000
SETTLED_SECONDS = 1.0
"""A connection that has asked nothing, and is not connected after so long, has ended."""
PATIENCE_SECONDS = 1.0
"""How long a connection that is turned away has for its request: closed before that, it might not hear why."""
TELL_SECONDS = 60.0

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"
BUSY_BODY = b'{"error":"too many connections"}'


def bound_for(descriptors: int) -> int:
    """Connections that a process with so many descriptors may have. Pure."""
    return max(FEWEST, min(descriptors // SHARE, MOST))


def accepts_for(bound: int) -> int:
    """Connections that asyncio may accept at once, beyond the bound. Pure."""
    return max(FEWEST, min(bound // 2, 128))


class _TurnedAway(asyncio.Protocol):
    """Says why, and closes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(BUSY + b"Content-Length: %d\r\n\r\n" % len(BUSY_BODY) + BUSY_BODY)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()


class Door:
    """Makes the protocol of each new connection, in the server's place."""

    def __init__(self, server: web.Server, bound: int | None = None) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self.bound = bound or bound_for(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._used: dict[RequestHandler, float] = {}
        """When each connection was made, or its last request answered."""
        self._busy: set[RequestHandler] = set()
        self._new: set[RequestHandler] = set()
        """Those that have not asked for anything yet."""
        self._closed = self._turned_away = self._untold = 0
        self._told_at = -TELL_SECONDS

    def __call__(self) -> asyncio.Protocol:
        if len(self._used) >= self.bound:
            self._forget_ended()
        if len(self._used) >= self.bound and not self._close_idlest():
            self._turned_away += 1
            self._tell()
            return _TurnedAway()
        made = self._server()
        self._used[made] = self._loop.time()
        self._new.add(made)
        return made

    def begins(self, connection: RequestHandler) -> None:
        """A request is answered from now on: its connection is not idle until it `ends`."""
        self._busy.add(connection)
        self._new.discard(connection)

    def ends(self, connection: RequestHandler) -> None:
        self._busy.discard(connection)
        if connection in self._used:
            self._used[connection] = self._loop.time()

    @property
    def counts(self) -> Connections:
        self._forget_ended()
        return Connections(open=len(self._used), bound=self.bound, closed_idle=self._closed,
                           turned_away=self._turned_away)

    def _forget_ended(self) -> None:
        settled = self._loop.time() - SETTLED_SECONDS
        for connection, used in list(self._used.items()):
            if not connection.connected and (connection not in self._new or used < settled):
                self._forget(connection)  # its handler may still be at work, for nobody

    def _close_idlest(self) -> bool:
        idle = [connection for connection in self._used if connection not in self._busy]
        if not idle:
            return False
        idlest = min(idle, key=self._used.__getitem__)
        self._forget(idlest)
        idlest.force_close()
        self._closed += 1
        self._tell()
        return True

    def _forget(self, connection: RequestHandler) -> None:
        del self._used[connection]
        self._new.discard(connection)

    def _tell(self) -> None:
        """At most once a minute: whoever can connect could fill the log."""
        self._untold += 1
        now = self._loop.time()
        if now - self._told_at >= TELL_SECONDS:
            logger.warning("the API has its %d connections: %d of the idlest closed or new ones turned away (runs need "
                           "the other descriptors)", self.bound, self._untold)
            self._told_at, self._untold = now, 0


class Runner(web.AppRunner):
    """Sites hand their connections to the door instead of the server."""

    door: Door | None = None

    @property
    def server(self) -> web.Server | None:
        return self.door or super().server  # type: ignore[return-value]

    async def setup(self) -> None:
        await super().setup()
        plain = super().server
        assert plain is not None
        self.door = Door(plain)

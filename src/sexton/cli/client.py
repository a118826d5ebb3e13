"""HTTP to a daemon, over TCP or a unix socket, with the standard library: a command is to answer at once."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from sexton import __version__
from sexton.cli.address import Address, Scheme
from sexton.cli.answers import Problem
from sexton.cli.failures import NoDaemon, NotFound, Refused

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 60.0
RELOAD_SECONDS = 330.0
MARK = "Sexton-Instance"
CHUNK = 64 * 1024

Decoded = TypeVar("Decoded")


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(CONNECT_SECONDS)
        self.sock.connect(self._path)


def route(*parts: str) -> str:
    """A path of the API; a job's name may hold any character."""
    return "".join("/" + quote(part, safe="") for part in parts)


def decoded(raw: bytes, kind: type[Decoded]) -> Decoded:
    """Raises Refused for an answer that this version cannot read."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.DecodeError as wrong:
        raise Refused(
            f"the daemon's answer cannot be read: {wrong}",
            f"this is version {__version__}; `sexton health --json` shows the daemon's",
        ) from None


class Client:
    """One daemon. Every method raises NoDaemon (nothing of ours answers), NotFound (404) or Refused."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, query: Mapping[str, object] | None = None) -> bytes:
        return self._ask("GET", path, query, None, ANSWER_SECONDS, ())

    def post(
        self,
        path: str,
        body: Mapping[str, object] | None = None,
        *,
        seconds: float = ANSWER_SECONDS,
        also: tuple[int, ...] = (),
    ) -> bytes:
        """`also` names statuses that are answers, not refusals. Waits at most `seconds`."""
        return self._ask("POST", path, None, body, seconds, also)

    def stream(self, path: str, query: Mapping[str, object] | None = None) -> Iterator[bytes]:
        """The body in pieces, as they come, without a limit of time."""
        with self._talking():
            reply = self._send("GET", path, query, None, None)
            self._check(reply, (), None)
        while True:
            with self._talking():
                piece = reply.read1(CHUNK)
            if not piece:
                return
            yield piece

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        body: Mapping[str, object] | None,
        seconds: float,
        also: tuple[int, ...],
    ) -> bytes:
        with self._talking():
            reply = self._send(method, path, query, body, seconds)
            raw = reply.read()
            self._check(reply, also, raw)
            return raw

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None,
        body: Mapping[str, object] | None,
        seconds: float | None,
    ) -> http.client.HTTPResponse:
        """Each request has a connection of its own: the daemon may have closed an idle one, and a POST that
        was perhaps taken must not be sent twice."""
        self.close()
        self._connection = connection = self._connect()
        connection.connect()
        connection.sock.settimeout(seconds)
        target = (self.address.path if self.address.scheme is not Scheme.UNIX else "") + path
        given = {name: value for name, value in (query or {}).items() if value is not None}
        if given:
            target += "?" + urlencode(given)
        headers = {"Accept": "application/json", "Connection": "close"}
        content: bytes | None = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            content = msgspec.json.encode({name: value for name, value in body.items() if value is not None})
        connection.request(method, target, content, headers)
        return connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        match self.address.scheme:
            case Scheme.UNIX:
                return _UnixConnection(self.address.path)
            case Scheme.HTTPS:
                return http.client.HTTPSConnection(
                    self.address.host, self.address.port, timeout=CONNECT_SECONDS
                )
            case Scheme.HTTP:
                return http.client.HTTPConnection(
                    self.address.host, self.address.port, timeout=CONNECT_SECONDS
                )

    def _check(self, reply: http.client.HTTPResponse, also: tuple[int, ...], raw: bytes | None) -> None:
        if reply.getheader(MARK) is None:
            raise NoDaemon(
                f"what answers at {self.address} is not Sexton (status {reply.status})", "try --url"
            )
        if reply.status < 300 or reply.status in also:
            return
        try:
            reason = msgspec.json.decode(reply.read() if raw is None else raw, type=Problem).error
        except msgspec.DecodeError:
            reason = f"status {reply.status}"
        raise NotFound(reason) if reply.status == 404 else Refused(reason)

    @contextmanager
    def _talking(self) -> Iterator[Any]:
        """What may go wrong between here and the daemon, as one clear sentence."""
        try:
            yield
        except (TimeoutError, OSError, http.client.HTTPException) as failure:
            self.close()
            raise self._silence(failure) from None

    def _silence(self, failure: Exception) -> NoDaemon:
        hint = (
            "is it running? It answers only if its configuration has a `web` section; "
            "--url or SEXTON_URL names another address"
        )
        match failure:
            case ConnectionRefusedError() | FileNotFoundError():
                return NoDaemon(f"no daemon at {self.address}", hint)
            case PermissionError():
                return NoDaemon(
                    f"no permission to use {self.address}", "run this as its user, or set web.socketMode"
                )
            case TimeoutError():
                return NoDaemon(f"the daemon at {self.address} does not answer in time")
            case http.client.RemoteDisconnected() | http.client.IncompleteRead() | ConnectionError():
                return NoDaemon(f"the daemon at {self.address} went away before it had answered")
            case _:
                return NoDaemon(f"no daemon at {self.address}: {failure}", hint)

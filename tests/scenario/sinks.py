"""Servers that reports are sent to: a real SMTP server, and an HTTP server that behaves in every way there is."""

from __future__ import annotations

import asyncio
import email
import email.policy
import socket
import ssl
import threading
from email.message import EmailMessage
from typing import Any

from aiohttp import web
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope, LoginPassword, Session


class MailSink:
    """Takes mail and parses it strictly. `answers` are given, in order, instead of taking it."""

    def __init__(self, *, context: ssl.SSLContext | None = None, implicit_tls: bool = False,
                 login: tuple[str, str] | None = None) -> None:
        self.messages: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.lines: list[bytes] = []
        self.answers: list[str] = []
        self.logins: list[tuple[str, str]] = []
        self._login = login
        options: dict[str, Any] = {"hostname": "127.0.0.1", "port": 0, "ready_timeout": 10.0}
        if context is not None:
            options |= {"ssl_context": context} if implicit_tls else {"tls_context": context, "require_starttls": True}
        if login is not None:
            options |= {"authenticator": self._authenticate, "auth_required": True,
                        "auth_require_tls": context is not None and not implicit_tls}
        self._controller = _Controller(self, **options)
        self._controller.start()
        self.port: int = self._controller.server.sockets[0].getsockname()[1]

    def _authenticate(self, server: Any, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        if not isinstance(data, LoginPassword):
            return AuthResult(success=False, handled=False)
        said = (data.login.decode(), data.password.decode())
        self.logins.append(said)
        return AuthResult(success=said == self._login, handled=False)

    async def handle_DATA(self, server: Any, session: Session, envelope: Envelope) -> str:
        if self.answers:
            return self.answers.pop(0)
        content = envelope.content
        assert isinstance(content, bytes)
        self.lines = content.split(b"\r\n")
        self.messages.append(email.message_from_bytes(content, policy=email.policy.default))  # type: ignore[arg-type]
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 taken"

    def close(self) -> None:
        self._controller.stop(no_assert=True)


class _Controller(Controller):
    def _trigger_server(self) -> None:
        """The port is only known now (it was asked for as 0)."""
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


class HookSink:
    """Answers POST /MODE: ok, slow (seconds in `slow`), hang, reset, 500, 404, 503-then-ok, redirects."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.open = 0
        self.most_open = 0
        self._stop: asyncio.Event
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._started.wait(10)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{mode:.+}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handle_signals=False)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        assert isinstance(site._server, asyncio.Server)
        self.port: int = site._server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()

    def url(self, mode: str) -> str:
        return f"http://127.0.0.1:{self.port}/{mode}"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        mode = request.match_info["mode"]
        body = await request.read()
        self.requests.append((f"{request.method} {mode}", dict(request.headers), body))
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            return await self._mode(request, mode)
        finally:
            self.open -= 1

    async def _mode(self, request: web.Request, mode: str) -> web.StreamResponse:
        match mode:
            case "hang":
                await self._stop.wait()
            case "drip":
                answer = web.StreamResponse()
                await answer.prepare(request)
                while not self._stop.is_set():
                    await answer.write(b".")
                    await asyncio.sleep(0.05)
            case "reset":
                assert request.transport is not None
                request.transport.abort()
            case "500" | "404" | "429":
                return web.Response(status=int(mode), text="not today")
            case "503-then-ok" if sum(asked.endswith(mode) for asked, _, _ in self.requests) == 1:
                return web.Response(status=503)
            case "302" | "307" | "308":
                return web.Response(status=int(mode), headers={"Location": "/ok"})
            case "loop":
                return web.Response(status=307, headers={"Location": "/loop"})
            case "elsewhere":
                return web.Response(status=307, headers={"Location": f"http://localhost:{self.port}/ok"})
        return web.Response(text="ok")

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)


class SilentServer:
    """Accepts connections and never says a word; counts them."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._server.accept()[0])
            except OSError:
                return

    def still_open(self) -> int:
        """Connections that the other side has not closed."""
        count = 0
        for connection in self.connections:
            connection.setblocking(False)
            try:
                while connection.recv(4096):
                    pass
            except BlockingIOError:
                count += 1
            except OSError:
                pass
        return count

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self.connections:
            connection.close()

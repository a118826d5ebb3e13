"""A way to a server that can be cut: what was sent is swallowed, and nobody is told (a half-open connection)."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Gate:
    """Listens at `port` and passes on to a port of this machine, until it is shut."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._passing = True
        self._last_words: tuple[bytes, bool] | None = None
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._passing:
            await self._stop.wait()  # accepted by the kernel, answered by nobody
            return
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._to)
        await asyncio.gather(self._pass(reader, inner_writer), self._pass(inner_reader, writer))

    async def _pass(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                last = self._last_words is not None and self._last_words[0] in data
                if last and self._last_words is not None and not self._last_words[1]:
                    self._passing = False
                if self._passing:
                    to.write(data)
                    await to.drain()
                if last:
                    self._passing = False
        if self._passing:
            to.close()

    @property
    def passing(self) -> bool:
        return self._passing

    def shut(self) -> None:
        self._passing = False

    def shut_at(self, words: bytes, *, let_through: bool) -> None:
        """When somebody says this. Whether the server hears it, too, is to be said."""
        self._last_words = words, let_through

    def open(self) -> None:
        self._last_words = None
        self._passing = True

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

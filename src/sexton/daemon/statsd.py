"""Figures of single jobs as statsd datagrams. A thread looks up the address and sends; whoever reports only appends."""

from __future__ import annotations

import logging
import socket
import time
from collections import deque
from typing import Any, NamedTuple

from sexton.execution.writer import WriterThread
from sexton.model.run import Outcome, RunRecord
from sexton.model.statsd import StatsdSettings

logger = logging.getLogger("sexton.statsd")

LIMIT = 10_000
"""Datagrams that may wait for a name server that does not answer."""
ADDRESS_SECONDS = 60.0
"""How long an address counts, also that there was none."""


def start_lines(prefix: str) -> bytes:
    return f"{prefix}.start:1|g".encode()


def stop_lines(prefix: str, record: RunRecord) -> bytes:
    """One datagram with the reference daemon's figures."""
    lines = [f"{prefix}.stop:1|g", f"{prefix}.success:{int(record.outcome is Outcome.SUCCESS)}|g"]
    if record.duration is not None:
        lines.append(f"{prefix}.duration:{round(record.duration * 1000)}|ms")
    if record.usage is not None:
        seconds = record.usage.cpu_user_seconds + record.usage.cpu_system_seconds
        lines.append(f"{prefix}.cpu:{round(seconds * 1000)}|ms")
        lines.append(f"{prefix}.max_rss:{record.usage.max_rss_bytes}|g")
    if record.limits is not None and record.limits.memory_exceeded:
        lines.append(f"{prefix}.memory_limit_exceeded:1|c")
    return "\n".join(lines).encode()


class _Known(NamedTuple):
    """An address, or that there is none, until a monotonic instant."""

    until: float
    family: socket.AddressFamily
    address: Any


class Statsd:
    def __init__(self) -> None:
        self._thread = WriterThread("statsd")
        self._waiting: deque[tuple[StatsdSettings, bytes]] = deque()
        self._scheduled = False
        self._addresses: dict[tuple[str, int], _Known] = {}
        self._sockets: dict[socket.AddressFamily, socket.socket] = {}
        self.dropped = 0
        """Datagrams that could not be sent, or not in time."""

    def send(self, settings: StatsdSettings, lines: bytes) -> None:
        """Returns at once; what does not fit is counted."""
        if len(self._waiting) >= LIMIT:
            self.dropped += 1
            return
        self._waiting.append((settings, lines))
        if not self._scheduled:
            self._scheduled = True
            self._thread.put(self._flush)

    def _flush(self) -> None:
        """On the thread: everything that waits."""
        while self._waiting:
            settings, lines = self._waiting.popleft()
            try:
                self._send(settings, lines)
            except OSError:
                self.dropped += 1  # nobody listens, or no such name: told once for each address
            if not self._waiting:
                self._scheduled = False  # set before the last look: what comes now schedules itself

    def _send(self, settings: StatsdSettings, lines: bytes) -> None:
        key = (settings.host, settings.port)
        known = self._addresses.get(key)
        if known is None or known.until < time.monotonic():
            known = self._addresses[key] = self._look_up(settings)
        if known.address is None:
            self.dropped += 1
            return
        family = known.family
        if family not in self._sockets:
            made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            made.setblocking(False)
            self._sockets[family] = made
        self._sockets[family].sendto(lines, known.address)

    def _look_up(self, settings: StatsdSettings) -> _Known:
        until = time.monotonic() + ADDRESS_SECONDS
        try:
            family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_DGRAM)[0]
        except (OSError, UnicodeError) as failure:
            logger.warning("statsd: %s cannot be resolved: %s", settings.host, failure)
            return _Known(until, socket.AF_UNSPEC, None)
        return _Known(until, family, address)

    def close(self) -> None:
        """Send what waits, within a second."""
        self._thread.close(1.0)

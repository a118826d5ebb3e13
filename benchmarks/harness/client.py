"""A small HTTP client on one kept connection: cheaper than http.client, because what the client takes of the
machine is missing to the daemon that is measured."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from io import BufferedReader
from typing import Any


class Client:
    def __init__(self, port: int, timeout: float = 90.0) -> None:
        self.port = port
        self.timeout = timeout
        self._socket: socket.socket | None = None
        self._replies: BufferedReader | None = None

    def request(self, method: str, path: str) -> tuple[int, bytes]:
        """Raises OSError. A question is asked again when the kept connection turns out to be closed, an order
        is not."""
        kept = self._socket is not None
        try:
            return self._exchange(method, path)
        except OSError:
            self.close()
            if not kept or method != "GET":
                raise
            return self._exchange(method, path)

    def _exchange(self, method: str, path: str) -> tuple[int, bytes]:
        if self._socket is None or self._replies is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), self.timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._replies = self._socket.makefile("rb")
        length = "Content-Length: 0\r\n" if method == "POST" else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n{length}\r\n"
        self._socket.sendall(head.encode())
        return self._answer(self._replies)

    def _answer(self, replies: BufferedReader) -> tuple[int, bytes]:
        words = replies.readline().split()
        if len(words) < 2:
            raise ConnectionResetError("the connection was closed instead of an answer")
        headers: dict[bytes, bytes] = {}
        while (line := replies.readline().strip()):
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip().lower()
        if headers.get(b"transfer-encoding") == b"chunked":
            body = b""
            while size := int(replies.readline(), 16):
                body += replies.read(size)
                replies.readline()
            replies.readline()
        else:
            body = replies.read(int(headers.get(b"content-length", b"0")))
        if headers.get(b"connection") == b"close":
            self.close()
        return int(words[1]), body

    def get(self, path: str) -> Any:
        """The JSON answer. Raises OSError for any status but 200."""
        status, body = self.request("GET", path)
        if status != 200:
            raise OSError(f"GET {path} answers {status}")
        return json.loads(body)

    def start(self, job: str) -> int:
        return self.request("POST", f"/jobs/{job}/start")[0]

    def cancel(self, job: str) -> int:
        return self.request("POST", f"/jobs/{job}/cancel")[0]

    def totals(self, job: str) -> dict[str, int]:
        """How many recorded runs the daemon shows of a job, by outcome and `total`."""
        stats: dict[str, int] = self.get(f"/jobs/{job}/runs?limit=1")["stats"]
        return stats

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._replies = None


def fire(port: int, jobs: Iterable[str], connections: int) -> None:
    """Ask for a start of each, over some kept connections at once. Raises when one is refused."""
    waiting = deque(jobs)
    refused: list[str] = []

    def ask() -> None:
        client = Client(port)
        try:
            while waiting and not refused:
                status = client.start(waiting.popleft())
                if status not in (200, 202):
                    refused.append(f"a start was answered with {status}")
        except IndexError:
            pass  # another thread took the last one
        except OSError as failure:
            refused.append(str(failure))
        finally:
            client.close()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if refused:
        raise RuntimeError(refused[0])


def recorded(client: Client, jobs: Iterable[str], each: int, seconds: float, pause: float = 0.005) -> bool:
    """Wait until the API shows `each` recorded runs of every job; a job that has them is not asked again."""
    end = time.monotonic() + seconds
    for job in jobs:
        while client.totals(job)["total"] < each:
            if time.monotonic() > end:
                return False
            time.sleep(pause)
    return True

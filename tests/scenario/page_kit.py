"""What the tests of the page on timeouts share: small jobs, and a process outside that holds a run's output."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from rig import NEVER, Rig, until

PATIENT = "while :; do sleep 0.05; done"
"""A shell that does nothing until a signal comes; its sleeps are too short to be in the way of a trap."""

WAIT = {"timeout": 60.0}


def job(name: str, command: str | list[str], **options: Any) -> dict[str, Any]:
    """A job that only starts when it is asked to, and captures nothing unless told."""
    return {"name": name, "schedule": NEVER, "command": command, "captureStderr": False, "killTimeout": 5, **options}


def at(text: str) -> float:
    """A record's instant in seconds."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def span(record: Any, first: str, second: str) -> float:
    """Seconds between two instants of a stop."""
    return at(record["stop"][second]) - at(record["stop"][first])


class Marks:
    """A file to which jobs append words, one line each; a line is one write, so the order is the true one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "marks"
        self.path.touch()

    def say(self, word: str) -> str:
        """Shell text that appends the word."""
        return f"echo {word} >> {self.path}"

    def words(self) -> list[str]:
        return self.path.read_text().split()

    def wait(self, word: str, count: int = 1) -> None:
        until(lambda: self.words().count(word) >= count, 10, f"{count} times {word!r} in the marks")


class Outside:
    """This test process as a holder of a run's streams: it belongs to no run, so no cancel can reach it."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="held")
        self.path = f"{self._folder}/s"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(self.path)
        self._socket.listen(8)
        self._socket.settimeout(20)
        self._fds: list[int] = []

    def giving(self, *numbers: int, then: str = "time.sleep(3600)") -> list[str]:
        """A command that hands these descriptors to us, waits until we have them, and goes on with `then`."""
        program = (
            "import socket, time, os, signal\n"
            f"s = socket.socket(socket.AF_UNIX); s.connect({self.path!r})\n"
            f"socket.send_fds(s, [b'x'], {list(numbers)!r}); s.recv(1)\n{then}\n"
        )
        return [sys.executable, "-I", "-S", "-c", program]

    def take(self) -> None:
        """Receive the descriptors of one run and let it go on."""
        peer, _ = self._socket.accept()
        with peer:
            _, fds, _, _ = socket.recv_fds(peer, 1, 8)
            self._fds += fds
            peer.sendall(b"y")

    def write(self, data: bytes) -> None:
        """Write into the first stream that we hold."""
        os.write(self._fds[0], data)

    def let_go(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def close(self) -> None:
        self.let_go()
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def phase(rig: Rig, run: str, wanted: str, seconds: float = 10.0) -> Any:
    """Wait for the run to be in the phase; its view then."""
    def look() -> Any:
        view = rig.run(run)
        return view if view["phase"] == wanted else None

    return until(look, seconds, f"phase {wanted} of {run}")


def cancel(rig: Rig, run: str, **body: Any) -> Any:
    """Cancel a run and wait for the end of the sequence; its view then."""
    status, view = rig.http("POST", f"/runs/{run}/cancel?wait=30", body or None)
    assert status == 200, view
    return view


def line_count(rig: Rig, run: str, *words: str) -> int:
    """Log lines with the words, once all that was said of the run's life has been written."""
    rig.logged("exit code", "outcome:", run)
    return sum(all(word in line for word in words) for line in rig.log().splitlines())


def since(moment: float) -> float:
    return time.monotonic() - moment

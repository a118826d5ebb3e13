"""A real daemon for a test: started as a user starts it, asked through HTTP, watched through /proc.

The oracle for "nothing is left" is a tag in the arguments of every process of a job; it knows nothing of Sexton.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

NEVER = "0 0 1 1 *"
START_SECONDS = 20.0
CLOSE_SECONDS = 2.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(look: Callable[[], T], seconds: float = 10.0, what: str = "the condition") -> T:
    """Poll until `look` answers something true; fail after the bound."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() >= end:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


def always(look: Callable[[], object], seconds: float, what: str = "the condition") -> None:
    """The condition holds for the whole time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert look(), f"no longer true: {what}"
        time.sleep(0.02)


def state_of(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def alive(pid: int) -> bool:
    return state_of(pid) not in (None, "Z", "X")


def living(tag: str) -> list[int]:
    """Pids of live processes with the tag as one of their arguments (part of one, for shells)."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if tag in words and alive(int(entry)):
            found.append(int(entry))
    return found


def new_tag() -> str:
    """A number of seconds that no other test sleeps."""
    return f"{7_000_000 + time.monotonic_ns() % 900_000}.{os.getpid()}"


class Rig:
    """One daemon, which may be stopped, killed and started again on the same files."""

    def __init__(self, folder: Path, prefix: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.port = free_port()
        self.config = folder / "jobs.yaml"
        self.prefix = prefix
        self.environment: dict[str, str] = {}
        self.command: tuple[str, ...] = ("-m", "sexton")
        self.popen: dict[str, Any] = {}
        """What the process is started with instead of the usual: stdout, stdin, preexec_fn ..."""
        self.inside: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        """Where the daemon is started and asked: in a network of its own, for example."""
        self.process: subprocess.Popen[bytes] | None = None
        self._log = folder / "daemon.log"

    # ---------------------------------------------------------------- life

    def write(self, jobs: list[dict[str, Any]], **top: Any) -> None:
        """JSON is YAML; the file is replaced in one step, as an editor or a deployment does it."""
        document = {"web": {"listen": [f"http://127.0.0.1:{self.port}"]}, "jobs": jobs, **top}
        self.write_text(json.dumps(document, indent=1, ensure_ascii=False))

    def write_text(self, text: str) -> None:
        new = self.config.with_suffix(".new")
        new.write_text(text)
        new.replace(self.config)

    def start(self, jobs: list[dict[str, Any]] | None = None, **top: Any) -> Rig:
        if jobs is not None:
            self.write(jobs, **top)
        self.spawn()
        until(self._answers, START_SECONDS, "GET /version")
        return self

    def spawn(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log, self.inside():
            options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **self.popen}
            self.process = subprocess.Popen(
                [*self.prefix, sys.executable, *self.command, "-c", str(self.config)], cwd=self.folder,
                env={**os.environ, **self.environment}, **options,
            )
        return self.process

    def _answers(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon ended with {self.process.returncode}: {self.log()[-2000:]}")
        try:
            return self.http("GET", "/version")[0] == 200
        except OSError:
            return False

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill9(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def wait(self, seconds: float = 20.0) -> int:
        assert self.process is not None
        return self.process.wait(seconds)

    def stop(self) -> int:
        """Twice SIGTERM: the daemon cancels what runs and ends."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
            until(lambda: self._ended() or self._shutting_down(), 20.0, "an answer to SIGTERM")
            self.process.send_signal(signal.SIGTERM)  # not before: two that wait are one to the kernel
        return self.wait(60.0)

    def _ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def _shutting_down(self) -> bool:
        health = self.http_or_none("/health")
        return isinstance(health, dict) and health["status"] == "shutting down"

    def close(self) -> None:
        """Whatever state it is in. The signal is repeated, because the first two may have come as one; a daemon whose
        jobs take their time is killed, and its supervisors end them."""
        if self.process is None:
            return
        end = time.monotonic() + CLOSE_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.1)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # ---------------------------------------------------------------- asking

    def http(self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None,
             timeout: float = 90.0) -> tuple[int, Any]:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, data=data)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with self.inside(), urllib.request.urlopen(request, timeout=timeout) as reply:
                status, raw = reply.status, reply.read()
        except urllib.error.HTTPError as refused:
            status, raw = refused.code, refused.read()
        except urllib.error.URLError as failure:
            raise OSError(str(failure)) from None
        try:
            return status, json.loads(raw)
        except ValueError:
            return status, raw.decode("utf-8", "replace")

    def http_or_none(self, path: str) -> Any:
        try:
            return self.http("GET", path)[1]
        except OSError:
            return None

    def state_of(self, job: str, key: str) -> str | None:
        """What the store in the folder `state` keeps for a job under a key."""
        ledger = self.folder / "state" / "default" / "ledger.sqlite3"
        with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
            row = connection.execute("SELECT value FROM job_state WHERE job = ? AND key = ?", (job, key)).fetchone()
        return None if row is None else str(row[0])

    def job(self, name: str = "j") -> Any:
        status, body = self.http("GET", f"/jobs/{name}")
        assert status == 200, body
        return body

    def runs(self, name: str = "j") -> list[Any]:
        status, body = self.http("GET", f"/jobs/{name}/runs?limit=1000")
        assert status == 200, body
        runs: list[Any] = body["runs"]
        return runs

    def fire(self, name: str = "j") -> str:
        status, body = self.http("POST", f"/jobs/{name}/start")
        assert status == 200, body
        run: str = body["run"]
        return run

    def run(self, run_id: str) -> Any:
        status, body = self.http("GET", f"/runs/{run_id}")
        assert status == 200, body
        return body

    def recorded(self, run_id: str, seconds: float = 15.0) -> Any:
        """Wait for the run's record."""
        def look() -> Any:
            record = self.run(run_id)
            return record if record["phase"] == "recorded" else None

        return until(look, seconds, f"the record of {run_id}")

    def running(self, run_id: str, seconds: float = 10.0) -> int:
        """Wait until the run's own process is there; its pid."""
        def look() -> int | None:
            pid: int | None = self.run(run_id)["pid"]
            return pid

        pid = until(look, seconds, "the own process")
        assert pid is not None
        return pid

    def logged(self, *words: str, seconds: float = 5.0) -> str:
        """Wait for a log line with all the words."""
        def look() -> str | None:
            return next((line for line in self.log().splitlines() if all(word in line for word in words)), None)

        return until(look, seconds, f"a log line with {words}") or ""


def rig(folder: Path) -> Iterator[Rig]:
    made = Rig(folder)
    try:
        yield made
    finally:
        made.close()

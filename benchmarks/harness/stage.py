"""Where a measurement takes place: a folder, the job program, and daemons that end when it does."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from harness import configuration, processes
from harness.client import Client
from harness.program import Program
from harness.scale import Scale

T = TypeVar("T")

START_SECONDS = 240.0
STOP_SECONDS = 120.0
ANSWER_EVERY = 0.004

Metrics = dict[str, float]


@dataclass(frozen=True)
class Contestant:
    """A daemon by its command lines; `{config}` stands for the file."""

    name: str
    command: str
    check: str

    def argv(self, config: str) -> list[str]:
        return [word.replace("{config}", config) for word in shlex.split(self.command)]

    def check_argv(self, config: str) -> list[str]:
        return [word.replace("{config}", config) for word in shlex.split(self.check)]


@dataclass(frozen=True)
class Case:
    """One table: what is measured of each daemon, and of the bare work where there is such a thing."""

    title: str
    measure: Callable[[Stage, Contestant], Metrics]
    bare: Callable[[Stage], Metrics] | None = None
    rounds: int = 3


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(look: Callable[[], T], seconds: float, pause: float = 0.002) -> T | None:
    """The first true answer; None when there is none within the bound."""
    end = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end:
            return None
        time.sleep(pause)
    return found


def require(look: Callable[[], T], seconds: float, what: str, pause: float = 0.002) -> T:
    found = until(look, seconds, pause)
    if found is None:
        raise TimeoutError(f"not within {seconds:g} s: {what}")
    return found


class Running:
    """A live daemon, from its exec on."""

    def __init__(self, argv: list[str], config: Path, port: int, output: int | None) -> None:
        self.folder = folder = config.parent
        self.config = config
        self.port = port
        self.client = Client(port)
        self.started_in = 0.0
        """Seconds from exec to the first answer of the API."""
        with open(folder / "log", "ab") as log:
            self.began = time.monotonic()
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log if output is None else output, stderr=log,
                cwd=folder, start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def cpu(self) -> processes.Usage:
        return processes.cpu(self.pid)

    def wait_ready(self) -> None:
        end = self.began + START_SECONDS
        while not self._answers():
            if self.process.poll() is not None:
                tail = (self.folder / "log").read_text(errors="replace")[-500:]
                raise RuntimeError(f"the daemon ended with {self.process.returncode}: {tail}")
            if time.monotonic() > end:
                raise TimeoutError(f"no answer within {START_SECONDS:g} s")
            time.sleep(ANSWER_EVERY)
        self.started_in = time.monotonic() - self.began

    def _answers(self) -> bool:
        try:
            return self.client.request("GET", "/version")[0] == 200
        except OSError:
            return False

    def kill(self) -> None:
        """SIGKILL to the daemon alone; what it ran is left to itself."""
        self.process.kill()
        self.process.wait(30)
        self.client.close()

    def stop(self, seconds: float = STOP_SECONDS) -> float:
        """End the daemon, and whatever of its processes is left then; the seconds that a clean end took."""
        self.client.close()
        if self.process.poll() is not None:
            return 0.0
        tree = processes.Watch(processes.descendants(self.pid))
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)
        took = time.monotonic() - began
        tree.end()
        return took


class Stage:
    def __init__(self, folder: Path, program: Program, scale: Scale, told: Callable[[str], None]) -> None:
        self.folder = folder
        self.program = program
        self.scale = scale
        self.round = 0
        self.note = told
        self._numbers = itertools.count()

    def path(self, name: str) -> str:
        """A new name in the folder."""
        return str(self.folder / f"{name}-{next(self._numbers)}")

    def written(self, jobs: Sequence[str], *, state: str | None, capture: bool) -> tuple[Path, int]:
        folder = Path(self.path("daemon"))
        folder.mkdir()
        port = free_port()
        config = folder / "jobs.yaml"
        config.write_text(configuration.document(jobs, port, state, capture))
        return config, port

    @contextmanager
    def daemon(self, who: Contestant, jobs: Sequence[str], *, state: str | None = None, capture: bool = False,
               output: int | None = None) -> Iterator[Running]:
        """A daemon with these jobs whose API answers."""
        config, port = self.written(jobs, state=state, capture=capture)
        with self.launched(who.argv(str(config)), config, port, output) as running:
            yield running

    @contextmanager
    def launched(
        self, argv: list[str], config: Path, port: int, output: int | None = None,
    ) -> Iterator[Running]:
        running = Running(argv, config, port, output)
        try:
            running.wait_ready()
            yield running
        finally:
            # After a failure nobody cares how clean the end is.
            running.stop(STOP_SECONDS if sys.exc_info()[0] is None else 5.0)


def spawned(argv: list[str]) -> int:
    """A process in a session of its own, as every daemon here starts its jobs: the bare reference."""
    return os.posix_spawn(argv[0], argv, os.environ, setsid=True)

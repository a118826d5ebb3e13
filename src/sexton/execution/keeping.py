"""The daemon's side of a run that outlives it: what its supervisor is told, and the output file that the supervisor
writes. The supervisor's side is `birth/vigil.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from sexton.execution.birth import wire
from sexton.execution.birth.door import SOCKET_SUFFIX, STORY_SUFFIX
from sexton.execution.limits import Intended
from sexton.execution.messages import Stream
from sexton.execution.runlog import log_name
from sexton.model.job import EndsWhen, JobSpec, KillWaitsFor, Leftovers
from sexton.model.run import Launch

RUNTIME_DIRECTORY = "kept"
"""Below the state directory: a socket, and after an unwatched end a file, for each run that outlives the daemon."""
LOOK_SECONDS = 0.1
"""Between two looks whether the supervisor lives, while its last word is waited for."""
STREAMS = {1: Stream.STDOUT, 2: Stream.STDERR}


class Terms(msgspec.Struct, frozen=True):
    """What a later daemon must know of the run, whatever the configuration says by then. The supervisor carries it
    unread. What may be secret or large (command, environment, secrets, standard input, reports) is left out."""

    job: JobSpec
    launch: Launch
    limits: Intended | None = None


def terms_of(job: JobSpec, launch: Launch, limits: Intended | None) -> bytes:
    bare = replace(job, command="-", environment=(), secrets=(), stdin=None, reports=None)
    return msgspec.json.encode(Terms(bare, launch, limits))


def read_terms(data: bytes) -> Terms:
    """Raises msgspec.DecodeError when another version's terms cannot be read."""
    return msgspec.json.decode(data, type=Terms)


class KeptLog:
    """Stands where a `RunLog` stands, for output that the run's supervisor writes to the file."""

    full = False

    def __init__(self, run_id: str) -> None:
        self.name = log_name(run_id)
        self.dropped = 0
        self.touched = False
        self.order: Callable[[bytes], bool] = lambda _: False
        """Send an order to the supervisor; False when it is gone."""
        self.came_before: Callable[[Stream, int], None] = lambda _stream, _count: None
        """Told for each stream of a run that was taken over: bytes that we have not seen."""
        self._whole = False
        self._done: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        self.touched = True

    def heard(self, report: tuple[int, ...]) -> None:
        """OUTPUT or ATTACHED."""
        if report[2] == wire.OUTPUT:
            self.dropped = report[4]
            self.mark_whole()
        elif report[9] in STREAMS:
            self.touched = self.touched or report[4] > 0
            self.came_before(STREAMS[report[9]], report[4])

    def mark_whole(self) -> None:
        self._whole = True
        done, self._done = self._done, None
        if done is not None:
            done()

    def finish(self, done: Callable[[], None]) -> None:
        """`done` is called once, when the supervisor says that the file is whole, or cannot say it any more."""
        if self._whole or not self.order(wire.FINISH_OUTPUT):
            done()
            return
        self._done = done
        asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self._done is not None and not self.order(b""):
            self.mark_whole()
        elif self._done is not None:
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)


class Keeping(msgspec.Struct, frozen=True):
    """What a supervisor is told of a run that it is to keep."""

    run: str
    directory: Path
    output: Path
    cap: int
    timeout: float | None
    """Seconds from the start; the supervisor enforces it while no daemon is there."""
    grace: float
    grace_is_for_the_tree: bool
    ends_at_exit: bool
    ends_leftovers: bool
    terms: bytes
    log: KeptLog
    masks: list[bytes]
    """What the supervisor takes out of the output before it passes it on."""

    def request(self) -> dict[str, Any]:
        return {
            "run": self.run, "directory": str(self.directory), "output": str(self.output), "cap": self.cap,
            "timeout": self.timeout, "grace": self.grace, "tree": self.grace_is_for_the_tree,
            "at_exit": self.ends_at_exit, "ends_leftovers": self.ends_leftovers, "terms": self.terms,
            "masks": self.masks,
        }


class KeptRuns:
    """Where the runs that outlive the daemon are found again."""

    def __init__(self, state: Path, output: Path, cap: int) -> None:
        self.move(state, output, cap)

    def move(self, state: Path, output: Path, cap: int) -> None:
        """For runs that start from now on; one that lives would not be found again."""
        self.directory = state.absolute() / RUNTIME_DIRECTORY
        self._output = output.absolute()
        self._cap = cap

    def keeping(self, job: JobSpec, launch: Launch, limits: Intended | None, masks: list[bytes]) -> Keeping:
        return Keeping(
            run=launch.id, directory=self.directory, output=self._output / log_name(launch.id), cap=self._cap,
            timeout=job.execution_timeout, grace=job.kill_timeout,
            grace_is_for_the_tree=job.kill_waits_for is KillWaitsFor.TREE, ends_at_exit=job.ends_when is EndsWhen.EXIT,
            ends_leftovers=job.leftovers is Leftovers.KILL, terms=terms_of(job, launch, limits), log=KeptLog(launch.id),
            masks=masks,
        )

    def names(self) -> set[str]:
        """Ids of the runs that have something here; makes the directory. Raises OSError."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        return {path.stem for path in self.directory.iterdir() if path.suffix in (SOCKET_SUFFIX, STORY_SUFFIX)}

    def story_path(self, run_id: str) -> Path:
        return self.directory / (run_id + STORY_SUFFIX)

    def clear(self, run_id: str) -> None:
        """Nobody is there any more."""
        for suffix in (SOCKET_SUFFIX, STORY_SUFFIX, STORY_SUFFIX + ".new"):
            (self.directory / (run_id + suffix)).unlink(missing_ok=True)

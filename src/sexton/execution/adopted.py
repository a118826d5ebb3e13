"""The handle on a run that another daemon has started: the connection to its supervisor, or what was left of that."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from sexton.execution import cgroup, processes
from sexton.execution.birth import kernel, wire
from sexton.execution.birth.door import CREDENTIALS, SOCKET_SUFFIX
from sexton.execution.birth.vigil import VERSION
from sexton.execution.keeping import KeptLog
from sexton.execution.messages import ExecutionMessage, SupervisorLost, Swept
from sexton.execution.processes import described, processes_below
from sexton.execution.reports import is_last, messages
from sexton.execution.story import LARGEST, Story
from sexton.model.clock import Monotonic
from sexton.model.run import Survivor, Witness

logger = logging.getLogger("sexton.containment")

ANSWER_SECONDS = 5.0
SWEEP_SECONDS = 10.0
WATCH_SECONDS = 0.5


class Meeting(msgspec.Struct, frozen=True):
    """A supervisor has been found at its socket. `told` is empty when it did not answer in time."""

    connection: socket.socket
    pid: int
    """0: it lives in a pid namespace that we do not see."""
    told: bytes


def approach(directory: Path, run_id: str) -> Meeting | None:
    """Connect to the supervisor of a kept run and hear its story; blocking, bounded. None when nobody is there.

    Only a process of our own user or of root is listened to. One that was stopped is set going."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(1.0)
    try:
        folder = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            connection.connect(f"/proc/self/fd/{folder}/{run_id}{SOCKET_SUFFIX}")
        finally:
            os.close(folder)
        pid, uid, _ = CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
        if uid not in (0, os.geteuid()):
            logger.error("run %s: a process of user %d waits at its socket; it is not listened to", run_id, uid)
            connection.close()
            return None
        connection.send(wire.HELLO + b"%d" % VERSION)
        told = _answer(connection, pid)
    except OSError:
        connection.close()
        return None
    if told is None:
        connection.close()
        return None
    return Meeting(connection, pid, told)


def _answer(connection: socket.socket, pid: int) -> bytes | None:
    limit = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < limit:
        if pid:
            os.kill(pid, signal.SIGCONT)
        try:
            return connection.recv(LARGEST) or None
        except TimeoutError:
            continue
    return b""


class Adopted:
    """A run whose supervisor answers. `post` gets what it reports from now on."""

    def __init__(self, meeting: Meeting, story: Story, log: KeptLog, post: Callable[[ExecutionMessage], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = meeting.connection
        self.pid = meeting.pid
        self._zygote = kernel.parent_of(meeting.pid) if meeting.pid else 0
        self._story = story
        self._log = log
        self._post = post
        self.over = story.empty is not None or story.failed is not None
        self._losing: asyncio.Task[None] | None = None
        log.order = self._order
        self._connection.setblocking(False)
        self._loop.add_reader(self._connection.fileno(), self._hear)

    def attach(self, ends: list[tuple[int, int]]) -> None:
        """Have the output from now on: (pipe, stream number in the job). The pipes are closed here."""
        try:
            order = wire.ATTACH + bytes(number for _, number in ends)
            socket.send_fds(self._connection, [order], [fd for fd, _ in ends])
        except OSError as failure:
            logger.error("run %s: its output cannot be followed: %s", self._story.run, failure)
        finally:
            for fd, _ in ends:
                os.close(fd)

    def hear(self) -> None:
        """Take in all that has been reported."""
        while self._hear():
            pass

    def _hear(self) -> bool:
        if self._connection.fileno() < 0:
            return False
        try:
            data = self._connection.recv(LARGEST)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._close()
            if not self.over:
                self._losing = self._loop.create_task(self._lost())
            return False
        for report in wire.REPORT.iter_unpack(data):
            if report[2] in (wire.OUTPUT, wire.ATTACHED):
                self._log.heard(report)
            for message in messages(report, self.is_alone):
                self._post(message)
            self.over = self.over or is_last(report)
        return True

    def _close(self) -> None:
        if self._connection.fileno() >= 0:
            self._loop.remove_reader(self._connection.fileno())
            self._connection.close()

    async def _lost(self) -> None:
        """It was killed, by its own job for example. The zygote that made it ends what it held; where that is dead,
        too, we do what can be done, and nothing is proven."""
        self.over = True
        self._post(SupervisorLost(Monotonic(self._loop.time())))
        witness = Witness.SWEEP if await self._swept_by_zygote() else await self._emptied_cgroup()
        self._post(Swept(Monotonic(self._loop.time()), witness))

    async def _swept_by_zygote(self) -> bool:
        """It stays for a moment after the last of its supervisors, so that this can be seen."""
        limit = self._loop.time() + SWEEP_SECONDS
        while _is_zygote(self._zygote) and self._loop.time() < limit:
            below = kernel.children_of(self._zygote)
            swept = self.pid not in below and all(_is_supervisor(pid) for pid in below)
            if swept and _is_zygote(self._zygote):  # alive still: what it had was not on its way to somebody else
                return True
            await asyncio.sleep(0.01)
        return False

    async def _emptied_cgroup(self) -> Witness | None:
        if self._story.cgroup is None:
            return None
        paths = [self._story.cgroup, *self._story.places]
        limit = self._loop.time() + SWEEP_SECONDS
        for path in paths:
            cgroup.kill(path)
        while any(map(cgroup.populated, paths)):
            if self._loop.time() >= limit:
                return None
            await asyncio.sleep(0.01)
        return Witness.CGROUP

    # ---------------------------------------------------------------- orders

    def _order(self, order: bytes) -> bool:
        if self._connection.fileno() < 0:
            return False
        try:
            if order:
                self._connection.send(order)
                self.rouse()
        except OSError as failure:
            logger.debug("run %s: its supervisor takes no orders: %s", self._story.run, failure)
        return True

    def withdraw(self) -> bool:
        return False

    def terminate(self) -> None:
        """Once only, whichever daemon or supervisor asked for it: a second SIGTERM can mean something else to a job."""
        if self._story.signalled is None:
            self._order(wire.TERMINATE)

    def kill(self) -> None:
        self._order(wire.KILL)

    def release(self) -> None:
        self._order(wire.RELEASE)

    def is_alone(self, said_so: bool) -> bool | None:
        """Whether nobody but the supervisor is in the run's cgroup; None without one."""
        return alone_in(self._story, said_so)

    def left_behind(self) -> tuple[Survivor, ...]:
        if not self.pid:
            return ()
        return described(others_in(self._story)) if self.over else processes_below(self.pid)

    def rouse(self) -> None:
        self._signal(signal.SIGCONT)

    def end_supervisor(self) -> None:
        if not self.over:
            logger.error("the supervisor of run %s (pid %d) does not answer: it is ended, and all it holds",
                         self._story.run, self.pid)
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid and self._connection.fileno() >= 0:
            try:
                os.kill(self.pid, number)
            except OSError as failure:
                logger.debug("run %s: its supervisor cannot be signalled: %s", self._story.run, failure)

    def note_stop(self, stop: bytes) -> None:
        self._order(wire.NOTE + stop)

    def forget(self) -> None:
        self._order(wire.FORGET)
        self._close()


def others_in(story: Story) -> list[int]:
    """Processes in the cgroup of the run besides its supervisor. Those not below that one were moved there."""
    return [pid for pid in cgroup.members(story.cgroup) if pid != story.supervisor] if story.cgroup else []


def alone_in(story: Story, said_so: bool) -> bool | None:
    return None if story.cgroup is None else said_so or not others_in(story)


class Told:
    """A run that ended while no daemon was there; its story lies in a file, which goes when the run is recorded."""

    def __init__(self, path: Path, left: tuple[Survivor, ...]) -> None:
        """`left` is what the run has left behind, as the story says."""
        self._path = path
        self._left = left

    def withdraw(self) -> bool:
        return False

    def nothing(self) -> None:
        """There is nothing left to give orders to."""

    terminate = kill = release = rouse = end_supervisor = hear = nothing

    def left_behind(self) -> tuple[Survivor, ...]:
        return self._left

    def note_stop(self, stop: bytes) -> None:
        """Nobody is there to be told."""

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


class Watched:
    """A run that lives and whose supervisor we cannot talk to (now): it is seen, counted and left alone."""

    def __init__(self, run_id: str, pid: int, why: str) -> None:
        self._run_id = run_id
        self._pid = pid
        self._ticks = processes.start_ticks(pid)
        self._why = why

    @property
    def there(self) -> bool:
        return kernel.is_alive(self._pid) and processes.start_ticks(self._pid) == self._ticks

    def withdraw(self) -> bool:
        return False

    def refuse(self) -> None:
        logger.error("run %s cannot be told to stop: %s; its processes are below pid %d", self._run_id, self._why,
                     self._pid)

    terminate = kill = end_supervisor = refuse

    def release(self) -> None:
        """It is not ours to let go."""

    rouse = forget = hear = release

    def left_behind(self) -> tuple[Survivor, ...]:
        return processes_below(self._pid) if self.there else ()

    def note_stop(self, stop: bytes) -> None:
        """It would not hear it."""


def _is_zygote(pid: int) -> bool:
    return pid > 1 and kernel.name_of(pid) == wire.ZYGOTE_NAME and kernel.is_alive(pid)


def _is_supervisor(pid: int) -> bool:
    return kernel.name_of(pid) in (wire.SUPERVISOR_NAME, wire.KEEPER_NAME)

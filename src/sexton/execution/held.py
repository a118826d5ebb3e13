"""One run inside one supervisor: the handle that the run keeps, and the daemon's end of the supervisor."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from sexton.execution import cgroup
from sexton.execution.birth import kernel, wire
from sexton.execution.keeping import KeptLog
from sexton.execution.messages import Emptied, ExecutionMessage
from sexton.execution.processes import described, processes_below
from sexton.execution.zygote import Born
from sexton.model.clock import Monotonic
from sexton.model.run import Survivor

logger = logging.getLogger("sexton.containment")

ROUSE_SECONDS = 4.0
"""A supervisor that has not told of a start for so long may have been stopped by a job: it is set going."""
GIVE_UP_SECONDS = 30.0
"""After so long it is ended (its cgroup may be frozen): its run is lost then, but the job and its schedule go on."""


class Grip(Protocol):
    """What a run asks of whatever holds its processes. `Held` is the usual one; those in `adopted` hold what an earlier
    daemon has started."""

    def withdraw(self) -> bool: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def release(self) -> None: ...
    def left_behind(self) -> tuple[Survivor, ...]: ...
    def rouse(self) -> None: ...
    def end_supervisor(self) -> None: ...
    def hear(self) -> None: ...
    def note_stop(self, stop: bytes) -> None: ...
    def forget(self) -> None: ...


class Keeper(Protocol):
    """Whoever keeps the queue of runs and the supervisors."""

    def take_back(self, held: Held) -> None: ...
    def let_go(self, supervisor: WarmSupervisor) -> None: ...
    def hear(self) -> None: ...
    def strays(self) -> list[int]: ...


class HeldState(Enum):
    QUEUED = "queued"
    SENT = "sent"
    LIVE = "live"
    OVER = "over"


class Held:
    """One run inside one supervisor, from the request to the proof that nothing is left."""

    __slots__ = (
        "crowded", "fds", "keeper", "log", "ordered", "post", "request", "run", "state", "supervisor", "taken_at",
    )

    def __init__(
        self, keeper: Keeper, run: int, request: bytes, fds: list[int], post: Callable[[ExecutionMessage], None],
        log: KeptLog | None = None,
    ) -> None:
        self.keeper = keeper
        self.run = run
        self.request = request
        self.fds = fds
        self.post = post
        self.state = HeldState.QUEUED
        self.supervisor: WarmSupervisor | None = None
        self.taken_at = 0.0
        self.crowded = False
        """When the run was over, somebody who was not below the supervisor was in its cgroup."""
        self.ordered = False
        """An order was given, and its answer is waited for."""
        self.log = log
        """Set when the run outlives us."""
        if log is not None:
            log.order = self._tell_keeper

    def close_fds(self) -> None:
        """Ours are kept until the start is known: a supervisor that retires instead leaves the run to another."""
        for fd in self.fds:
            os.close(fd)
        self.fds = []
        self.request = b""

    def withdraw(self) -> bool:
        """Take the run back before any supervisor was asked. False when it is too late for that."""
        if self.state is not HeldState.QUEUED:
            return False
        self.keeper.take_back(self)
        return True

    def terminate(self) -> None:
        """Graceful step: SIGTERM to the group and to descendants that left it. Answered by `Signalled`."""
        self._order(wire.TERMINATE)

    def kill(self) -> None:
        """Forced step: SIGKILL to everything below the supervisor until nothing is left. Answered by `Emptied`."""
        self._order(wire.KILL)

    def release(self) -> None:
        """The run has ended by itself: what it left behind is kept, also when the daemon ends."""
        self._order(wire.RELEASE)
        if self.supervisor is not None:
            self.keeper.let_go(self.supervisor)

    def left_behind(self) -> tuple[Survivor, ...]:
        """The processes of the run that are alive now, as /proc tells."""
        if self.supervisor is None:
            return ()
        if self.state is HeldState.OVER:
            return described(self.supervisor.others()) if self.crowded else ()
        if self.supervisor.is_dead:  # what it held has gone to the zygote, beside what others may have left
            return described({*self.keeper.strays(), *self.supervisor.others()})
        return processes_below(self.supervisor.pid)

    def note_stop(self, stop: bytes) -> None:
        """The run is being stopped, and why: for a later daemon, if this one should not see the end."""
        self._tell_keeper(wire.NOTE + stop)

    def forget(self) -> None:
        """The run is recorded: nobody will have to come back for it."""
        if self.supervisor is not None and self._tell_keeper(wire.FORGET):
            self.supervisor.keeps = False

    def _tell_keeper(self, order: bytes) -> bool:
        if self.log is None or self.supervisor is None or self.supervisor.private.fileno() < 0:
            return False
        if order:
            self.supervisor.send(order)
            self.supervisor.rouse()
        return True

    def rouse(self) -> None:
        if self.supervisor is not None and self.state is not HeldState.OVER:
            self.supervisor.rouse()

    def end_supervisor(self) -> None:
        """When it does not do as it is told: the zygote ends what it held, and reports it dead when nothing is left."""
        if self.supervisor is not None and self.state is not HeldState.OVER:
            self.supervisor.end()

    def hear(self) -> None:
        """Have what supervisors have reported passed on at once."""
        self.keeper.hear()

    def _order(self, order: bytes) -> None:
        self.ordered = True
        if self.supervisor is not None and self.state is not HeldState.OVER:
            self.supervisor.send(order)
            self.supervisor.rouse()


class WarmSupervisor:
    __slots__ = ("_cgroup", "crowded", "held", "keeps", "number", "orphan", "pid", "private", "retired")

    def __init__(self, born: Born, cgroups: str | None) -> None:
        self.number = born.number
        self.pid = born.pid
        self._cgroup = f"{cgroups}/s{born.number}" if born.in_cgroup else None
        self.private = born.private
        self.held: Held | None = None
        self.crowded: Held | None = None
        """The last run, when somebody else was in its cgroup at its end."""
        self.retired = False
        self.orphan = False
        """Its zygote is dead."""
        self.keeps = False
        """It has a run that outlives us, and whose end is not recorded."""

    @property
    def in_cgroup(self) -> bool:
        return self._cgroup is not None

    @property
    def is_dead(self) -> bool:
        """Or about to be: its pid may be a stranger's."""
        return self.private.fileno() < 0

    def is_alone(self, said_so: bool) -> bool | None:
        """Whether nobody else is in its cgroup; a cgroup below that nobody is in does not count. None without one."""
        return None if self._cgroup is None else said_so or not self.others()

    def others(self) -> list[int]:
        """Processes in its cgroup besides itself. Those that are not below it were moved there by somebody."""
        return [pid for pid in cgroup.members(self._cgroup) if pid != self.pid] if self._cgroup is not None else []

    def tell_the_crowd_is_gone(self, now: float) -> None:
        """It has been buried, and whoever else was in its cgroup has been ended then."""
        if self.crowded is not None and not self.others():
            self.crowded.post(Emptied(Monotonic(now), True))

    def send(self, order: bytes) -> None:
        try:
            self.private.send(order)
        except OSError as failure:
            logger.debug("supervisor %d does not take orders: %s", self.number, failure)

    def rouse(self) -> None:
        """Its own run may have stopped it (SIGSTOP); to a supervisor that runs this is nothing."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Only where that makes it easier to end what it holds: a frozen cgroup is killed whole, a stopped supervisor
        does nothing. One that is busy with more processes than it can end is left to it."""
        if self.in_cgroup or _is_stopped(self.pid):
            logger.error("supervisor %d (pid %d) does not answer: it is ended, and all it holds", self.number, self.pid)
            if self._cgroup is not None and not self.is_dead:
                cgroup.kill(self._cgroup)
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_dead:
            return
        try:
            os.kill(self.pid, number)
        except OSError as failure:
            logger.debug("supervisor %d cannot be signalled: %s", self.number, failure)

    def give(self, held: Held) -> None:
        """Hand over a request. Raises OSError; then the run has not been started."""
        self.keeps = held.log is not None
        if len(held.request) <= wire.INLINE_REQUEST:
            if held.fds:
                socket.send_fds(self.private, [held.request], held.fds)
            else:
                self.private.send(held.request)
            return
        memfd = os.memfd_create("sexton-request", os.MFD_CLOEXEC)
        try:
            view = memoryview(held.request)
            while view:
                view = view[os.write(memfd, view):]
            socket.send_fds(self.private, [b"M"], [*held.fds, memfd])
        finally:
            os.close(memfd)


def _is_stopped(pid: int) -> bool:
    return kernel.stat_of(pid)[:1] in ([b"T"], [b"t"])


def see_to_silent(supervisors: Iterable[WarmSupervisor], now: float) -> None:
    """Bounded time for those that were given a run and have not said that it has started; and whoever was stopped
    later is set going, or the end of its run would never be told."""
    for supervisor in supervisors:
        held = supervisor.held
        if held is None or now - held.taken_at < ROUSE_SECONDS:
            continue
        if held.state is HeldState.SENT and now - held.taken_at > GIVE_UP_SECONDS:
            supervisor.end()
        else:
            supervisor.rouse()

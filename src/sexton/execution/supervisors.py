"""The pool of warm supervisors; `held.py` has the handle on one run inside one of them.

One request is outstanding at each supervisor and the queue stays here: cancel before start is a deletion, and a
supervisor that dies takes exactly one known run with it. Policy and figures: docs/decisions/0002-supervisors.md.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
from collections import deque
from collections.abc import Callable, Sequence

from sexton.execution import cgroup, orphans, request, sizing
from sexton.execution.birth import wire
from sexton.execution.gate import Gate
from sexton.execution.held import Held, HeldState, WarmSupervisor, see_to_silent
from sexton.execution.keeping import Keeping
from sexton.execution.lastwords import LastWords
from sexton.execution.messages import Emptied, ExecutionMessage, StartFailed, SupervisorLost, Swept
from sexton.execution.news import News
from sexton.execution.plan import Plan
from sexton.execution.reports import is_last, messages
from sexton.execution.zygote import Born, Dead, Zygote
from sexton.model.clock import Monotonic
from sexton.model.run import Containment

logger = logging.getLogger("sexton.containment")

READ_SIZE = wire.REPORT.size * 1638
END_SECONDS = 10.0  # that they have at the end of the daemon


class Supervisors:
    """Starts runs in supervisors, as many at a time as there are runs; grows and trims the pool."""

    def __init__(self, cgroup_base: str | None, descriptors: int | None = None, words: LastWords | None = None):
        """`descriptors` is the soft limit that jobs start with; without it they get ours."""
        self._loop = asyncio.get_running_loop()
        self._cgroup = cgroup_base
        self._descriptors = descriptors or resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._words = words
        self._first_of_zygote = 0
        self._zygote: Zygote | None = None
        self._all: dict[int, WarmSupervisor] = {}
        self._idle: list[WarmSupervisor] = []
        self._queue: deque[Held] = deque()
        self._expected = 0
        self._next_run = 0
        self._next_number = 0
        self._growth: asyncio.TimerHandle | None = None
        self._trim: asyncio.TimerHandle | None = None
        self._last_progress = 0.0  # the last end of a run, or when the first supervisors may have got so far
        self._last_busy = 0.0
        self._failed_forks = 0
        self._sizing = sizing.Sizing()
        self._closing = False
        self._news = News(self._loop)
        self._report_read, self._report_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._report_write, True)
        self._loop.add_reader(self._report_read, self._read_reports)

    @property
    def containment(self) -> Containment:
        return Containment.SUPERVISOR_CGROUP if self._cgroup else Containment.SUPERVISOR

    @property
    def counts(self) -> dict[str, int]:
        return {"supervisors": len(self._all), "idle": len(self._idle), "waiting": len(self._queue)}

    # ---------------------------------------------------------------- starting

    def submit(
        self, plan: Plan, fds: Sequence[tuple[int, int]], post: Callable[[ExecutionMessage], None],
        gate: Gate | None = None, keeping: Keeping | None = None,
    ) -> Held:
        """Start a run as soon as a supervisor is free, and the gate open; never waits. `fds` are (descriptor, number in
        the job) and are owned and closed by the pool from here on. With `keeping` the run outlives us."""
        self._next_run = (self._next_run + 1) & 0xFFFFFFFF
        patience = 0 if plan.hasty else sizing.PATIENCE_MS
        encoded = request.encode(self._next_run, plan, [target for _, target in fds], patience, keeping)
        held = Held(self, self._next_run, encoded, [fd for fd, _ in fds], post, keeping.log if keeping else None)
        if gate is not None and not gate.open:
            gate.waiting.append(held)
        else:
            self._enqueue(held)
        return held

    def _enqueue(self, held: Held) -> None:
        if self._idle:
            self._assign(self._idle.pop(), held)
        else:
            self._queue.append(held)
            self._want_growth()

    def open_gate(self, gate: Gate) -> None:
        """The instant has come: start the runs that were made ready for it."""
        gate.open = True
        for held in gate.waiting:
            if held.state is HeldState.QUEUED:
                self._enqueue(held)
        gate.waiting.clear()

    def _assign(self, supervisor: WarmSupervisor, held: Held) -> None:
        supervisor.held, held.supervisor = held, supervisor
        held.taken_at = self._loop.time()
        held.state = HeldState.SENT
        try:
            supervisor.give(held)
        except OSError as failure:
            supervisor.held = held.supervisor = None
            supervisor.retired = True
            if failure.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                held.state = HeldState.QUEUED  # it died before it could take the run: nothing was started
                self._queue.appendleft(held)
                self._want_growth()
            else:
                supervisor.private.close()
                self._fail(held, failure.errno or errno.EIO, "cannot hand the run to a supervisor")

    def _fail(self, held: Held, number: int, what: str) -> None:
        held.close_fds()
        held.state = HeldState.OVER
        held.post(StartFailed(number, what, Monotonic(self._loop.time())))

    def take_back(self, held: Held) -> None:
        if held in self._queue:  # or it waits at a gate
            self._queue.remove(held)
        held.close_fds()
        held.state = HeldState.OVER

    # ---------------------------------------------------------------- pool

    def warm_up(self) -> None:
        """A run is coming: if it is the first, have its supervisors made while its intent is written."""
        if self._zygote is None and not self._all:
            self._fork(sizing.MINIMUM)

    def prefill(self, due: int) -> None:
        """Have supervisors ready for `due` runs that are about to start: for as many as are likely to be long ones."""
        if (missing := self._sizing.missing(due, len(self._idle) + self._expected)) > 0:
            self._fork(missing)

    def _fork(self, count: int) -> None:
        if self._closing:
            return
        if self._zygote is None:
            try:
                self._zygote = Zygote(self._report_write, self._cgroup, self._next_number, self._descriptors,
                                      self._heard, self._words)
            except OSError as refused:
                self._fork_failed(refused.errno or errno.EAGAIN)
                return
        self._expected += count
        self._next_number += count
        self._last_busy = self._loop.time()
        self._zygote.fork(count)
        self._trim = self._trim or self._loop.call_later(sizing.TRIM_EVERY, self._trim_pool)

    def _want_growth(self) -> None:
        if (missing := sizing.MINIMUM - len(self._all) - self._expected) > 0:
            self._fork(missing)
        self._growth = self._growth or self._loop.call_later(sizing.GROW_PATIENCE, self._grow)

    def _grow(self) -> None:
        self._growth = None
        if not self._queue or self._closing:
            return
        if self._expected == 0 and self._loop.time() - self._last_progress >= sizing.GROW_PATIENCE:
            self._fork(min(sizing.GROW_STEP, len(self._queue)))
        self._growth = self._loop.call_later(sizing.GROW_PATIENCE / 2, self._grow)

    def _trim_pool(self) -> None:
        self._trim = None
        if self._closing:
            return
        see_to_silent(list(self._all.values()), self._loop.time())
        if self._zygote is not None:
            self._zygote.rouse()
        if self._cgroup and self._first_of_zygote:
            cgroup.remove_numbered(self._cgroup, self._first_of_zygote, self._all)
        for _ in range(sizing.surplus(len(self._idle), len(self._all), self._loop.time() - self._last_busy)):
            self._drop(self._idle.pop(0))
        self._trim = self._loop.call_later(sizing.TRIM_EVERY, self._trim_pool)

    def _drop(self, supervisor: WarmSupervisor) -> None:
        """An idle supervisor ends when its private socket does."""
        supervisor.retired = True
        self._close_private(supervisor)
        if supervisor.orphan:
            self._all.pop(supervisor.number, None)  # no zygote is there to report its death
            self._settle_words()

    def _close_private(self, supervisor: WarmSupervisor) -> None:
        if supervisor.private.fileno() >= 0:
            self._loop.remove_reader(supervisor.private.fileno())
            supervisor.private.close()

    def let_go(self, supervisor: WarmSupervisor) -> None:
        if self._zygote is not None:
            self._zygote.released(supervisor.number)

    def _heard(self, event: Born | Dead | None) -> None:
        match event:
            case Born():
                self._expected = max(0, self._expected - 1)
                self._failed_forks = 0
                supervisor = WarmSupervisor(event, self._cgroup)
                self._all[event.number] = supervisor
                if len(self._all) <= sizing.MINIMUM:
                    self._last_progress = self._loop.time() + sizing.FIRST_RUN_SECONDS
                self._loop.add_reader(event.private.fileno(), self._private_readable, supervisor)
                self._next(supervisor)
            case Dead():
                self._buried(event)
            case None:
                self._zygote_gone()

    def _buried(self, dead: Dead) -> None:
        self._read_reports()  # its last words first: one that retired has taken no run with it
        supervisor = self._all.pop(dead.number, None)
        if supervisor is None:
            if dead.status < 0:
                self._fork_failed(-dead.status)
            return
        self._close_private(supervisor)
        supervisor.tell_the_crowd_is_gone(self._loop.time())
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        held, supervisor.held = supervisor.held, None
        if held is not None and held.state is not HeldState.OVER:
            at = Monotonic(self._loop.time())
            self._news.hear()
            held.close_fds()
            held.state = HeldState.OVER
            held.post(SupervisorLost(at))
            held.post(Swept(at))
        if supervisor.orphan:
            self._settle_words()

    def _settle_words(self) -> None:  # of a zygote that was killed: when its supervisors are buried, we have seen it
        if self._words is not None and not any(supervisor.orphan for supervisor in self._all.values()):
            self._words.settle(keep_last=self._zygote is not None)

    def _fork_failed(self, number: int) -> None:
        """The system refuses processes: fail the runs that wait rather than keep them for ever; the next start tries
        again."""
        self._expected = 0
        self._failed_forks += 1
        logger.error("cannot fork a supervisor: %s", os.strerror(number))
        if not self._idle and self._queue and self._failed_forks >= 3:
            self._failed_forks = 0
            while self._queue:
                self._fail(self._queue.popleft(), number, "cannot fork a supervisor")

    def _zygote_gone(self) -> None:
        """Its supervisors live on and keep their runs; idle ones are dropped and a new zygote makes new ones."""
        if self._closing:
            return
        logger.error("the zygote has died; its supervisors keep their runs, a new zygote takes over")
        if self._zygote is not None:
            self._zygote.reap()
        self._zygote = None
        self._first_of_zygote = self._next_number
        self._expected = 0
        for supervisor in list(self._all.values()):
            supervisor.orphan = supervisor.retired = True
            if supervisor in self._idle:
                self._drop(supervisor)
            elif supervisor.is_dead:
                self._bury_orphan(supervisor)  # it died before its zygote did
        self._idle.clear()
        self._settle_words()
        if self._queue:
            self._failed_forks += 1
            self._loop.call_later(min(0.05 * 2**self._failed_forks, 5.0), self._want_growth)

    def _private_readable(self, supervisor: WarmSupervisor) -> None:
        """Nothing is ever sent to us there: readable means that the supervisor is gone."""
        self._read_reports()
        self._close_private(supervisor)
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        supervisor.retired = True
        held = supervisor.held
        if held is not None and held.state is not HeldState.OVER:
            self._news.hear()
            held.post(SupervisorLost(Monotonic(self._loop.time())))
        if supervisor.orphan:
            self._bury_orphan(supervisor)

    def _bury_orphan(self, supervisor: WarmSupervisor) -> None:
        """Its zygote is dead, too: what it held has become ours to end, and only then is its run told."""
        supervisor_pids = {other.pid for other in self._all.values() if other is not supervisor}
        if orphans.end_round(supervisor_pids | self._zygote_pids()):
            self._loop.call_later(orphans.ROUND_SECONDS, self._bury_orphan, supervisor)
            return
        self._buried(Dead(supervisor.number, 0))

    def strays(self) -> list[int]:
        """What dead supervisors have left and nobody could end so far."""
        return orphans.strays(self._zygote_pids(), {supervisor.pid for supervisor in self._all.values()})

    def reap_orphans(self) -> None:  # when a child has ended (SIGCHLD)
        orphans.reap(self._zygote_pids())

    def _zygote_pids(self) -> set[int]:
        return {self._zygote.pid} if self._zygote is not None else set()

    # ---------------------------------------------------------------- reports

    def hear(self) -> None:
        """Read what supervisors have reported and pass it on, also what would have waited for starts."""
        self._read_reports()
        self._news.hear()

    async def settle(self) -> None:
        """Until the runs know all that has been reported: before a decision that rests on which of them run."""
        self.hear()
        await asyncio.sleep(0)

    def _read_reports(self) -> None:
        try:
            data = os.read(self._report_read, READ_SIZE)
        except OSError:  # none now; or closed: of a run that outlives us there is no more news here
            return
        for report in wire.REPORT.iter_unpack(data):
            supervisor = self._all.get(report[0])
            if supervisor is None:
                continue
            held = supervisor.held
            if report[2] == wire.RETIRED:
                self._supervisor_retired(supervisor)
            elif held is not None and held.run == report[1]:
                self._report(supervisor, held, report)
        self._news.look(starts_wait=bool(self._queue))

    def _report(self, supervisor: WarmSupervisor, held: Held, report: tuple[int, ...]) -> None:
        if report[2] in (wire.OUTPUT, wire.ATTACHED):
            if held.log is not None:
                held.log.heard(report)
            return
        if report[2] in (wire.STARTED, wire.FAILED):
            held.close_fds()
        if report[2] == wire.STARTED:
            held.state = HeldState.LIVE
        for message in messages(report, supervisor.is_alone):
            if isinstance(message, Emptied):
                held.crowded = message.cgroup_empty is False
                supervisor.crowded = held if held.crowded else None
            self._news.add(held, message)
        if is_last(report):
            self._over(supervisor, held)

    def _over(self, supervisor: WarmSupervisor, held: Held) -> None:
        held.state = HeldState.OVER
        now = self._last_progress = self._last_busy = self._loop.time()
        self._sizing.learn(now - held.taken_at)
        if held.log is None:  # else it waits until the record is written, and ends then
            supervisor.held = None
            self._next(supervisor)

    def _next(self, supervisor: WarmSupervisor) -> None:
        if supervisor.retired:
            self._drop(supervisor)
        elif self._queue:
            self._assign(supervisor, self._queue.popleft())
        else:
            self._idle.append(supervisor)

    def _supervisor_retired(self, supervisor: WarmSupervisor) -> None:
        supervisor.retired = True
        if supervisor in self._idle:
            self._idle.remove(supervisor)
        held, supervisor.held = supervisor.held, None
        if held is not None:
            # Sent while the supervisor was deciding to retire, and not taken: another one gets it.
            held.supervisor = None
            held.state = HeldState.QUEUED
            self._queue.appendleft(held)
            self._want_growth()

    # ---------------------------------------------------------------- ending

    async def close(self) -> None:
        """End all supervisors (those that still hold a run end it, unless it outlives us) and the zygote."""
        self._closing = True
        for timer in (self._growth, self._trim):
            if timer is not None:
                timer.cancel()
        for held in list(self._queue):
            self.take_back(held)
        staying = {supervisor.number for supervisor in self._all.values() if supervisor.keeps}
        for supervisor in self._all.values():
            self._close_private(supervisor)
            if supervisor.keeps:
                supervisor.held = None  # what becomes of it is no news of ours
        if self._zygote is not None:
            gone = await (self._only(staying) if staying else self._zygote.end(END_SECONDS))
            self._zygote.close()
            if not gone:
                logger.error("supervisors have not ended within %g seconds; processes of runs may be left", END_SECONDS)
        self._loop.remove_reader(self._report_read)
        os.close(self._report_read)
        os.close(self._report_write)
        self._report_read = -1

    async def _only(self, staying: set[int]) -> bool:
        """Until no others are left; the zygote stays with them."""
        limit = self._loop.time() + END_SECONDS
        while not self._all.keys() <= staying:
            if self._loop.time() >= limit:
                return False
            await asyncio.sleep(0.01)
        return True

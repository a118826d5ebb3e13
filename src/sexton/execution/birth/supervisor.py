"""The supervisor: starts one run at a time, holds every process of it, ends them when told, and says when none is left.

It is a child subreaper: whatever the job does (setsid, double fork, cleared environment), an orphan of the run becomes
our child, so "waitpid says there is no child" is the proof that nothing of the run is left. It is reused for the
next run only when that proof was given and nothing about it was changed from outside.
"""

from __future__ import annotations

import _socket
import errno
import marshal
import os
import select
import time

from sexton.execution.birth import kernel, pristine, signals, walk, wire
from sexton.execution.birth.confine import FREE, Confinement
from sexton.execution.birth.lean import Any, signal
from sexton.execution.birth.program import DEFAULTED, locate
from sexton.execution.birth.vigil import Vigil

IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)

MAX_RUNS = 1000
"""Then a fresh supervisor takes over: a leak of any kind is bounded."""
FD_CHECK_EVERY = 50


class Supervisor:
    """State of one supervisor process. `serve()` never returns."""

    def __init__(self, number: int, private: _socket.socket, report: int, cgroup: str | None) -> None:
        self.number = number
        self.private = private
        self.report = report
        self.cgroup = cgroup
        self.pid = os.getpid()
        self.root = os.geteuid() == 0
        self.base_environment = dict(os.environb)
        self.runs = 0
        # per run
        self.run = 0
        self.main = 0
        self.main_alive = False
        self.killing = False
        self.released = False
        self.walk = walk.Walk(self.pid)
        self.refused = False
        self.group_error = 0
        self.patience = 0
        self.unsaid = b""
        self.alone = 0
        """Whether the cgroup was empty but for us when the run was over."""
        self.outside = 0
        """The round in which we left our cgroup, to end what was in it and refused our signals."""
        self.confined: Confinement = FREE
        self.vigil: Vigil | None = None
        """Set for a run that outlives the daemon."""

    def prepare(self) -> None:
        kernel.become_subreaper()
        kernel.name_process(wire.SUPERVISOR_NAME)
        kernel.hide_from_same_user()
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)
        self.wake = kernel.readable_on(signal.SIGCHLD)
        self.poll = select.poll()
        self.poll.register(self.private.fileno(), select.POLLIN)
        self.poll.register(self.wake, select.POLLIN)
        self.procs = self.stat = -1
        if self.cgroup is not None:
            self.procs = os.open(f"{self.cgroup}/cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)
            self.stat = os.open(f"{self.cgroup}/cgroup.stat", os.O_RDONLY | os.O_CLOEXEC)
        self.home = os.open(".", os.O_PATH | os.O_CLOEXEC)  # the daemon's folder, where jobs without their own run
        self.own_nice = os.getpriority(os.PRIO_PROCESS, 0)
        self.pristine = pristine.Pristine()
        self.untouched = self.pristine.snapshot()
        self.own_fds = pristine.count_fds()

    # ---------------------------------------------------------------- serving

    def serve(self) -> None:
        self.prepare()
        while True:
            self.take_request()
            if self.vigil is not None:
                self.vigil.hold()
            elif self.main:
                self.hold()
            self.check_reuse()

    def take_request(self) -> None:
        """Wait for one request and start it. Ends the process when the daemon is gone."""
        fds: list[int] = []
        try:
            space = _socket.CMSG_SPACE(4 * 4)
            data, ancillary, _, _ = self.private.recvmsg(wire.INLINE_REQUEST + 4096, space, _socket.MSG_CMSG_CLOEXEC)
        except OSError:
            os._exit(0)
        if not data:
            os._exit(0)
        for level, kind, payload in ancillary:
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                fds += memoryview(payload[: len(payload) // 4 * 4]).cast("i").tolist()
        self.main = 0
        if data in wire.ORDERS:
            return  # meant for a run that has ended meanwhile
        try:
            if data == b"M":
                memfd = fds.pop()
                try:
                    data = os.pread(memfd, os.fstat(memfd).st_size, 0)
                finally:
                    os.close(memfd)
            self.begin(marshal.loads(data), fds)
        finally:
            for fd in fds:
                os.close(fd)

    def begin(self, request: tuple[Any, ...], fds: list[int]) -> None:
        run, argv, environment, directory, user, nice, targets, self.patience, confined, keep = request
        self.confined = Confinement(self.number, self.cgroup, confined) if confined else FREE
        self.run = run
        self.main = 0
        self.main_alive = self.killing = self.released = self.refused = False
        self.walk.begin()
        self.runs += 1
        env = {**self.base_environment, **environment} if environment else self.base_environment
        stage = wire.STAGE_EXEC
        try:
            if keep is not None:
                self.vigil = Vigil(self, keep)
                own = self.vigil.prepare(fds, targets)
                fds += own  # for the caller to close
                fds = own
            actions = [(os.POSIX_SPAWN_DUP2, fd, target) for fd, target in zip(fds, targets, strict=True)]
            stage = wire.STAGE_DIRECTORY
            if directory is not None:
                os.chdir(directory)
            stage = wire.STAGE_USER
            if user is not None:
                self.take_identity(*user)
            stage = wire.STAGE_EXEC
            if nice:
                os.setpriority(os.PRIO_PROCESS, 0, nice)
            if self.confined is not FREE and self.confined.prepare():
                self.main = self.confined.start(locate(argv[0], env), argv, env, actions, user)
                self.confined.watch(self.poll)
            else:
                self.main = os.posix_spawn(
                    locate(argv[0], env), argv, env, file_actions=actions, setsid=True, setsigmask=(),
                    setsigdef=DEFAULTED, resetids=user is not None,
                )
        except (OSError, ValueError, OverflowError, MemoryError) as refused:
            default = errno.ENOMEM if isinstance(refused, MemoryError) else errno.EINVAL
            number = getattr(refused, "errno", None) or default
            self.confined.leave(self.poll)
            self.alone = self.cgroup_flag()
            self.say(wire.FAILED, value=number, aux=getattr(refused, "stage", stage), flags=self.alone)
        else:
            self.main_alive = True
            limits = self.confined  # one that is over already says both at once
            self.unsaid = self.record(wire.STARTED, value=self.main, flags=limits.bits, aux=limits.errno)
        finally:
            self.restore(directory, user, nice)

    def take_identity(self, uid: int | None, gid: int | None, groups: list[int]) -> None:
        """Real ids become the user's while the saved ids stay root's; POSIX_SPAWN_RESETIDS makes
        the real ids effective in the child, and exec drops the saved ones."""
        os.setgroups(groups)
        if gid is not None:
            os.setresgid(gid, 0, 0)
        if uid is not None:
            os.setresuid(uid, 0, 0)

    def restore(self, directory: bytes | None, user: object, nice: int) -> None:
        if user is not None and self.root:
            os.setresuid(0, 0, 0)
            os.setresgid(0, 0, 0)
            os.setgroups([])
            kernel.hide_from_same_user()
        if directory is not None:
            os.fchdir(self.home)
        if nice:
            try:
                os.setpriority(os.PRIO_PROCESS, 0, self.own_nice)
            except OSError:
                pass  # unprivileged: the snapshot differs, so this supervisor retires after the run

    # ---------------------------------------------------------------- holding

    def hold(self) -> None:
        """Until nothing of the run is left."""
        while True:
            if self.reap():
                return
            if self.unsaid and not self.patience:
                self.say_start()
            events = self.poll.poll(self.pause())
            if not events:
                self.look_at_memory()
                if self.unsaid:
                    self.say_start()
            for fd, event in events:
                if fd == self.wake:
                    kernel.drain(self.wake)
                elif fd == self.confined.event:
                    self.look_at_memory()
                else:
                    self.obey(event)
            if self.killing:
                self.kill_round()

    def pause(self) -> int | None:
        if self.unsaid:
            return int(self.patience)
        if not self.killing:
            return self.confined.look_every
        return self.walk.pause(self.refused)

    def obey(self, event: int) -> None:
        try:
            order = self.private.recv(64)
        except OSError:
            order = b""
        if order == wire.TERMINATE:
            self.terminate()
        elif order == wire.KILL:
            self.begin_killing()
        elif order == wire.RELEASE:
            self.release()
        elif not order:
            self.daemon_gone()

    def daemon_gone(self) -> None:
        """The daemon died: its runs die with it, unless this one had ended and its remainder was let go."""
        self.poll.unregister(self.private.fileno())
        if not self.released:
            self.killing = True

    def release(self) -> None:
        self.released = True
        self.confined.keep()
        if self.cgroup is not None:
            try:
                os.setxattr(self.cgroup, wire.KEPT_ATTRIBUTE, b"1")
            except OSError:
                pass  # no xattrs on this cgroup: the next daemon's sweep will take the remainder for a lost run

    def reap(self) -> bool:
        """Collect every exit there is. True when no child is left, which has been reported."""
        status: int | None = None
        usage = None
        while True:
            try:
                pid, result, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                if status is not None:
                    self.measure()
                    self.say_exit(status, usage, 0)
                return False
            if pid == self.main and self.main_alive:
                self.main_alive = False
                status, usage = result, used
        self.measure()
        self.alone = flags = self.cgroup_flag() if self.confined is FREE or self.confined.leave(self.poll) else 0
        if status is not None:
            self.say_exit(status, usage, wire.ALSO_EMPTY | flags)
        else:
            self.say(wire.EMPTY, flags=flags)
        return True

    # ---------------------------------------------------------------- ending

    def group_is_ours(self) -> bool:
        """After the own process was collected its pid may belong to a stranger, which POSIX permits only once
        the group is empty: then nobody is signalled. (Before that the pid is pinned by our not reaping.)"""
        if self.main_alive:
            return True
        try:
            os.kill(self.main, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False

    def terminate(self) -> None:
        """The graceful step: SIGTERM to the whole group, and to descendants that left it."""
        group_error = alone_error = 0
        if self.group_is_ours():
            group_error = signals.to_group(self.main, signal.SIGTERM)
            if group_error not in (0, errno.ESRCH) and self.main_alive:
                alone_error = signals.to_one(self.main, signal.SIGTERM)
        for pid in kernel.children_of(self.pid):
            if pid != self.main and signals.outside_group(pid, self.main):
                signals.to_one(pid, signal.SIGTERM)
        self.say(wire.SIGNALLED, value=group_error, aux=alone_error)

    def begin_killing(self) -> None:
        self.killing, self.refused, self.group_error = True, False, 0
        self.walk.begin()

    def kill_round(self) -> None:
        """One round of the forced step over everything below us, when it is time. Exits are collected between rounds,
        all at once: walking after each single exit is quadratic."""
        now = time.monotonic()
        if now < self.walk.due:
            return
        self.walk.due = now + self.walk.pause(self.refused) / 1000
        self.confined.kill()
        if self.walk.rounds == 0 and self.group_is_ours():
            self.group_error = signals.to_group(self.main, signal.SIGKILL)
        refused = not self.walk.round()
        alone = refused and not self.main_alive  # the page: a refused signal to the own process is not overruled (0003)
        if alone and not self.outside and self.cgroup and walk.kill_from_outside(self.cgroup, self.number):
            self.outside = self.walk.rounds
        if refused and self.outside and self.walk.rounds - self.outside < walk.OUTSIDE_ROUNDS:
            return
        if refused and not self.refused:
            self.say(wire.REFUSED, value=self.walk.refused_errno, aux=self.walk.refused_pid, user=self.group_error)
        self.refused = refused
        if self.walk.rounds == walk.LONG_KILL_ROUNDS and (left := kernel.children_of(self.pid)):
            self.say(wire.REFUSED, value=errno.ETIMEDOUT, aux=left[0])

    # ---------------------------------------------------------------- limits

    def look_at_memory(self) -> None:
        """A run that has reached its cap is killed whole, without a graceful step."""
        if self.confined.reached_memory():
            self.say(wire.EXCEEDED)
            if not self.killing:
                self.begin_killing()

    def measure(self) -> None:
        """Said before the end is: what the limits did, and what was used."""
        if self.confined.applies:
            self.look_at_memory()
            self.say(wire.MEASURED, **self.confined.facts())
        if self.confined.measured:
            self.say(wire.USED, **self.confined.used())

    # ---------------------------------------------------------------- reuse

    def cgroup_flag(self) -> int:
        """The second witness: nobody but us in the cgroup, and no cgroup below it."""
        if self.procs < 0:
            return 0
        try:
            alone = os.pread(self.procs, 4096, 0).split() == ([] if self.outside else [b"%d" % self.pid])
            nested = b"nr_descendants 0\n" not in os.pread(self.stat, 4096, 0)
        except OSError:
            return 0
        return wire.CGROUP_EMPTY if alone and not nested else 0

    def check_reuse(self) -> None:
        """Retire unless the next run would find this supervisor as the first one did."""
        clean = self.confined.removed and not self.released and not self.outside and self.runs < MAX_RUNS
        clean = clean and self.walk.rounds <= walk.LONG_KILL_ROUNDS and (self.procs < 0 or bool(self.alone))
        clean = clean and self.pristine.snapshot() == self.untouched
        if clean and self.runs % FD_CHECK_EVERY == 0:
            clean = pristine.count_fds() == self.own_fds
        if not clean:
            self.say(wire.RETIRED)
            os._exit(0)

    # ---------------------------------------------------------------- reporting

    def say_exit(self, status: int, usage: Any, flags: int) -> None:
        self.say(
            wire.EXITED, value=status, flags=flags, user=int(usage.ru_utime * 1e6), system=int(usage.ru_stime * 1e6),
            rss=usage.ru_maxrss,
        )

    def say(self, kind: int, *, value: int = 0, flags: int = 0, user: int = 0, system: int = 0, rss: int = 0,
            aux: int = 0) -> None:
        self.write(self.record(kind, value, flags, user, system, rss, aux))

    def say_start(self) -> None:
        self.write(b"")

    def record(self, kind: int, value: int = 0, flags: int = 0, user: int = 0, system: int = 0, rss: int = 0,
               aux: int = 0) -> bytes:
        return wire.REPORT.pack(
            self.number, self.run, kind, flags, value, time.monotonic_ns(), user & 0xFFFFFFFF, system & 0xFFFFFFFF,
            rss & 0xFFFFFFFF, aux & 0xFFFFFFFF,
        )

    def write(self, record: bytes) -> None:
        """One write for all there is to say: a start that was held back goes first, and wakes nobody of its own."""
        said, self.unsaid = self.unsaid + record, b""
        if self.vigil is not None:
            self.vigil.saw(said)
        try:
            os.write(self.report, said)
        except OSError:
            pass  # the daemon is gone; the private socket says so, too

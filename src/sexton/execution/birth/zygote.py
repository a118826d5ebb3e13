"""The zygote: a small single-threaded process that forks supervisors and buries those that died.

It is the second child subreaper: when a supervisor is killed (by its own job, say) everything it held becomes the
zygote's child, is ended here, and only then is the supervisor reported dead. Every child of the zygote that is no
supervisor belongs to a dead run, and may be ended without asking to which.
"""

from __future__ import annotations

import _socket
import errno
import os
import select
import sys
import time

from sexton.execution.birth import kernel, place, wire
from sexton.execution.birth.lean import signal
from sexton.execution.birth.supervisor import Supervisor

LINGER_SECONDS = 1.0
BURY_PAUSE_MS = 1
"""Between two rounds of ending what a dead supervisor has left."""
LONG_BURIAL_ROUNDS = 500
LONG_BURIAL_PAUSE_MS = 100
"""After that many rounds: what is left refuses, or cannot die yet."""
ROUSE_MS = 500


class Zygote:
    def __init__(
        self, control: _socket.socket, report: int, cgroup_base: str | None, first: int, words: int | None,
    ) -> None:
        self.control = control
        self.report = report
        self.cgroup_base = cgroup_base
        self.next_number = first
        self.words = words
        """Where to say at the end that nothing is left."""
        self.clone3_works = True
        self.supervisors: dict[int, int] = {}  # pid -> number
        self.released: set[int] = set()
        self.daemon_gone = False
        self.kept_runs = False
        """Some of its supervisors have outlived the daemon, and mean to."""
        self.dead: dict[int, tuple[int, int]] = {}
        """Supervisors that have ended and are not reported: number -> pid, status."""
        self.remains: dict[int, set[int]] = {}
        """Of each of those: our children that it may have left."""
        self.known: set[int] = set()
        self.rounds = 0

    def main(self) -> None:
        kernel.become_subreaper()
        kernel.name_process(wire.ZYGOTE_NAME)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self.wake = kernel.readable_on(signal.SIGCHLD)
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while not (self.daemon_gone and not (set(self.supervisors.values()) - self.released) and not self.dead):
            for fd, _ in poll.poll(self.pause()):
                if fd == self.wake:
                    kernel.drain(self.wake)
                elif not self.hear():
                    self.daemon_gone = True
                    self.kept_runs = any(kernel.name_of(pid) == wire.KEEPER_NAME for pid in self.supervisors)
                    poll.unregister(self.control.fileno())
                    self.let_go_of_output()
            if self.daemon_gone:
                self.rouse()
            self.bury()
            if self.daemon_gone:
                self.say_last_words()
        if self.kept_runs:
            time.sleep(LINGER_SECONDS)  # for a later daemon that has lost a kept run to see that it was swept

    @staticmethod
    def let_go_of_output() -> None:
        """We may stay for runs that outlive the daemon; whoever reads what it wrote must see its end."""
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        os.close(nowhere)

    def hear(self) -> bool:
        """One command of the daemon; False when it is gone."""
        try:
            message = self.control.recv(256)
        except OSError:
            return False  # a reset, because it left something unread: the same as an end
        if not message:
            return False
        command, number = wire.COMMAND.unpack(message)
        if command == b"L":
            self.released.add(number)
        else:
            for _ in range(number):
                if not self.bear():
                    break
        return True

    # ---------------------------------------------------------------- birth

    def bear(self) -> bool:
        number = self.next_number
        self.next_number += 1
        try:
            ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
        except OSError as failure:
            self.tell(b"D", number, 0, -(failure.errno or 1))
            return False
        cgroup = self.make_cgroup(number)
        try:
            pid, how = self.fork(cgroup)
        except OSError as failure:
            ours.close()
            theirs.close()
            self.remove_cgroup(number)
            self.tell(b"D", number, 0, -(failure.errno or 1))
            return False
        if pid == 0:
            self.become_supervisor(number, theirs, ours, cgroup if how == wire.BORN_IN_CGROUP else None)
        theirs.close()
        self.supervisors[pid] = number
        try:
            rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, ours.fileno().to_bytes(4, sys.byteorder))]
            self.control.sendmsg([wire.EVENT.pack(b"B", number, pid, how)], rights)
        except OSError:
            self.daemon_gone = True
        # Closed before the next fork: a later supervisor that inherited it would keep the daemon's death a secret.
        ours.close()
        return True

    def make_cgroup(self, number: int) -> str | None:
        if self.cgroup_base is None:
            return None
        path = f"{self.cgroup_base}/s{number}"
        try:
            os.mkdir(path)
        except OSError:
            return None
        return path

    def fork(self, cgroup: str | None) -> tuple[int, int]:
        if cgroup is None:
            return os.fork(), wire.BORN_PLAIN
        if self.clone3_works:
            fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return kernel.fork_into_cgroup(fd), wire.BORN_IN_CGROUP
            except OSError as refused:
                if refused.errno in (errno.EAGAIN, errno.ENOMEM):
                    raise  # there is no room for a process now; the call itself works
                self.clone3_works = False  # an old kernel, or a filter
            finally:
                os.close(fd)
        ready, told = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.write(told, b"1" if self.join(cgroup) else b"0")
            os.close(told)
            answer = b"?"
        else:
            os.close(told)
            answer = os.read(ready, 1)
        moved = self.is_member(cgroup) if pid == 0 else answer == b"1"
        os.close(ready)
        return pid, wire.BORN_IN_CGROUP if moved else wire.BORN_PLAIN

    @staticmethod
    def join(cgroup: str) -> bool:
        try:
            place.write(f"{cgroup}/cgroup.procs", b"0")
        except OSError:
            return False
        return True

    @staticmethod
    def is_member(cgroup: str) -> bool:
        try:
            with open(f"{cgroup}/cgroup.procs", "rb") as members:
                return b"%d" % os.getpid() in members.read().split()
        except OSError:
            return False

    def become_supervisor(
        self, number: int, private: _socket.socket, other: _socket.socket, cgroup: str | None,
    ) -> None:
        status = 70
        try:
            ours = (other.fileno(), self.control.fileno(), self.wake)
            for fd in ours if self.words is None else (*ours, self.words):
                os.close(fd)
            os.setsid()
            Supervisor(number, private, self.report, cgroup).serve()
        except MemoryError:
            pass  # nothing of ours is wrong: it ends, and what it held is ended and told of as lost
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    # ---------------------------------------------------------------- burial

    def bury(self) -> None:
        """Collect exits; end whatever a dead supervisor left; report a supervisor dead only when nothing that may have
        been its own is left. What another one left before and we may not end does not hold it up."""
        foreign = self.foreign()
        if not self.dead:
            return
        self.rounds += 1
        for number, remains in self.remains.items():
            self.remains[number] = (remains | (foreign - self.known)) & foreign
        self.known = foreign
        for pid in foreign:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # not ours to end: it stays listed, and the supervisor stays unreported
        for number, (pid, status) in list(self.dead.items()):
            if not self.remains[number] and not (self.populated(number) and self.rounds < LONG_BURIAL_ROUNDS):
                del self.dead[number], self.remains[number]
                self.remove_cgroup(number)
                self.tell(b"D", number, pid, status)
                self.released.discard(number)

    def foreign(self) -> set[int]:
        """Our children that are no supervisors. When they are listed all supervisors that left them have been
        collected: the kernel makes an orphan ours and its parent collectable in one step."""
        self.collect()
        while True:
            found = {pid for pid in kernel.children_of(os.getpid()) if pid not in self.supervisors}
            if not self.collect():
                return found

    def collect(self) -> bool:
        """Whether anybody has ended."""
        some = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return some
            if pid == 0:
                return some
            some = True
            self.known.discard(pid)
            number = self.supervisors.pop(pid, None)
            if number is not None:
                self.dead[number] = pid, status
                self.remains[number] = set()
                self.rounds = 0
                self.kill_cgroup(number)

    def pause(self) -> int | None:
        """Milliseconds until the next look without an event."""
        if self.dead:
            return BURY_PAUSE_MS if self.rounds < LONG_BURIAL_ROUNDS else LONG_BURIAL_PAUSE_MS
        return ROUSE_MS if self.daemon_gone else None

    def say_last_words(self) -> None:
        """When all is ended that was to end with the daemon."""
        waited_for = [pid for pid, number in self.supervisors.items() if number not in self.released]
        if self.words is None or self.dead or any(kernel.name_of(pid) != wire.KEEPER_NAME for pid in waited_for):
            return
        try:
            os.write(self.words, wire.NOTHING_LEFT)
        except OSError:
            pass  # the disk is full: nothing is proven by us
        os.close(self.words)
        self.words = None

    def rouse(self) -> None:
        """Without the daemon nobody else sets a supervisor going that its job has stopped."""
        for pid in self.supervisors:
            os.kill(pid, signal.SIGCONT)

    def kill_cgroup(self, number: int) -> None:
        if self.cgroup_base is None:
            return
        for name in cgroups_of(number):
            try:
                place.write(f"{self.cgroup_base}/{name}/cgroup.kill", b"1")
            except OSError:
                pass  # before 5.14, or no cgroup: the walk below does it

    def populated(self, number: int) -> bool:
        """Somebody else's process may have moved itself into the cgroup; it has been killed, too."""
        if self.cgroup_base is None:
            return False
        try:
            fd = os.open(f"{self.cgroup_base}/s{number}/cgroup.events", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return b"populated 1" in os.read(fd, 256)
        finally:
            os.close(fd)

    def remove_cgroup(self, number: int) -> None:
        if self.cgroup_base is None:
            return
        for name in cgroups_of(number):
            place.remove_tree(f"{self.cgroup_base}/{name}")  # one that is still populated is for the next start's sweep

    def tell(self, kind: bytes, number: int, pid: int, status: int) -> None:
        try:
            self.control.send(wire.EVENT.pack(kind, number, pid, status))
        except OSError:
            self.daemon_gone = True


def cgroups_of(number: int) -> tuple[str, ...]:
    """The supervisor's, that of a run with limits, and where the supervisor stepped aside."""
    return f"s{number}", f"l{number}", f"x{number}"


def main() -> None:
    """argv: control fd, report fd, cgroup base or empty, first supervisor number, fd for the last words or empty."""
    control_fd, report_fd, cgroup_base, first, words = sys.argv[-5:]
    for fd in filter(None, (control_fd, report_fd, words)):
        os.set_inheritable(int(fd), False)
    control = _socket.socket(fileno=int(control_fd))
    Zygote(control, int(report_fd), cgroup_base or None, int(first), int(words) if words else None).main()
    os._exit(0)

"""The zygote: a small single-threaded process that forks supervisors and buries those that died.

It is the second child subreaper: when a supervisor is killed (by its own job, say) everything it held becomes the
zygote's child, is ended here, and only then is the supervisor reported dead. Every child of the zygote that is no
supervisor belongs to a dead run, so nothing needs to be attributed.
"""

from __future__ import annotations

import _socket
import errno
import gc
import os
import select
import signal
import sys
import time

from sexton.execution.birth import kernel, wire
from sexton.execution.birth.supervisor import Supervisor

LINGER_SECONDS = 1.0


class Zygote:
    def __init__(self, control: _socket.socket, report: int, cgroup_base: str | None, first: int) -> None:
        self.control = control
        self.report = report
        self.cgroup_base = cgroup_base
        self.next_number = first
        self.clone3_works = True
        self.supervisors: dict[int, int] = {}  # pid -> number
        self.released: set[int] = set()
        self.daemon_gone = False
        self.kept_runs = False
        """Some of its supervisors have outlived the daemon, and mean to."""
        self.dead: list[tuple[int, int, int]] = []

    def main(self) -> None:
        kernel.become_subreaper()
        kernel.name_process(b"sexton-zygote")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        self.wake, self.wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        gc.collect()
        gc.freeze()
        gc.disable()
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while not (self.daemon_gone and not (set(self.supervisors.values()) - self.released) and not self.dead):
            for fd, _ in poll.poll(1 if self.dead else None):
                if fd == self.wake:
                    self.drain_wake()
                elif not self.hear():
                    self.daemon_gone = True
                    self.kept_runs = any(kernel.name_of(pid) == b"sexton-keep" for pid in self.supervisors)
                    poll.unregister(self.control.fileno())
                    self.let_go_of_output()
            self.bury()
        if self.kept_runs:
            time.sleep(LINGER_SECONDS)  # for a later daemon that has lost a kept run to see that it was swept

    def drain_wake(self) -> None:
        try:
            while os.read(self.wake, 4096):
                pass
        except BlockingIOError:
            pass

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
            fd = os.open(f"{cgroup}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"0")
            finally:
                os.close(fd)
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
            signal.set_wakeup_fd(-1)
            for fd in (other.fileno(), self.control.fileno(), self.wake, self.wake_write):
                os.close(fd)
            os.setsid()
            Supervisor(number, private, self.report, cgroup).serve()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    # ---------------------------------------------------------------- burial

    def bury(self) -> None:
        """Collect exits; end whatever a dead supervisor left; report a supervisor dead only when nothing foreign is
        left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            number = self.supervisors.pop(pid, None)
            if number is not None:
                self.dead.append((number, pid, status))
                self.kill_cgroup(number)
        if not self.dead:
            return
        foreign = [pid for pid in kernel.children_of(os.getpid()) if pid not in self.supervisors]
        for pid in foreign:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # not ours to end: it stays listed, and the supervisor stays unreported
        if foreign:
            return
        for number, pid, status in self.dead:
            self.remove_cgroup(number)
            self.tell(b"D", number, pid, status)
            self.released.discard(number)
        self.dead.clear()

    def kill_cgroup(self, number: int) -> None:
        if self.cgroup_base is None:
            return
        for name in (f"s{number}", f"l{number}"):  # the supervisor's, and that of a run with limits
            try:
                fd = os.open(f"{self.cgroup_base}/{name}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(fd, b"1")
                finally:
                    os.close(fd)
            except OSError:
                pass  # before 5.14, or no cgroup: the walk below does it

    def remove_cgroup(self, number: int) -> None:
        if self.cgroup_base is None:
            return
        for top in (f"{self.cgroup_base}/s{number}", f"{self.cgroup_base}/l{number}"):
            try:
                for directory, _, _ in os.walk(top, topdown=False):
                    os.rmdir(directory)
            except OSError:
                pass  # still populated or gone; the sweep at the next start looks again

    def tell(self, kind: bytes, number: int, pid: int, status: int) -> None:
        try:
            self.control.send(wire.EVENT.pack(kind, number, pid, status))
        except OSError:
            self.daemon_gone = True


def main() -> None:
    """argv: control fd, report fd, cgroup base or empty, first supervisor number."""
    control_fd, report_fd, cgroup_base, first = sys.argv[-4:]
    os.set_inheritable(int(control_fd), False)
    os.set_inheritable(int(report_fd), False)
    control = _socket.socket(fileno=int(control_fd))
    Zygote(control, int(report_fd), cgroup_base or None, int(first)).main()
    os._exit(0)

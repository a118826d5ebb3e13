"""The daemon's end of the zygote: start it, ask it for supervisors, hear of births and deaths."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from sexton.execution.birth import wire
from sexton.execution.lastwords import LastWords

logger = logging.getLogger("sexton.containment")

BOOT = (
    "import gc, sys; gc.disable(); sys.path.append(sys.argv[1]); "  # nothing there makes cycles as it runs
    "from sexton.execution.birth.zygote import main; main()"
)
LOOK_SECONDS = 0.005
PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])


def raise_descriptor_limit() -> int:
    """Let this process have as many descriptors as it may: each run takes up to three. Returns the limit that there
    was: jobs get that, because some programs cannot do with a high one (select)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as refused:
        logger.debug("the limit of descriptors stays at %d: %s", soft, refused)
    return soft


def _limit_descriptors(pid: int, soft: int) -> None:
    try:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    except (OSError, ValueError) as refused:
        logger.warning("jobs start with the daemon's own limit of descriptors: %s", refused)


class Born(msgspec.Struct, frozen=True):
    number: int
    pid: int
    in_cgroup: bool
    private: socket.socket


class Dead(msgspec.Struct, frozen=True):
    """The supervisor has ended and nothing of what it held is left. A negative status is the errno of a failed fork."""

    number: int
    status: int


class Zygote:
    """One zygote process. `heard` gets every Born and Dead, and None once when the zygote itself is gone."""

    def __init__(
        self, report_fd: int, cgroup: str | None, first: int, descriptors: int,
        heard: Callable[[Born | Dead | None], None], words: LastWords | None = None,
    ) -> None:
        """`descriptors` is the soft limit for jobs: ours was raised. `words` are what it says at its end."""
        self._heard = heard
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        last = words.begin() if words is not None else None
        inherited = (theirs.fileno(), report_fd, *([] if last is None else [last]))
        with theirs:
            argv = [
                sys.executable, "-I", "-S", "-X", "frozen_modules=on", "-c", BOOT, PACKAGE_ROOT,
                str(theirs.fileno()), str(report_fd), cgroup or "", str(first),
                "" if last is None else str(last),
            ]
            try:
                self._process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, pass_fds=inherited, start_new_session=True,
                )
            except OSError:
                ours.close()
                raise
            finally:
                if last is not None:
                    os.close(last)
        _limit_descriptors(self._process.pid, descriptors)  # before the first command: all supervisors are born with it
        ours.setblocking(False)
        self._socket = ours
        self._loop.add_reader(ours.fileno(), self._hear)

    @property
    def pid(self) -> int:
        return self._process.pid

    def fork(self, count: int) -> None:
        self._command(b"F", count)

    def rouse(self) -> None:
        """A job may have stopped it (SIGSTOP); to one that runs this is nothing."""
        self._process.send_signal(signal.SIGCONT)

    def released(self, number: int) -> None:
        """The supervisor stays for what its ended run left behind; the zygote need not wait for it at the end."""
        self._command(b"L", number)

    def _command(self, command: bytes, number: int) -> None:
        try:
            self._socket.send(wire.COMMAND.pack(command, number))
        except OSError as failure:
            logger.debug("the zygote does not answer: %s", failure)

    def _hear(self) -> None:
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self._socket, 64, 1)
            except BlockingIOError:
                return
            except OSError:
                data, fds = b"", []
            if not data:
                self.close()
                self._heard(None)
                return
            kind, number, pid, value = wire.EVENT.unpack(data)
            if kind == b"B" and fds:
                # recv_fds drops MSG_CMSG_CLOEXEC; without this a job could inherit the socket and forge its own death.
                os.set_inheritable(fds[0], False)
                private = socket.socket(fileno=fds[0])
                private.setblocking(False)
                self._heard(Born(number, pid, value == wire.BORN_IN_CGROUP, private))
            elif kind == b"B":  # we are out of descriptors: its end was closed with the message, and it ends by that
                self._heard(Dead(number, -errno.EMFILE))
            elif kind == b"D":
                self._heard(Dead(number, value))

    def close(self) -> None:
        """Let go of the zygote; it ends when its last supervisor has."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    async def end(self, seconds: float) -> bool:
        """Let go, and wait. True when the process has ended within the bound."""
        self.close()
        try:
            async with asyncio.timeout(seconds):
                await self._ended()
        except TimeoutError:
            return False
        return True

    async def _ended(self) -> None:
        if self._process.poll() is not None:
            return  # its pid may be another's by now
        try:
            pidfd = os.pidfd_open(self._process.pid)
        except OSError:  # no such call in this kernel, or a filter
            while self._process.poll() is None:  # noqa: ASYNC110 (nobody tells us)
                await asyncio.sleep(LOOK_SECONDS)
            return
        readable = asyncio.Event()
        self._loop.add_reader(pidfd, readable.set)
        try:
            await readable.wait()
        finally:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
        self._process.wait()

    def reap(self) -> None:
        self._process.poll()

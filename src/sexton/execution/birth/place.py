"""One directory of one cgroup hierarchy, made for one run, and the caps that it holds."""

from __future__ import annotations

import os

from sexton.execution.birth.lean import signal


class Place:
    def __init__(self, base: str, name: str, version: int, knobs: list[tuple[int, str, bytes]]) -> None:
        """`knobs` are (bit of the cap, file, value); bit 0 is of use but not needed."""
        self.path = f"{base}/{name}"
        self.version = version
        self.knobs = knobs
        self.bits = 0
        self.join = -1

    def set_up(self) -> int:
        """Returns an errno; 0 when every cap is in force for who joins. Half a set-up is taken back."""
        try:
            remove_tree(self.path)  # an earlier run's, if its removal was refused then
            os.mkdir(self.path)
            for bit, file, value in self.knobs:
                try:
                    write(f"{self.path}/{file}", value)
                except OSError:
                    if bit:
                        raise
                self.bits |= bit
            self.join = os.open(f"{self.path}/cgroup.procs", os.O_RDWR | os.O_CLOEXEC)
        except OSError as refused:
            self.bits = 0
            self.remove()
            return refused.errno or 1
        return 0

    def read(self, file: str, key: bytes | None = None) -> int | None:
        """A number from a file, or from the line of it that begins with the key."""
        try:
            fd = os.open(f"{self.path}/{file}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            for line in os.read(fd, 8192).splitlines():
                words = line.split()
                if key is None or words[0] == key:
                    return int(words[-1])
        except (OSError, ValueError, IndexError):
            pass
        finally:
            os.close(fd)
        return None

    def kill(self) -> None:
        """SIGKILL to everybody in it; one by one where there is no cgroup.kill."""
        if self.version == 2:
            try:
                write(f"{self.path}/cgroup.kill", b"1")
                return
            except OSError:
                pass  # before 5.14
        pinned = {pid: fd for pid in self.members() if (fd := _pin(pid)) >= 0}
        inside = set(self.members())  # who is pinned and still a member is no stranger with a used pid
        for pid, fd in pinned.items():
            try:
                if pid in inside:
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            except OSError:
                pass  # gone, or refused: the walk over the tree reports that
            finally:
                os.close(fd)

    def members(self) -> list[int]:
        try:
            with open(f"{self.path}/cgroup.procs", "rb") as procs:
                return [int(line) for line in procs]
        except (OSError, ValueError):
            return []

    def remove(self) -> bool:
        if self.join >= 0:
            os.close(self.join)
            self.join = -1
        return remove_tree(self.path)


def write(path: str, value: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value)
    finally:
        os.close(fd)


def remove_tree(path: str) -> bool:
    """Remove an empty cgroup and those below it. False when something is still in it."""
    try:
        for directory, _, _ in os.walk(path, topdown=False):
            os.rmdir(directory)
    except OSError:
        return not os.path.exists(path)
    return True


def _pin(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return -1

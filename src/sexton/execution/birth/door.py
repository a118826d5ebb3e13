"""Where a later daemon finds the supervisor of a kept run: a socket in the runtime directory, or the story that it
has left there."""

from __future__ import annotations

import _socket
import os
import struct

from sexton.execution.birth.lean import Any

SOCKET_SUFFIX = ".sock"
STORY_SUFFIX = ".end"
CREDENTIALS = struct.Struct("3i")
"""What SO_PEERCRED answers: pid, uid, gid."""


class Door:
    """`listener` is None while there is no socket: nothing was opened yet, or it could not be."""

    def __init__(self, directory: str, run: str) -> None:
        self.directory = directory
        self.run = run
        self.listener: _socket.socket | None = None
        self.inode = 0

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{self.run}{suffix}"

    def open(self) -> bool:
        """Wait at a new socket. Its path may be too long for an address: it goes by a descriptor of the directory."""
        name = self.run + SOCKET_SUFFIX
        listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            directory = os.open(self.directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                self.close()
                listener.bind(f"/proc/self/fd/{directory}/{name}")
                self.inode = os.stat(name, dir_fd=directory).st_ino
            finally:
                os.close(directory)
            listener.listen(8)
        except OSError as failure:
            listener.close()
            self.close()
            os.write(2, f"sexton: run {self.run} cannot wait for a later daemon yet: {failure}\n".encode())
            return False
        self.listener = listener
        return True

    def close(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        try:
            os.unlink(self.path(SOCKET_SUFFIX))
        except OSError:
            pass  # gone already

    def still_there(self) -> bool:
        try:
            return self.listener is not None and os.stat(self.path(SOCKET_SUFFIX)).st_ino == self.inode
        except OSError:
            return False

    def let_in(self) -> _socket.socket | None:
        """A daemon of our own user, or root's, and nobody else."""
        listener: Any = self.listener
        try:
            fd, _ = listener._accept()
        except OSError:
            return None
        connection = _socket.socket(fileno=fd)
        credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, CREDENTIALS.size)
        if CREDENTIALS.unpack(credentials)[1] not in (0, os.geteuid()):
            connection.close()
            return None
        connection.setblocking(False)
        return connection

    def leave(self, story: bytes) -> bool:
        """The run has ended and no daemon is there: what is to be told goes into a file, durably. False when it cannot
        be written (a full disk): then it stays here, and at the socket."""
        path = self.path(STORY_SUFFIX)
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            fd = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                view = memoryview(story)
                while view:
                    view = view[os.write(fd, view):]
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(path + ".new", path)
        except OSError:
            return False
        return True

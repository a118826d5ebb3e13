"""A file system in this process's memory, spoken for at /dev/fuse: it can grant every lock, stop answering, run full,
refuse, and keep a clock of its own."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import stat
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hung_fuse import IN_HEADER, INIT_ANSWER, MNT_DETACH

LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK, RMDIR, RENAME, LINK = 1, 2, 3, 4, 9, 10, 11, 12, 13
OPEN, READ, WRITE, STATFS, RELEASE, FSYNC, FLUSH, INIT = 14, 15, 16, 17, 18, 20, 25, 26
OPENDIR, READDIR, RELEASEDIR, FSYNCDIR, SETLK, SETLKW, ACCESS, CREATE = 27, 28, 29, 30, 32, 33, 34, 35
INTERRUPT, DESTROY, BATCH_FORGET, RENAME2 = 36, 38, 42, 45
LOCKS_ARE_OURS = 1 << 1 | 1 << 10
SIZE, MODE, MTIME, MTIME_NOW = 1 << 3, 1 << 0, 1 << 5, 1 << 8
BILLION = 1_000_000_000


class Node:
    def __init__(self, number: int, mode: int, now: int) -> None:
        self.number, self.mode, self.mtime = number, mode, now
        self.links = 1
        self.content = bytearray()
        self.names: dict[bytes, Node] = {}

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


class MemoryMount:
    """Mounts at a folder. `faults` answers an operation (by its number) with an errno. `close` unmounts, and lets
    everybody go who waits."""

    def __init__(
        self, folder: Path, *, grants_every_lock: bool = False, clock: Callable[[], int] = time.time_ns
    ) -> None:
        """Raises OSError where no file system may be mounted."""
        self.folder = folder
        self.clock = clock
        self.faults: dict[int, int] = {}
        self.answering = threading.Event()
        self.answering.set()
        self._locks = LOCKS_ARE_OURS if grants_every_lock else 0
        self._nodes: dict[int, Node] = {}
        self.root = self._make(stat.S_IFDIR | 0o755)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        folder.mkdir()
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if self._libc.mount(b"memory", os.fsencode(folder), b"fuse", 6, options) != 0:
            number = ctypes.get_errno()
            os.close(self._device)
            folder.rmdir()
            raise OSError(number, "mount")
        self._told, self._tell = os.pipe2(os.O_CLOEXEC)
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        os.write(self._tell, b"x")
        self.answering.set()
        self._thread.join(10)
        os.close(self._device)
        self._libc.umount2(os.fsencode(self.folder), MNT_DETACH)
        os.close(self._told)
        os.close(self._tell)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        poll.register(self._told, select.POLLIN)
        while True:
            events = dict(poll.poll())
            self.answering.wait()
            if self._told in events or events.get(self._device, 0) & select.POLLERR or not self._open:
                return
            try:
                question = os.read(self._device, 1 << 18)
            except (BlockingIOError, FileNotFoundError):
                continue
            _, opcode, unique, number, *_ = IN_HEADER.unpack_from(question)
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            error, answer = 0, b""
            try:
                if opcode in self.faults:
                    raise OSError(self.faults[opcode], "asked for")
                answer = self._answer(opcode, number, question[IN_HEADER.size:])
            except OSError as failure:
                error = failure.errno or errno.EIO
            try:
                os.write(self._device, struct.pack("<IiQ", 16 + len(answer), -error, unique) + answer)
            except OSError:
                pass  # who asked was interrupted

    def _answer(self, opcode: int, number: int, body: bytes) -> bytes:
        if opcode == INIT:
            return INIT_ANSWER.pack(7, 31, 0, 1 << 5 | self._locks, 0, 0, 1 << 17, 1, 0, 0)
        node = self._nodes[number]
        match opcode:
            case _ if opcode == LOOKUP:
                return self._entry(self._child(node, body[:-1]))
            case _ if opcode == GETATTR:
                return self._attributes(node)
            case _ if opcode == SETATTR:
                return self._set(node, body)
            case _ if opcode in (MKDIR, CREATE):
                return self._create(node, opcode, body)
            case _ if opcode in (UNLINK, RMDIR):
                self._remove(node, body[:-1])
            case _ if opcode in (RENAME, RENAME2):
                self._rename(node, body, 8 if opcode == RENAME else 16)
            case _ if opcode == LINK:
                return self._link(node, body)
            case _ if opcode in (OPEN, OPENDIR):
                return bytes(16)
            case _ if opcode == READ:
                _, offset, size = struct.unpack_from("<QQI", body)
                return bytes(node.content[offset:offset + size])
            case _ if opcode == READDIR:
                return self._list(node, *struct.unpack_from("<QQI", body)[1:])
            case _ if opcode == WRITE:
                return self._write(node, body)
            case _ if opcode == STATFS:
                return struct.pack("<QQQQQIIII24x", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, 0)
            case _ if opcode in (RELEASE, RELEASEDIR, FLUSH, FSYNC, FSYNCDIR, ACCESS, SETLK, SETLKW, DESTROY):
                return b""
            case _:
                raise OSError(errno.ENOSYS, "not spoken")
        return b""

    def _make(self, mode: int) -> Node:
        node = Node(len(self._nodes) + 1, mode, self.clock())
        self._nodes[node.number] = node
        return node

    def _child(self, folder: Node, name: bytes) -> Node:
        if name not in folder.names:
            raise OSError(errno.ENOENT, "no such file")
        return folder.names[name]

    def _put(self, folder: Node, name: bytes, node: Node) -> None:
        folder.names[name] = node
        folder.mtime = self.clock()

    def _create(self, folder: Node, opcode: int, body: bytes) -> bytes:
        mode = struct.unpack_from("<I", body, 0 if opcode == MKDIR else 4)[0]
        name = body[8 if opcode == MKDIR else 16:-1]
        if name in folder.names:
            raise OSError(errno.EEXIST, "exists")
        node = self._make((stat.S_IFDIR if opcode == MKDIR else stat.S_IFREG) | mode & 0o7777)
        self._put(folder, name, node)
        return self._entry(node) + (b"" if opcode == MKDIR else bytes(16))

    def _remove(self, folder: Node, name: bytes) -> None:
        node = self._child(folder, name)
        if node.names:
            raise OSError(errno.ENOTEMPTY, "not empty")
        del folder.names[name]
        node.links -= 1
        folder.mtime = self.clock()

    def _rename(self, folder: Node, body: bytes, head: int) -> None:
        target = self._nodes[struct.unpack_from("<Q", body)[0]]
        old, new = body[head:-1].split(b"\0")
        node = self._child(folder, old)
        del folder.names[old]
        folder.mtime = self.clock()
        self._put(target, new, node)

    def _link(self, folder: Node, body: bytes) -> bytes:
        node = self._nodes[struct.unpack_from("<Q", body)[0]]
        if body[8:-1] in folder.names:
            raise OSError(errno.EEXIST, "exists")
        node.links += 1
        self._put(folder, body[8:-1], node)
        return self._entry(node)

    def _write(self, node: Node, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        node.content[offset:offset + size] = body[40:40 + size]
        node.mtime = self.clock()
        return struct.pack("<II", size, 0)

    def _set(self, node: Node, body: bytes) -> bytes:
        valid, _, _, size, _, _, mtime, _, _, mtime_ns, _, mode = struct.unpack_from("<IIQQQQQQIIII", body)
        if valid & SIZE:
            del node.content[size:]
            node.content.extend(bytes(size - len(node.content)))
        if valid & MODE:
            node.mode = stat.S_IFMT(node.mode) | mode & 0o7777
        if valid & MTIME:
            node.mtime = self.clock() if valid & MTIME_NOW else mtime * BILLION + mtime_ns
        return self._attributes(node)

    def _list(self, folder: Node, offset: int, size: int) -> bytes:
        answer = b""
        for place, (name, node) in enumerate(list(folder.names.items())[offset:], offset + 1):
            entry = struct.pack("<QQII", node.number, place, len(name), stat.S_IFMT(node.mode) >> 12) + name
            entry += bytes(-len(entry) % 8)
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer

    def _attributes(self, node: Node) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._facts(node)

    def _entry(self, node: Node) -> bytes:
        return struct.pack("<QQQQII", node.number, 0, 0, 0, 0, 0) + self._facts(node)

    @staticmethod
    def _facts(node: Node) -> bytes:
        second, rest = divmod(node.mtime, BILLION)
        return struct.pack("<QQQQQQIIIIIIIIII", node.number, len(node.content), 1, second, second, second,
                           rest, rest, rest, node.mode, node.links, 0, 0, 0, 4096, 0)

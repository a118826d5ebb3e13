"""A file system that reads questions and never answers: who asks it sleeps where no signal reaches."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from pathlib import Path

OPCODE_INIT = 26
IN_HEADER = struct.Struct("<IIQQIIII")  # length, opcode, unique, node, uid, gid, pid, padding
INIT_ANSWER = struct.Struct("<IIIIHHIIHH32x")
"""Version 7.12 or so: major, minor, readahead, flags, background, congestion, write size, granularity, pages."""
MNT_DETACH = 2


class HungMount:
    """Mounts at a folder. `asked` is set when somebody waits; `close` lets everybody go and unmounts."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError where no file system may be mounted."""
        self.folder = folder
        self.asked = threading.Event()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._device = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        folder.mkdir()
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if self._libc.mount(b"hung", os.fsencode(folder), b"fuse", 6, options) != 0:
            number = ctypes.get_errno()
            os.close(self._device)
            folder.rmdir()
            raise OSError(number, "mount")
        self._told, self._tell = os.pipe2(os.O_CLOEXEC)
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        poll.register(self._told, select.POLLIN)
        while True:
            events = dict(poll.poll())
            if self._told in events or events.get(self._device, 0) & select.POLLERR:
                return
            try:
                question = os.read(self._device, 1 << 17)
            except BlockingIOError:
                continue
            _, opcode, unique, *_ = IN_HEADER.unpack_from(question)
            if opcode == OPCODE_INIT:
                answer = INIT_ANSWER.pack(7, 12, 0, 0, 0, 0, 4096, 0, 0, 0)
                os.write(self._device, struct.pack("<IiQ", 16 + len(answer), 0, unique) + answer)
            else:
                self.asked.set()

    def close(self) -> None:
        """The end of the connection answers every question with an error, in whatever namespace it was asked."""
        if not self._open:
            return
        self._open = False
        os.write(self._tell, b"x")
        self._thread.join(10)
        os.close(self._device)
        self._libc.umount2(os.fsencode(self.folder), MNT_DETACH)
        os.close(self._told)
        os.close(self._tell)

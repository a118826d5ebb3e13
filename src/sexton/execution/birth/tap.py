"""What a run that outlives the daemon writes is taken in here: a thread of its supervisor reads the pipes, writes the
output file and passes every byte on to the daemon while there is one.

The file comes first, so nothing is lost when the daemon dies at any instant; and no pipe of the job ends at the daemon,
so its death breaks none. A thread, because a disk that hangs must not keep the supervisor from ending the run.
"""

from __future__ import annotations

import _thread
import fcntl
import os
import select
import time

from sexton.execution.birth.outfile import OutFile
from sexton.execution.birth.redact import Redactor

PIPE_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024
HOLD_LIMIT = 1024 * 1024
"""Bytes of an unfinished line that are held back, so that the two streams do not cut into each other's lines."""


class Source:
    """One captured stream of the job."""

    __slots__ = ("bytes", "ended", "fd", "forward", "held", "redactor", "truncated")

    def __init__(self, fd: int, forward: int, redactor: Redactor | None) -> None:
        self.fd = fd
        self.redactor = redactor
        self.forward = forward
        self.held = b""
        self.bytes = 0
        self.truncated = False
        self.ended = 0
        """Monotonic ns; 0 while it is open."""


class Tap:
    """`news` becomes readable when something has happened that the supervisor should look at."""

    def __init__(self, path: str, cap: int, masks: list[bytes] | None = None) -> None:
        self._masks = masks
        self.sources: dict[int, Source] = {}
        self.finished = False
        self.attached: list[tuple[int, int]] = []
        """(stream, bytes that a newly attached daemon has not seen), to be told once; guarded by the lock."""
        self._lost = 0
        self._file = OutFile(path, cap)
        self._lock = _thread.allocate_lock()
        self._ask_finish = False
        self._new_forwards: dict[int, int] = {}
        self.news, self._news_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._asked, self._ask_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    @property
    def dropped(self) -> int:
        return self._lost + self._file.dropped

    @property
    def closed(self) -> bool:
        """Every captured stream has come to its end."""
        return all(source.ended for source in self.sources.values())

    # ---------------------------------------------------------------- called by the supervisor

    def interpose(self, number: int, forward: int) -> int:
        """A pipe of our own for the job's stream `number`; what arrives goes to `forward`, which is ours now, too.
        Returns the job's end. Raises OSError."""
        read, write = os.pipe2(os.O_CLOEXEC)
        try:
            fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # over the user's quota of pipe pages
        self.sources[number] = Source(read, forward, Redactor(self._masks) if self._masks else None)
        return write

    def abandon(self) -> None:
        """Nothing was started: there is nothing to read."""
        for source in self.sources.values():
            self._end(source)
        self.finished = True

    def start(self) -> None:
        _thread.start_new_thread(self._work, ())

    def attach(self, forwards: dict[int, int]) -> None:
        """Another daemon wants to have what comes from now on."""
        with self._lock:
            self._new_forwards.update(forwards)
        self._ask()

    def finish(self) -> None:
        """Take what is there, close the pipes and put the file together; `finished` tells when that is done."""
        self._ask_finish = True
        self._ask()

    def take_attached(self) -> list[tuple[int, int]]:
        try:
            while os.read(self.news, 4096):
                pass
        except BlockingIOError:
            pass
        with self._lock:
            told, self.attached = self.attached, []
        return told

    def _ask(self) -> None:
        if self.finished:
            self._take_forwards()
            return
        try:
            os.write(self._ask_write, b".")
        except BlockingIOError:
            pass  # it has not read the earlier ones yet

    # ---------------------------------------------------------------- the thread

    def _work(self) -> None:
        try:
            while not self._ask_finish:
                self._round()
            self._drain()
        except Exception as failure:  # the run goes on; it must not wait for us in a full pipe
            os.write(2, f"sexton: output of a run cannot be kept: {failure!r}\n".encode())
        for source in self.sources.values():
            source.truncated = source.truncated or not source.ended
            self._end(source)
        try:
            self._file.finish(self.dropped)
        except OSError:
            pass  # its parts stay, and are read as they are
        self.finished = True
        self._take_forwards()
        self._tell()

    def _round(self) -> None:
        poll = select.poll()
        poll.register(self._asked, select.POLLIN)
        open_sources = {source.fd: source for source in self.sources.values() if not source.ended}
        for fd in open_sources:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll():
            if fd == self._asked:
                os.read(fd, 4096)
                self._take_forwards()
            else:
                self._read(open_sources[fd])

    def _read(self, source: Source) -> None:
        data = os.read(source.fd, READ_BYTES)
        if data:
            self._take(source, data)
        else:
            self._end(source)
            self._tell()

    def _take(self, source: Source, data: bytes) -> None:
        """The one way in: what is masked here reaches neither the file nor a daemon."""
        if source.redactor is not None:
            data = source.redactor.feed(data)
        self._split(source, data)

    def _split(self, source: Source, data: bytes) -> None:
        cut = data.rfind(b"\n") + 1
        if cut:
            self._keep(source.held + data[:cut])
            source.held = data[cut:]
        else:
            source.held += data
        if len(source.held) > HOLD_LIMIT:
            self._keep(source.held)
            source.held = b""
        source.bytes += len(data)
        if source.forward >= 0:
            self._forward(source, data)

    def _keep(self, data: bytes) -> None:
        try:
            self._file.store(data)
        except OSError:
            self._lost += len(data)  # a full disk; the count is in the record

    @staticmethod
    def _forward(source: Source, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(source.forward, view):]
        except OSError:
            os.close(source.forward)  # the daemon is gone, or has closed this stream
            source.forward = -1

    def _end(self, source: Source) -> None:
        if source.ended:
            return
        if source.redactor is not None:
            self._split(source, source.redactor.finish())
        if source.held:
            self._keep(source.held)
            source.held = b""
        os.close(source.fd)
        if source.forward >= 0:
            os.close(source.forward)
            source.forward = -1
        source.ended = time.monotonic_ns()

    def _drain(self) -> None:
        """Somebody may still hold the other ends: what is there now is taken, what comes later is not ours."""
        for source in self.sources.values():
            if source.ended:
                continue
            os.set_blocking(source.fd, False)
            for _ in range(2 * PIPE_BYTES // READ_BYTES):
                try:
                    data = os.read(source.fd, READ_BYTES)
                except BlockingIOError:
                    source.truncated = True
                    break
                if not data:
                    break
                self._take(source, data)
            self._end(source)

    def _take_forwards(self) -> None:
        with self._lock:
            forwards, self._new_forwards = self._new_forwards, {}
            for number, fd in forwards.items():
                source = self.sources.get(number)
                self.attached.append((number, source.bytes if source is not None else 0))
                if source is None or source.ended:
                    os.close(fd)
                    continue
                if source.forward >= 0:
                    os.close(source.forward)
                source.forward = fd
        if forwards:
            self._tell()

    def _tell(self) -> None:
        try:
            os.write(self._news_write, b".")
        except BlockingIOError:
            pass

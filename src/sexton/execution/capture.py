"""Reading what a run writes: bounded memory for each run, whatever it writes and however fast.

The pipes are read with add_reader and os.read in large pieces; nothing is done for each line unless somebody follows
the run. Pieces end at line ends where they can, so that the two streams do not cut into each other's lines.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import chain

from sexton.execution.birth.redact import Redactor
from sexton.execution.keeping import KeptLog
from sexton.execution.messages import ExecutionMessage, Stream, StreamClosed
from sexton.execution.mirror import Mirror
from sexton.execution.runlog import RunLog
from sexton.execution.secrets import Masks
from sexton.model.job import JobSpec
from sexton.model.run import OutputFacts, StreamSize

PIPE_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024
"""Buffers beyond malloc's mmap threshold (128 KiB) are mapped and unmapped each time, which costs more than the
reading."""
FLOOD_BYTES = 32 * 1024
FLOOD_PAUSE = 0.001
"""Seconds. A run that writes fast is read on a timer, so that the pipe fills up in between: few large reads cost a
third of many small ones."""
HELD_UP_PAUSE = 0.002
HOLD_LIMIT = 1024 * 1024
"""Bytes of an unfinished line that are held back; a longer line is passed on in pieces and cut where lines are
shown."""
KEEP_BYTES = 512 * 1024
"""Bytes kept in memory of the beginning of all output of a run; of its end at least as many, and at most twice."""
FOLLOWER_LINES = 8192
ALL = slice(None)
DISCARDED = "   [.... {} lines discarded ...]"
CUT_MARK = " [.... line cut ....]"


class Follower:
    """A live reader of a run's lines. Bounded: a slow one loses lines, which `dropped` counts."""

    def __init__(self) -> None:
        self._lines: deque[tuple[Stream, str]] = deque()
        self._wake = asyncio.Event()
        self.ended = False
        self.dropped = 0

    def push(self, piece: Piece, limit: int) -> None:
        """Take the lines of a piece, each cut at `limit`. Only those that there is room for are made: following a flood
        must not cost the event loop more than the flood does."""
        room = max(0, FOLLOWER_LINES - len(self._lines))
        if room > 0:
            self._lines.extend((piece.stream, line) for line in piece.lines(limit, slice(room)))
            self._wake.set()
        self.dropped += max(0, piece.count() - room)

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    async def take(self) -> list[tuple[Stream, str]]:
        """All lines there are, waiting for the first; empty when the output has ended."""
        while not self._lines and not self.ended:
            self._wake.clear()
            await self._wake.wait()
        lines = list(self._lines)
        self._lines.clear()
        return lines


class _Source:
    """One captured stream: its pipe and its unfinished line."""

    __slots__ = (
        "bytes", "capacity", "cutting", "enlarged", "fd", "held", "name", "prefix", "redactor", "timer", "truncated",
    )

    def __init__(self, name: Stream, fd: int | None, prefix: bytes, redactor: Redactor | None = None) -> None:
        self.name = name
        self.redactor = redactor
        self.fd = fd
        self.prefix = prefix
        self.held = b""
        self.cutting = False
        self.truncated = False
        self.bytes = 0
        self.capacity = 64 * 1024
        self.timer: asyncio.TimerHandle | None = None
        """Set while the stream is read on a timer and not on the pipe's readiness."""
        self.enlarged = False

    def enlarge(self) -> None:
        """Give the pipe of a run that writes much more room; most runs never need it, and it costs as much as the rest
        of making a pipe."""
        self.enlarged = True
        try:
            if self.fd is not None:
                self.capacity = fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # over the user's quota of pipe pages: 64 KiB do as well, slower


class Piece:
    """Bytes of one stream, whole lines unless `partial`; `rest` is the continuation of a line that was cut already."""

    __slots__ = ("data", "partial", "rest", "stream")

    def __init__(self, stream: Stream, data: bytes, *, partial: bool = False, rest: bool = False) -> None:
        self.stream, self.data, self.partial, self.rest = stream, data, partial, rest

    def whole(self) -> bytes:
        """Without the rest of a line that was shown, cut, with an earlier piece."""
        return self.data.partition(b"\n")[2] if self.rest else self.data

    def count(self) -> int:
        """How many lines there are to show; cheap, whatever their number is."""
        data = self.whole()
        return data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))

    def lines(self, limit: int, wanted: slice = ALL) -> Iterator[str]:
        """The `wanted` ones of the piece's lines, each cut at `limit` bytes. Only they are made: a flood of short lines
        has hundreds of thousands of them."""
        data = self.whole()
        if not data:
            return
        for line in (data[:-1] if data.endswith(b"\n") else data).split(b"\n")[wanted]:
            cut = self.partial or len(line) > limit
            yield line[:limit].rstrip(b"\r").decode("utf-8", "replace") + (CUT_MARK if cut else "")


class Capture:
    """The captured streams of one run. `post` gets StreamClosed for each of them, once."""

    def __init__(
        self, job: JobSpec, post: Callable[[ExecutionMessage], None], mirror: Mirror | None,
        log: RunLog | KeptLog | None, masks: Masks | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._job = job
        self._post = post
        self._mirror = mirror if job.mirror_output else None
        self.log = log
        self._masks = masks
        """None as well where the run's supervisor masks already."""
        self._sources: dict[Stream, _Source] = {}
        self._head: list[Piece] = []
        self._head_bytes = 0
        self._tail: deque[Piece] = deque()
        self._tail_bytes = 0
        self.dropped_from_memory = False
        self._followers: list[Follower] = []

    def open(self) -> list[tuple[int, int]]:
        """Make the pipes; returns (write end, descriptor number in the job) for each captured stream. Raises
        OSError."""
        wanted = [(Stream.STDOUT, 1)] if self._job.capture_stdout else []
        wanted += [(Stream.STDERR, 2)] if self._job.capture_stderr else []
        ends: list[tuple[int, int]] = []
        for stream, number in wanted:
            try:
                read, write = os.pipe2(os.O_CLOEXEC)
            except OSError:
                for end, _ in ends:
                    os.close(end)
                for source in self._sources.values():
                    self._end(source)
                raise
            os.set_blocking(read, False)
            prefix = self._job.stream_prefix.format(job_name=self._job.name, stream_name=stream.value)
            redactor = self._masks.stream() if self._masks is not None else None
            source = _Source(stream, read, prefix.encode("utf-8", "replace"), redactor)
            self._sources[stream] = source
            self._loop.add_reader(read, self._drain, source)
            ends.append((write, number))
        return ends

    # ---------------------------------------------------------------- reading

    def _drain(self, source: _Source) -> None:
        """Read what is there, a pipe's fill at most, and decide how to wait for more."""
        if source.fd is None:
            return
        if self._held_up():
            self._read_later(source, HELD_UP_PAUSE)
            return
        got = self._fill(source)
        if got is None:
            return
        if got >= FLOOD_BYTES and not source.enlarged:
            source.enlarge()
        if got * 2 >= source.capacity:
            self._read_later(source, 0.0)
        elif got >= FLOOD_BYTES:
            self._read_later(source, FLOOD_PAUSE)
        elif source.timer is not None:
            source.timer = None
            self._loop.add_reader(source.fd, self._drain, source)

    def _fill(self, source: _Source) -> int | None:
        """Take what is there, a pipe's fill at most. Returns how many bytes; None when the stream has ended."""
        got = 0
        while source.fd is not None and got < source.capacity:
            try:
                data = os.read(source.fd, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self._end(source)
                return None
            got += len(data)
            self._take(source, data)
            if len(data) < READ_BYTES:
                break
        return got

    def catch_up(self) -> None:
        """Take what is in the pipes: then it is known which streams have ended, which a read of its own tells."""
        for source in self._sources.values():
            for _ in range(2):
                if source.fd is not None and not self._held_up():
                    self._fill(source)

    def _held_up(self) -> bool:
        """The disk or the reader of our own output is behind: the run waits in its pipe, and we stay small."""
        return (self.log is not None and self.log.full) or (self._mirror is not None and self._mirror.full)

    def _read_later(self, source: _Source, seconds: float) -> None:
        if source.timer is None and source.fd is not None:
            self._loop.remove_reader(source.fd)
        source.timer = self._loop.call_later(seconds, self._drain, source)

    def _take(self, source: _Source, data: bytes) -> None:
        """The one way in: what is masked here is seen nowhere."""
        if source.redactor is not None:
            data = source.redactor.feed(data)
        self._split(source, data)

    def _split(self, source: _Source, data: bytes) -> None:
        source.bytes += len(data)
        cut = data.rfind(b"\n") + 1
        if cut:
            whole = data if cut == len(data) else data[:cut]
            piece = Piece(source.name, source.held + whole if source.held else whole, rest=source.cutting)
            source.held, source.cutting = data[cut:], False
            self._pass_on(source, piece)
        else:
            source.held += data
        if len(source.held) > HOLD_LIMIT:
            self._pass_on(source, Piece(source.name, source.held, partial=not source.cutting, rest=source.cutting))
            source.held, source.cutting = b"", True

    def _pass_on(self, source: _Source, piece: Piece) -> None:
        if self.log is not None:
            self.log.write(piece.data)
        if self._mirror is not None:
            self._mirror.write(source.prefix, piece.data)
        self._keep(piece)
        for follower in self._followers:
            follower.push(piece, self._job.max_line_length)

    def _keep(self, piece: Piece) -> None:
        room = KEEP_BYTES - self._head_bytes
        if room >= len(piece.data) and not self._tail:
            self._head.append(piece)
            self._head_bytes += len(piece.data)
            return
        if piece.partial and room > 0 and not self._tail:
            # The beginning of a line that is longer than all we keep: it stays, for the line to be shown (cut) at all.
            self._head.append(Piece(piece.stream, piece.data[:room], partial=True, rest=piece.rest))
            self._head_bytes += room
            piece = Piece(piece.stream, piece.data[room:], rest=True)
        if len(piece.data) > KEEP_BYTES:
            # Only its end can stay: drop the line that the cut runs through.
            end = piece.data[-KEEP_BYTES:]
            start = end.find(b"\n") + 1
            piece = Piece(piece.stream, end[start:], partial=piece.partial, rest=piece.rest and not start)
            self.dropped_from_memory = True
        self._tail.append(piece)
        self._tail_bytes += len(piece.data)
        while self._tail_bytes > 2 * KEEP_BYTES:
            self._tail_bytes -= len(self._tail.popleft().data)
            self.dropped_from_memory = True

    # ---------------------------------------------------------------- ending

    def _end(self, source: _Source) -> None:
        if source.fd is None:
            return
        if source.timer is None:
            self._loop.remove_reader(source.fd)
        else:
            source.timer.cancel()
        os.close(source.fd)
        source.fd = None
        if source.redactor is not None:
            self._split(source, source.redactor.finish())
        if source.held:
            self._pass_on(source, Piece(source.name, source.held, rest=source.cutting))
            source.held = b""
        self._post(StreamClosed(source.name))
        if not self.open_streams:
            for follower in self._followers:
                follower.end()

    def close(self, stream: Stream) -> None:
        """Close our end while somebody still holds the other: takes what is there, then marks the stream truncated."""
        source = self._sources.get(stream)
        if source is None or source.fd is None:
            return
        source.truncated = True
        try:
            while not (self.log is not None and self.log.full):
                data = os.read(source.fd, PIPE_BYTES)
                if not data:
                    source.truncated = False  # nobody held it after all
                    break
                self._take(source, data)
        except OSError:
            pass  # nothing more is there now
        self._end(source)

    @property
    def open_streams(self) -> list[Stream]:
        return [name for name, source in self._sources.items() if source.fd is not None]

    # ---------------------------------------------------------------- what was written

    def wrote(self, stream: Stream) -> bool:
        source = self._sources.get(stream)
        return source is not None and source.bytes > 0

    def recall(self, stream: Stream, count: int, *, truncated: bool = False) -> None:
        """Bytes that an earlier daemon, or none, has seen: they are in the file, and count."""
        source = self._sources.get(stream)
        if source is None:
            source = self._sources[stream] = _Source(stream, None, b"")
        source.bytes += count
        source.truncated = source.truncated or truncated

    def facts(self) -> OutputFacts:
        def size(stream: Stream) -> StreamSize | None:
            source = self._sources.get(stream)
            if source is None:
                return None
            return StreamSize(bytes=source.bytes, truncated=source.truncated)

        wrote = any(source.bytes for source in self._sources.values())
        log = self.log if wrote else None
        return OutputFacts(
            stdout=size(Stream.STDOUT), stderr=size(Stream.STDERR), log=log.name if log else None,
            log_dropped_bytes=log.dropped if log else 0,
        )

    @property
    def kept_bytes(self) -> int:
        """How much output memory holds."""
        return self._head_bytes + self._tail_bytes

    def pieces(self) -> Iterator[Piece]:
        """What memory holds of the output, in order."""
        yield from self._head
        yield from self._tail

    def lines(self, last: int) -> list[tuple[Stream, str]]:
        """The last lines that memory holds, oldest first."""
        found: list[list[tuple[Stream, str]]] = []
        for piece in chain(reversed(self._tail), reversed(self._head)):
            if last <= 0:
                break
            found.append([(piece.stream, line) for line in piece.lines(self._job.max_line_length, slice(-last, None))])
            last -= len(found[-1])
        return list(chain.from_iterable(reversed(found)))

    def saved(self) -> list[tuple[Stream, str]]:
        """What is kept of a run that has ended: of each stream the first and the last half of saveLimit lines, with a
        mark where lines are missing."""
        half, limit, longest = self._job.save_limit // 2, self._job.save_limit, self._job.max_line_length
        total: Counter[Stream] = Counter()
        for piece in self.pieces():
            total[piece.stream] += piece.count()
        seen: Counter[Stream] = Counter()
        kept: list[tuple[Stream, str]] = []
        for piece in self.pieces():
            stream, first, count = piece.stream, seen[piece.stream], piece.count()
            seen[stream] += count
            surplus = max(0, total[stream] - limit)
            if first < half or not surplus:
                wanted = slice(half - first) if surplus else ALL
                kept += ((stream, line) for line in piece.lines(longest, wanted))
            if surplus and half and first <= half < first + count:
                kept.append((stream, DISCARDED.format(surplus)))
            if surplus and first + count > half + surplus:
                kept += ((stream, line) for line in piece.lines(longest, slice(max(0, half + surplus - first), None)))
        return kept

    def so_far(self) -> bytes:
        """What memory holds of the output, as it was written; a mark where something is missing."""
        mark = [b"\n[.... some output is not in memory any more ....]\n"] if self.dropped_from_memory else []
        return b"".join([*(piece.data for piece in self._head), *mark, *(piece.data for piece in self._tail)])

    def follow(self) -> Follower:
        follower = Follower()
        if self.open_streams:
            self._followers.append(follower)
        else:
            follower.end()
        return follower

    def unfollow(self, follower: Follower) -> None:
        if follower in self._followers:
            self._followers.remove(follower)

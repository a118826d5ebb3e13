"""Captured output against real pipes: bounded memory, nothing promised is lost, nobody waits for a stalled reader."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from msgspec.structs import replace

from sexton.execution.capture import KEEP_BYTES, Capture
from sexton.execution.messages import ExecutionMessage, Stream, StreamClosed
from sexton.execution.mirror import HIGH_WATER, STALLED_SECONDS, Mirror
from sexton.execution.runlog import OutputFiles, RunLog
from sexton.model.job import JobSpec, Place

JOB = JobSpec(name="j", command="true", schedule="0 0 1 1 *", place=Place("t", 1, 1), capture_stdout=True)


class Pipes:
    """A capture whose job is the test."""

    def __init__(self, job: JobSpec = JOB, mirror: Mirror | None = None, log: RunLog | None = None) -> None:
        self.closed = asyncio.Event()
        self.messages: list[ExecutionMessage] = []
        self.capture = Capture(job, self._post, mirror, log)
        self.ends = {number: fd for fd, number in self.capture.open()}

    def _post(self, message: ExecutionMessage) -> None:
        self.messages.append(message)
        if not self.capture.open_streams:
            self.closed.set()

    async def write(self, number: int, data: bytes) -> None:
        await asyncio.to_thread(self._write, number, data)

    def _write(self, number: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.ends[number], view) :]

    async def end(self) -> None:
        for fd in self.ends.values():
            os.close(fd)
        await asyncio.wait_for(self.closed.wait(), 10)


async def test_lines_of_both_streams_stay_whole_and_in_order() -> None:
    """A line that is written in two parts is one line, whatever the other stream writes in between."""
    pipes = Pipes()
    for number, part in ((1, b"on"), (2, b"err\n"), (1, b"e\ntwo\n")):
        await pipes.write(number, part)
        await asyncio.sleep(0.02)
    await pipes.end()
    assert pipes.capture.lines(10) == [(Stream.STDERR, "err"), (Stream.STDOUT, "one"), (Stream.STDOUT, "two")]
    assert {m.stream for m in pipes.messages if isinstance(m, StreamClosed)} == {Stream.STDOUT, Stream.STDERR}


async def test_memory_keeps_the_beginning_and_the_end_of_a_flood() -> None:
    """Of 32 MiB memory holds a little at each end, in order, and says that something is missing."""
    pipes = Pipes()
    lines = b"".join(b"%07d %s\n" % (n, b"x" * 91) for n in range(335_000))
    await pipes.write(1, lines)
    await pipes.end()
    kept = sum(len(piece.data) for piece in pipes.capture.pieces())
    assert kept <= 4 * KEEP_BYTES
    shown = [line for _, line in pipes.capture.lines(1_000_000)]
    assert shown[0].startswith("0000000") and shown[-1].startswith("0334999")
    assert pipes.capture.dropped_from_memory
    facts = pipes.capture.facts()
    assert facts.stdout is not None and facts.stdout.bytes == len(lines) and not facts.stdout.truncated


async def test_an_endless_line_is_cut_where_it_is_shown_and_reading_goes_on() -> None:
    """A line of 5 MiB is shown once, cut and marked; the next line is whole."""
    pipes = Pipes(replace(JOB, max_line_length=10))
    await pipes.write(1, b"y" * (5 << 20) + b"\nafter\n")
    await pipes.end()
    assert [line for _, line in pipes.capture.lines(10)] == ["yyyyyyyyyy [.... line cut ....]", "after"]


async def test_save_limit_keeps_first_and_last_half() -> None:
    """saveLimit 4 keeps two lines at each end and says how many are missing; 0 keeps nothing."""
    for limit, expected in (
        (4, ["0", "1", "   [.... 6 lines discarded ...]", "8", "9"]), (0, []), (100, [str(n) for n in range(10)]),
    ):
        pipes = Pipes(replace(JOB, save_limit=limit))
        await pipes.write(1, b"".join(b"%d\n" % n for n in range(10)))
        await pipes.end()
        assert [line for _, line in pipes.capture.saved()] == expected


async def test_a_closed_end_marks_the_stream_truncated() -> None:
    """When we give up on a held stream, what is there is taken and the stream is marked; a free one is not."""
    pipes = Pipes()
    await pipes.write(1, b"so far\n")
    pipes.capture.close(Stream.STDOUT)
    os.close(pipes.ends.pop(2))
    await asyncio.wait_for(pipes.closed.wait(), 5)
    facts = pipes.capture.facts()
    assert facts.stdout is not None and facts.stdout.truncated and facts.stdout.bytes == 7
    assert facts.stderr is not None and not facts.stderr.truncated
    os.close(pipes.ends.pop(1))


async def test_the_log_file_keeps_both_halves_within_its_cap(tmp_path: Path) -> None:
    """Of 8 MiB a cap of 1 MiB keeps the first half, at least the last third, and a mark between."""
    files = OutputFiles(tmp_path, 1 << 20)
    log = files.start("01234567-run")
    pipes = Pipes(log=log)
    data = b"".join(b"%07d %s\n" % (n, b"x" * 91) for n in range(84_000))
    await pipes.write(1, data)
    await pipes.end()
    whole = asyncio.Event()
    loop = asyncio.get_running_loop()
    log.finish(lambda: loop.call_soon_threadsafe(whole.set))
    await asyncio.wait_for(whole.wait(), 10)
    parts = files.parts("01234567-run")
    assert len(parts) == 1
    text = parts[0].read_bytes()
    mark = b"\n[.... %d bytes dropped here: maxOutputBytes ....]\n" % log.dropped
    assert len(text) <= (1 << 20) + len(mark)
    assert text.startswith(data[: 1 << 19]) and text.endswith(data[-(1 << 20) // 3 :])
    assert mark in text and len(data) - log.dropped == len(text) - len(mark)
    files.forget(["01234567-run"])
    files.close()
    assert files.parts("01234567-run") == []


def test_a_run_that_was_cut_off_is_forgotten_with_all_its_files(tmp_path: Path) -> None:
    """A crash leaves the end of the output in files of its own: they go with the first, and nothing of others does;
    where there never was a file, or no folder, nothing fails."""
    files = OutputFiles(tmp_path / "output", 1 << 20)
    folder = tmp_path / "output" / "012345"
    folder.mkdir(parents=True)
    cut, other = [folder / f"01234567-a.log{end}" for end in ("", ".0", ".2")], folder / "01234567-ab.log"
    for path in (*cut, other):
        path.write_text("x")
    assert files.parts("01234567-a")[0] == cut[0] and set(files.parts("01234567-a")) == set(cut)
    files.forget(["01234567-a", "01234567-none", "99999999-nowhere"])
    (tmp_path / "file").write_text("")
    nowhere = OutputFiles(tmp_path / "file", 1 << 20)
    nowhere.forget(["01234567-a"])
    files.close()
    nowhere.close()
    assert list(folder.iterdir()) == [other] and nowhere.parts("01234567-a") == []


async def test_a_full_disk_costs_the_file_and_not_the_run(tmp_path: Path) -> None:
    """Output that cannot be written is counted; the run's output is read to its end."""
    blocked = tmp_path / "output"
    blocked.write_text("no directory\n")
    files = OutputFiles(blocked, 1 << 20)
    log = files.start("01234567-run")
    pipes = Pipes(log=log)
    await pipes.write(1, b"lost\n" * 100_000)
    await pipes.end()
    files.close()
    assert log.dropped == 500_000 and log.waiting == 0


async def test_a_stalled_reader_of_our_output_loses_lines_and_holds_nobody_up() -> None:
    """Nobody reads the mirror's pipe: after the patience lines are dropped and counted, and the run ends."""
    read, write = os.pipe()
    mirror = Mirror(write)
    pipes = Pipes(mirror=mirror)
    await asyncio.wait_for(pipes.write(1, b"z" * 99_999 + b"\n" + b"line\n" * 4_000_000), STALLED_SECONDS + 20)
    await pipes.end()
    assert mirror.dropped_bytes > 0 and mirror.stalled
    os.close(read)
    mirror.close()
    os.close(write)


async def test_a_slow_reader_of_our_output_gets_every_line() -> None:
    """A reader that takes its time makes the run wait, and nothing is dropped."""
    read, write = os.pipe()
    mirror = Mirror(write)
    pipes = Pipes(mirror=mirror)
    total = HIGH_WATER * 2
    got = bytearray()

    def slowly() -> None:
        while chunk := os.read(read, 1 << 16):
            got.extend(chunk)

    reader = asyncio.create_task(asyncio.to_thread(slowly))
    await pipes.write(1, b"line\n" * (total // 5))
    await pipes.end()
    mirror.close()
    os.close(write)
    await reader
    os.close(read)
    assert mirror.dropped_bytes == 0 and got.count(b"[j stdout] line\n") == total // 5

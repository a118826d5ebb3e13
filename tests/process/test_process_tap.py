"""The thread that takes in the output of a kept run: file first, then the daemon while there is one."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.execution.birth.outfile import OutFile
from sexton.execution.birth.tap import Tap

SECONDS = 5.0


class Bench:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "a" / "run.log"
        self.tap = Tap(str(self.path), 1_000_000)
        self.got, forward = os.pipe()
        self.job = self.tap.interpose(1, forward)
        self.tap.start()

    def write(self, data: bytes) -> None:
        os.write(self.job, data)

    def heard(self, count: int) -> bytes:
        data = b""
        while len(data) < count and select.select([self.got], [], [], SECONDS)[0]:
            data += os.read(self.got, count - len(data))
        return data

    def news(self) -> list[tuple[int, int]]:
        assert select.select([self.tap.news], [], [], SECONDS)[0], "news"
        return self.tap.take_attached()

    def finished(self) -> bytes:
        self.tap.finish()
        while not self.tap.finished:
            self.news()
        return self.path.read_bytes() if self.path.exists() else b""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.finished()
    for fd in (made.got, made.job):
        try:
            os.close(fd)
        except OSError:
            pass


def test_what_the_daemon_has_the_file_has(bench: Bench) -> None:
    """A whole line is in the file when the daemon gets it: the daemon's death loses nothing that it had read."""
    bench.write(b"one\n")
    assert bench.heard(4) == b"one\n" and bench.path.read_bytes() == b"one\n"


def test_a_dead_daemon_changes_nothing_for_the_job(bench: Bench) -> None:
    """No SIGPIPE, no wait, no byte lost; the next daemon gets what comes from then on and is told what it missed."""
    bench.write(b"one\n")
    bench.heard(4)
    os.close(bench.got)
    for _ in range(100):
        bench.write(b"x" * 9_999 + b"\n")
    bench.got, forward = os.pipe()
    bench.tap.attach({1: forward})
    ((stream, missed),) = bench.news()
    assert stream == 1
    bench.write(b"end\n")
    rest = bench.heard(1_000_004 + 4 - missed)
    assert rest.endswith(b"end\n") and len(rest) == 1_000_008 - missed
    assert bench.finished()[-4:] == b"end\n" and bench.tap.sources[1].bytes == 1_000_008


def test_an_unfinished_line_is_in_the_file_at_the_end(bench: Bench) -> None:
    """The daemon has it at once, the file when the stream ends."""
    bench.write(b"no end")
    assert bench.heard(6) == b"no end"
    os.close(bench.job)
    bench.news()
    assert bench.tap.closed and bench.finished() == b"no end" and not bench.tap.sources[1].truncated


def test_a_stream_that_is_held_is_cut_off(bench: Bench) -> None:
    """When the end is asked for, what is there is taken, and the record can say that more may have come."""
    bench.write(b"so far\n")
    assert bench.finished() == b"so far\n" and bench.tap.sources[1].truncated


def test_a_daemon_that_comes_after_the_end_is_told(bench: Bench) -> None:
    """Its pipe ends at once."""
    bench.finished()
    got, forward = os.pipe()
    bench.tap.attach({1: forward})
    assert bench.news() == [(1, 0)] and os.read(got, 1) == b""
    os.close(got)


def test_a_disk_that_takes_nothing_is_counted(tmp_path: Path) -> None:
    """The output goes on to the daemon all the same."""
    (tmp_path / "file").write_text("")
    tap = Tap(str(tmp_path / "file" / "run.log"), 1000)
    got, forward = os.pipe()
    job = tap.interpose(1, forward)
    tap.start()
    os.write(job, b"line\n")
    os.close(job)
    assert os.read(got, 5) == b"line\n"
    while not tap.closed:
        assert select.select([tap.news], [], [], SECONDS)[0]
        tap.take_attached()
    tap.finish()
    while not tap.finished:
        assert select.select([tap.news], [], [], SECONDS)[0]
        tap.take_attached()
    assert tap.dropped == 5
    os.close(got)


def test_the_cap_keeps_beginning_and_end(tmp_path: Path) -> None:
    """Half for the beginning, at least a third of the cap for the end, a mark with the count between."""
    file = OutFile(str(tmp_path / "out"), 30_000)
    lines = [b"%05d\n" % number for number in range(20_000)]
    for line in lines:
        file.store(line)
    file.finish(file.dropped)
    text = (tmp_path / "out").read_bytes()
    head, mark, tail = text.partition(b"\n[.... ")
    assert head == b"".join(lines)[:15_000] and mark
    kept = tail.partition(b"....]\n")[2]
    assert len(kept) >= 10_000 and b"".join(lines).endswith(kept)
    assert file.dropped == 20_000 * 6 - 15_000 - len(kept) and len(list(tmp_path.iterdir())) == 1

"""A probe that raises, hangs or dies is an answer, and leaves nothing."""

from __future__ import annotations

import os
import signal
import time

import pytest

from sexton.doctor.child import ProbeFailed, in_child
from sexton.doctor.diagnose import _guarded
from sexton.doctor.findings import Area, Level, Line


def fail() -> int:
    raise RuntimeError("no such luck")


def hang() -> int:
    if os.fork() == 0:
        time.sleep(60)  # in the group of the probe: ended with it
    time.sleep(60)
    return 0


def die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def test_an_answer_comes_whole() -> None:
    """Larger than a pipe, and the child is reaped."""
    assert in_child(lambda: "x" * 300_000, str) == "x" * 300_000
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(("probe", "words"), [(fail, "no such luck"), (hang, "no answer"), (die, "no answer")])
def test_no_answer_is_told(probe: object, words: str) -> None:
    """In words, within the bound, and nothing of it goes on."""
    fds = len(os.listdir("/proc/self/fd"))
    began = time.monotonic()
    with pytest.raises(ProbeFailed, match=words):
        in_child(probe, int, seconds=0.3)  # type: ignore[arg-type]
    assert time.monotonic() - began < 3 and len(os.listdir("/proc/self/fd")) == fds
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_bug_in_a_probe_is_a_line() -> None:
    """The others still say their part, and nobody sees a traceback."""
    def broken() -> list[Line]:
        raise KeyError("surprise")

    [line] = _guarded(Area.CLOCKS, broken)
    assert line.level is Level.MISSING and "surprise" in line.found

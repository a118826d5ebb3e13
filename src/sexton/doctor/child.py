"""A probe in a process of its own: whatever it changes about itself, or hangs in, ends with it."""

from __future__ import annotations

import os
import select
import signal
import struct
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")

SECONDS = 5.0
_SIZE = struct.Struct("<I")
_RAISED = b"!"
_ANSWERED = b"="


class ProbeFailed(Exception):
    """The probe gave no answer; the text says why."""


def in_child(probe: Callable[[], T], kind: type[T], *, seconds: float = SECONDS) -> T:
    """The probe's answer, which must be what msgspec can carry. Everything the child has started in its process group
    is ended with it. Raises ProbeFailed: it raised, took longer than `seconds`, or no process can be made."""
    try:
        ours, theirs = os.pipe()
    except OSError as refused:
        raise ProbeFailed(f"no descriptor is left: {refused.strerror}") from None
    try:
        pid = os.fork()
    except OSError as refused:
        os.close(ours)
        os.close(theirs)
        raise ProbeFailed(f"no process can be made: {refused.strerror}") from None
    if pid == 0:
        _answer(probe, theirs)
    os.close(theirs)
    try:
        message = _read(ours, time.monotonic() + seconds)
    finally:
        os.close(ours)
        _end(pid)
    if message is None:
        raise ProbeFailed(f"no answer within {seconds:g} seconds")
    if message[:1] == _RAISED:
        raise ProbeFailed(message[1:].decode(errors="replace"))
    return msgspec.json.decode(message[1:], type=kind)


def _answer(probe: Callable[[], T], pipe: int) -> None:
    """In the child. Never returns."""
    try:
        os.setpgid(0, 0)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        message = _ANSWERED + msgspec.json.encode(probe())
    except BaseException as failure:  # whatever it is, the parent tells it in one line
        message = _RAISED + (str(failure) or type(failure).__name__).encode(errors="replace")
    try:
        view = memoryview(_SIZE.pack(len(message)) + message)
        while view:
            view = view[os.write(pipe, view):]
    finally:
        os._exit(0)


def _read(pipe: int, deadline: float) -> bytes | None:
    """The whole message; None when it does not come in time or the child has died."""
    data = b""
    while len(data) < _SIZE.size or len(data) < _SIZE.size + _SIZE.unpack_from(data)[0]:
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        if not ready or not (chunk := os.read(pipe, 65536)):
            return None
        data += chunk
    return data[_SIZE.size:]


def _end(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:
            pass  # it has ended, or did not get as far as a group of its own
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
        except ChildProcessError:
            return
        time.sleep(0.005)  # a child that the kernel holds (a dead mount) is left behind: nothing can end it

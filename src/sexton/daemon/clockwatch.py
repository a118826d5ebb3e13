"""Hearing at once that the wall clock was set: a timerfd that is cancelled by it. Where there is none, the scheduler
compares the clocks each time it wakes, at least once a minute."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable

CLOCK_REALTIME = 0
TFD_NONBLOCK = 0o4000
TFD_CLOEXEC = 0o2000000
TFD_TIMER_ABSTIME = 1
TFD_TIMER_CANCEL_ON_SET = 2
FAR_FUTURE = 2**40


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


class ClockWatch:
    """Calls `on_set` on the event loop whenever the wall clock is set (not when it is slewed)."""

    def __init__(self, on_set: Callable[[], None]) -> None:
        self._on_set = on_set
        self._loop = asyncio.get_running_loop()
        self._fd = -1
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC)
        except (OSError, AttributeError):
            return
        if self._fd >= 0 and self._arm():
            self._loop.add_reader(self._fd, self._fired)

    @property
    def active(self) -> bool:
        return self._fd >= 0

    def _arm(self) -> bool:
        when = _Itimerspec(value=_Timespec(seconds=FAR_FUTURE))
        flags = TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET
        return bool(self._libc.timerfd_settime(self._fd, flags, ctypes.byref(when), None) == 0)

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except OSError:
            pass  # ECANCELED: that is the news
        self._arm()
        self._on_set()

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

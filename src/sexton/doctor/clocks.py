"""Clocks and time zones: what schedules and deadlines rest on."""

from __future__ import annotations

import ctypes
import os
import time
import zoneinfo

import msgspec

from sexton.doctor.child import ProbeFailed, in_child
from sexton.doctor.findings import Area, Level, Line

STA_UNSYNC = 0x0040
TIMEX_BYTES = 256
"""More than struct timex has on any platform; `modes` stays 0, so nothing is changed."""
TIMEX_STATUS = 40
"""Where `status` stands in it with 64-bit longs: int modes, then offset, freq, maxerror, esterror."""
CLOCK_REALTIME = 0
TFD_TIMER_ABSTIME_CANCEL_ON_SET = 3
FAR_FUTURE = 2**40
OLDEST_YEAR = 2025
SAMPLE_ZONE = "America/New_York"


class ClockFacts(msgspec.Struct, frozen=True, kw_only=True):
    year: int
    slept: float
    """Seconds the machine has slept since boot: boot time minus monotonic time."""
    backwards: bool
    """The monotonic clock went back while we looked."""
    hears_sets: bool
    synchronised: bool | None
    """None where the kernel does not tell."""
    zones: str | None
    """Where time zones come from; None when there are none."""


def look() -> ClockFacts:
    try:
        hears = in_child(_hears_sets, bool)
    except ProbeFailed:
        hears = False
    slept, backwards = _compare()
    return ClockFacts(
        year=time.gmtime().tm_year, slept=slept, backwards=backwards, hears_sets=hears,
        synchronised=_synchronised(), zones=_zones(),
    )


def _hears_sets() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.timerfd_create(CLOCK_REALTIME, 0)
    if fd < 0:
        return False
    when = (ctypes.c_long * 4)(0, 0, FAR_FUTURE, 0)
    return bool(libc.timerfd_settime(fd, TFD_TIMER_ABSTIME_CANCEL_ON_SET, ctypes.byref(when), None) == 0)


def _compare() -> tuple[float, bool]:
    backwards, before = False, time.monotonic()
    for _ in range(1000):
        now = time.monotonic()
        backwards, before = backwards or now < before, now
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(), backwards


def _synchronised() -> bool | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        timex = ctypes.create_string_buffer(TIMEX_BYTES)
        if ctypes.sizeof(ctypes.c_long) != 8 or libc.adjtimex(timex) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return not int.from_bytes(timex.raw[TIMEX_STATUS:TIMEX_STATUS + 4], "little") & STA_UNSYNC


def _zones() -> str | None:
    for directory in zoneinfo.TZPATH:
        if os.path.isfile(os.path.join(directory, SAMPLE_ZONE)):
            return directory
    try:
        zoneinfo.ZoneInfo(SAMPLE_ZONE)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        return None
    return "the tzdata package"


def judge(facts: ClockFacts) -> list[Line]:
    return [_judge_wall(facts), _judge_monotonic(facts), _judge_hearing(facts), _judge_zones(facts.zones)]


def _line(name: str, level: Level, found: str, change: str | None = None) -> Line:
    return Line(Area.CLOCKS, name, level, found, change)


def _judge_wall(facts: ClockFacts) -> Line:
    if facts.year < OLDEST_YEAR:
        return _line("wall clock", Level.MISSING, f"it says {facts.year}: jobs would run at wrong times",
                     "set the clock, and keep it set (chrony, systemd-timesyncd)")
    if facts.synchronised is False:
        return _line("wall clock", Level.WEAKER, "not synchronised, as far as the kernel knows: jobs run on time by a "
                     "clock that drifts", "run chrony or systemd-timesyncd (in a container: on its host)")
    known = "synchronised" if facts.synchronised else "the kernel does not tell whether it is synchronised"
    return _line("wall clock", Level.OK, known)


def _judge_monotonic(facts: ClockFacts) -> Line:
    if facts.backwards:
        return _line("monotonic clock", Level.MISSING, "it went back: deadlines cannot be kept", "another clocksource")
    slept = "" if facts.slept < 1 else f"; the machine has slept {facts.slept:.0f} s since its boot"
    return _line("monotonic clock", Level.OK, f"deadlines do not move when the wall clock is set{slept}")


def _judge_hearing(facts: ClockFacts) -> Line:
    if facts.hears_sets:
        return _line("clock changes", Level.OK, "a clock that is set is heard of at once")
    return _line("clock changes", Level.WEAKER, "a clock that is set is noticed within a minute",
                 "a kernel with timerfd, and no filter for it")


def _judge_zones(zones: str | None) -> Line:
    if zones is None:
        return _line("time zones", Level.MISSING, "no time zone data: only UTC can be used",
                     "install tzdata (the system's package, or the one for Python)")
    return _line("time zones", Level.OK, f"from {zones}")

"""Which jobs are due: a pass takes the time and answers with what to start and what was missed.

The rules of a pass that comes late, of a clock that is set, and of a change of the job set are all here; the
scheduler loop only sleeps and calls `pop_due`.

One rule covers every step of the clock: **a stretch of wall clock time is lived through once**. The agenda
remembers the stretches in which it made its passes. When the clock is set back into one of them, nothing in
it fires again; when it is set back to before all of them (a machine that booted with a date in the future),
jobs fire there as usual. That is noticed at the next pass, so the loop must make one every minute or so.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice

import msgspec

from sexton.schedule.occurrences import Occurrences, to_instant, to_seconds
from sexton.schedule.zones import DAY

LATE_AFTER = 10
"""Seconds. Up to here a late pass makes up for all it missed; from here on it resumes at the current slot."""

_MINUTE = 60
_STRETCHES = 64
# Counting what a long sleep skipped must not become a second delay.
_COUNT_EACH = 1000
_COUNT_ALL = 20000


class Due(msgspec.Struct, frozen=True):
    """An occurrence to start now."""

    job: str
    scheduled_for: datetime


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """Occurrences of one job that a pass came too late for."""

    job: str
    count: int
    exact: bool
    """False when there were more than it was worth counting: then `count` is the least it can be."""
    first: datetime
    last: datetime
    late_by: float
    """Seconds from the first of them to the pass."""


class Pass(msgspec.Struct, frozen=True):
    """What one look at the clock decided."""

    due: tuple[Due, ...] = ()
    """In the order of their instants; the occurrences of one job always are."""
    skipped: tuple[Skipped, ...] = ()


class _Entry:
    """A job's place on the agenda. `version` tells its current heap item from outdated ones."""

    __slots__ = ("next", "occurrences", "version")

    def __init__(self, occurrences: Occurrences) -> None:
        self.occurrences = occurrences
        self.next: int | None = None
        self.version = 0


class _Stretch:
    """Wall clock seconds, both ends included, that were lived through."""

    __slots__ = ("high", "low")

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high


class Agenda:
    """The jobs with a schedule and their next instants. All instants are aware datetimes."""

    def __init__(self, now: datetime) -> None:
        second = to_seconds(now)
        self._entries: dict[str, _Entry] = {}
        self._heap: list[tuple[int, str, int]] = []
        self._removed: dict[str, _Entry] = {}
        self._lived = [_Stretch(second, second)]
        """In the order of time; the one the clock is in is `_current`."""
        self._current = self._lived[0]
        self._last = second
        self._version = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job: object) -> bool:
        return job in self._entries

    def add(self, job: str, occurrences: Occurrences, now: datetime) -> datetime | None:
        """Put a job on the agenda, or give it another schedule. Answers its next instant, None for never.

        The next instant is strictly after `now`. A job that is there already with an equal schedule keeps
        what it has, also when that is overdue and waits for a late pass; so does one that was removed since
        the last pass.
        """
        entry = self._entries.get(job) or self._removed.pop(job, None)
        if entry is None or entry.occurrences != occurrences:
            entry = _Entry(occurrences)
            entry.next = self._unlived_after(occurrences, to_seconds(now))
        if self._entries.get(job) is not entry:
            self._entries[job] = entry
            self._push(job, entry)
        return None if entry.next is None else to_instant(entry.next)

    def remove(self, job: str) -> None:
        """Take a job off the agenda. A job that is not on it is left alone."""
        entry = self._entries.pop(job, None)
        if entry is not None:
            self._removed[job] = entry
            self._compact()

    def replace(self, jobs: Mapping[str, Occurrences], now: datetime) -> None:
        """Make these the jobs of the agenda, as after a reload; `add` says what each of them keeps."""
        for job in [job for job in self._entries if job not in jobs]:
            self.remove(job)
        for job, occurrences in jobs.items():
            self.add(job, occurrences, now)

    def next_of(self, job: str) -> datetime | None:
        """The next instant of a job; None when it has none or is not on the agenda."""
        entry = self._entries.get(job)
        return None if entry is None or entry.next is None else to_instant(entry.next)

    def next_instant(self) -> datetime | None:
        """When the next pass has something to do; None when nothing will ever be due."""
        while self._heap and not self._valid(self._heap[0]):
            heapq.heappop(self._heap)
        return to_instant(self._heap[0][0]) if self._heap else None

    def due_within(self, now: datetime, seconds: float) -> int:
        """How many jobs are due at or before `now + seconds`, to have as many processes ready."""
        return sum(1 for _ in self._until(to_seconds(now + timedelta(seconds=seconds))))

    def foresee(self, until: datetime) -> None:
        """Work out now what the pass at `until` will have to: the next instants of the jobs that are due then. Changes
        nothing; it only makes that pass short."""
        for job in self._until(to_seconds(until)):
            entry = self._entries[job]
            if entry.next is not None:
                entry.occurrences.next_second(entry.next)

    def due_at(self, instant: datetime) -> list[Due]:
        """The occurrences of exactly that instant, as far as they are known now."""
        second = to_seconds(instant)
        return [Due(job, instant) for job in sorted(self._until(second)) if self._entries[job].next == second]

    def _until(self, limit: int) -> Iterator[str]:
        """The jobs that are due at or before a second: only the top of the heap is looked at."""
        places = [0]
        while places:
            place = places.pop()
            if place < len(self._heap) and self._heap[place][0] <= limit:
                if self._valid(self._heap[place]):
                    yield self._heap[place][1]
                places += (2 * place + 1, 2 * place + 2)

    def pop_due(self, now: datetime) -> Pass:
        """Decide what is due at `now`, and move every job that was to its next instant.

        A job whose oldest due occurrence is less than 10 s old gets all of its due occurrences. For a later
        one the pass resumes at the current slot: the second of `now` for a schedule with several seconds in
        a minute, the minute of `now` for any other. An occurrence in that slot is due, all before it are
        reported as skipped.
        """
        second = to_seconds(now)
        if second < self._last:
            self._clock_set_back(second)
        due: list[tuple[int, str]] = []
        skipped: list[Skipped] = []
        budget = _COUNT_ALL
        ready = self._take_ready(second)
        for job, entry in ready:
            fire = entry.next
            assert fire is not None, "a job without a next instant is not in the heap"
            start = _resume_at(entry.occurrences, fire, second)
            if fire < start:
                missed = _missed(job, entry.occurrences, fire, start, second, budget)
                budget -= missed.count
                skipped.append(missed)
                fire = self._unlived_after(entry.occurrences, start - 1)
            while fire is not None and fire <= second:
                due.append((fire, job))
                fire = self._unlived_after(entry.occurrences, fire)
            entry.next = fire
            self._push(job, entry)
        # An idle day is not claimed either: a job that is added after the clock was put right must fire.
        self._live_through(second, resumed=bool(skipped) or second - self._last > DAY)
        self._removed.clear()
        due.sort()
        return Pass(tuple(Due(job, to_instant(fire)) for fire, job in due), tuple(skipped))

    def _take_ready(self, second: int) -> list[tuple[str, _Entry]]:
        ready = []
        while self._heap and self._heap[0][0] <= second:
            item = heapq.heappop(self._heap)
            if self._valid(item):
                ready.append((item[1], self._entries[item[1]]))
        return ready

    def _clock_set_back(self, second: int) -> None:
        """Bring the next instants back when the clock now shows a time that was not lived through."""
        self._last = second
        if second >= self._current.low:
            return
        for stretch in self._lived:
            if stretch.low <= second <= stretch.high:
                self._current = stretch
                break
        else:
            self._current = _Stretch(second, second - 1)  # empty until this pass is over
            self._lived.append(self._current)
            self._tidy()
        for job, entry in self._entries.items():
            # One second earlier, so that an occurrence of this very second is not lost.
            found = self._unlived_after(entry.occurrences, second - 1)
            if found != entry.next:
                entry.next = found
                self._push(job, entry)

    def _live_through(self, second: int, *, resumed: bool) -> None:
        """Note that everything up to `second` is decided; after a resume, only from the current slot on."""
        self._last = second
        low = min(second - second % _MINUTE, second - LATE_AFTER + 1)
        if resumed and low > self._current.high:
            self._current = _Stretch(low, second)
            self._lived.append(self._current)
        else:
            self._current.high = max(self._current.high, second)
        if len(self._lived) > 1:
            self._tidy()

    def _tidy(self) -> None:
        """Order the stretches, join those that meet, forget the oldest."""
        self._lived.sort(key=lambda stretch: stretch.low)
        joined = [self._lived[0]]
        for stretch in self._lived[1:]:
            before = joined[-1]
            if stretch.low <= before.high + 1:
                before.high = max(before.high, stretch.high)
                if stretch is self._current:
                    self._current = before
            else:
                joined.append(stretch)
        while len(joined) > _STRETCHES:
            del joined[1 if joined[0] is self._current else 0]
        self._lived = joined

    def _unlived_after(self, occurrences: Occurrences, after: int) -> int | None:
        """The first occurrence after `after` in a time that was not lived through."""
        found = occurrences.next_second(after)
        if found is None or found > self._lived[-1].high:
            return found
        for stretch in self._lived:
            if found is not None and stretch.low <= found <= stretch.high:
                found = occurrences.next_second(stretch.high)
        return found

    def _push(self, job: str, entry: _Entry) -> None:
        self._version += 1
        entry.version = self._version
        if entry.next is not None:
            heapq.heappush(self._heap, (entry.next, job, entry.version))
            self._compact()

    def _valid(self, item: tuple[int, str, int]) -> bool:
        entry = self._entries.get(item[1])
        return entry is not None and entry.version == item[2]

    def _compact(self) -> None:
        """Outdated items are left in the heap; drop them when they outnumber the jobs."""
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = [item for item in self._heap if self._valid(item)]
            heapq.heapify(self._heap)


def _resume_at(occurrences: Occurrences, first: int, now: int) -> int:
    """From which second on the due occurrences of a job are made up for, its oldest being `first`."""
    if now - first < LATE_AFTER:
        return first
    slot = now if occurrences.expression.sub_minute else now - now % _MINUTE
    return max(slot, first)


def _missed(job: str, occurrences: Occurrences, first: int, start: int, now: int, budget: int) -> Skipped:
    """The occurrences from `first` to before `start`, counted as far as it is cheap."""
    most = max(1, min(_COUNT_EACH, budget))
    count = 1 + sum(1 for _ in islice(occurrences.seconds_between(first, start - 1), most))
    last = occurrences.previous_second(start)
    return Skipped(
        job=job,
        count=min(count, most),
        exact=count <= most,
        first=to_instant(first),
        last=to_instant(first if last is None else max(first, last)),
        late_by=float(now - first),
    )

"""The queue between runs and those who are told of them, and the threads that work it off.

Bounded in everything: parcels, bytes that they hold, threads, the time of each delivery, its attempts. A destination
that fails gets one thread at a time until it works again, so that one that hangs cannot take them all. The parcels of
one job to one destination arrive in their order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from enum import Enum
from itertools import islice

import msgspec

from sexton.outcome.reporters.attempt import Attempt, NotDelivered
from sexton.outcome.reporters.templates import TemplateTrouble

logger = logging.getLogger("sexton.report")

LIMIT = 2000
"""Parcels that may wait."""
WEIGHT_LIMIT = 64 * 1024 * 1024
"""Bytes of output that waiting parcels may hold; beyond it they carry the end of the output only."""
PER_CHANNEL = 8
"""Deliveries, and so threads, of one channel: mails that hang do not keep webhooks waiting."""
AT_A_TIME = 4
"""Deliveries to one destination; 1 while it fails."""
FAILING_SHOWN = 20
ATTEMPTS = 3
PAUSES = (1.0, 4.0)
"""Seconds before the second and the third attempt."""
LOOK_AHEAD = 100
"""Parcels of a destination that are looked at for one whose job has none under way."""
IDLE_SECONDS = 10.0
"""A thread that has had nothing to do for so long ends."""


class Channel(Enum):
    MAIL = "mail"
    WEBHOOK = "webhook"
    SHELL = "shell"
    SENTRY = "sentry"


class Parcel(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One report for one destination."""

    channel: Channel
    destination: str
    """A name that may be shown."""
    job: str
    run_id: str
    event: str
    seconds: float
    """For one attempt; with `whole`, for all of them together."""
    whole: bool = False
    attempts: int = ATTEMPTS
    weight: int = 0
    send: Callable[[Attempt], None]
    redact: Callable[[str], str] = lambda text: text


class Counts(msgspec.Struct, kw_only=True):
    """Of one channel, since the start."""

    delivered: int = 0
    failed: int = 0
    """Given up."""
    dropped: int = 0
    """Never tried: the queue was full, or the daemon ended."""
    retried: int = 0
    """Attempts beyond the first."""


class LastFailure(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    destination: str
    job: str
    message: str


class OutboxHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the telling goes."""

    waiting: int = 0
    in_flight: int = 0
    channels: dict[str, Counts] = {}
    failing: tuple[str, ...] = ()
    """Destinations whose latest delivery failed; the first few."""
    failing_count: int = 0
    """How many of them there are."""
    last_failure: LastFailure | None = None


class _Lane:
    """What waits for one destination."""

    __slots__ = ("busy", "failures", "parcels")

    def __init__(self) -> None:
        self.parcels: deque[Parcel] = deque()
        self.busy: list[str] = []
        """Jobs whose parcels are under way."""
        self.failures = 0

    @property
    def open(self) -> bool:
        return len(self.busy) < (1 if self.failures else AT_A_TIME)

    def take(self) -> Parcel | None:
        """The first parcel that may go now."""
        if not self.open:
            return None
        for place, parcel in enumerate(islice(self.parcels, LOOK_AHEAD)):
            if parcel.job not in self.busy:
                del self.parcels[place]
                self.busy.append(parcel.job)
                return parcel
        return None


class Outbox:
    def __init__(self) -> None:
        self._lanes: dict[Channel, OrderedDict[str, _Lane]] = {channel: OrderedDict() for channel in Channel}
        lock = threading.Lock()
        self._ready = threading.Condition(lock)
        """Told to threads that wait for a parcel."""
        self._changed = threading.Condition(lock)
        """Told to whoever watches; the same lock."""
        self._waiting = 0
        self._weight = 0
        self._threads = 0
        self._idle = 0
        self._busy = dict.fromkeys(Channel, 0)
        self._closing = False
        self._overflowing = False
        self._attempts: set[Attempt] = set()
        self._watching = False
        self._counts = {channel: Counts() for channel in Channel}
        self._last_failure: LastFailure | None = None

    # ---------------------------------------------------------------- from the event loop

    def has_room_for(self, weight: int) -> bool:
        """Whether a parcel may hold so many bytes until it is delivered."""
        return self._weight + weight <= WEIGHT_LIMIT

    def offer(self, parcel: Parcel) -> bool:
        """Take a parcel, or drop it (counted and logged) when the queue is full. Returns at once."""
        with self._changed:
            if self._closing or self._waiting >= LIMIT:
                self._counts[parcel.channel].dropped += 1
                told, self._overflowing = self._overflowing, True
            else:
                self._overflowing = False
                lane = self._lanes[parcel.channel].setdefault(parcel.destination, _Lane())
                lane.parcels.append(parcel)
                self._waiting += 1
                self._weight += parcel.weight
                if self._busy[parcel.channel] < PER_CHANNEL and lane.open:
                    self._wake()
                return True
        if not told:
            logger.error("Job %s: the %s report of run %s to %s is dropped: %d reports are waiting", parcel.job,
                         parcel.event, parcel.run_id, parcel.destination, self._waiting)
        return False

    def health(self) -> OutboxHealth:
        with self._changed:
            failing = sorted(name for name, lane in self._all_lanes() if lane.failures)
            return OutboxHealth(
                waiting=self._waiting, in_flight=self._under_way,
                channels={channel.value: msgspec.structs.replace(counts) for channel, counts in self._counts.items()},
                failing=tuple(failing[:FAILING_SHOWN]), failing_count=len(failing),
                last_failure=self._last_failure,
            )

    def close(self, seconds: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """Deliver what is queued, within the bound (blocking: not for the event loop); then break off what is under
        way and drop the rest, counted and logged. `hurry` is asked now and then whether to wait no longer."""
        end = time.monotonic() + seconds
        with self._changed:
            while (self._waiting or self._under_way) and time.monotonic() < end and not hurry():
                if self._waiting:
                    self._wake()
                self._changed.wait(min(0.1, max(0.0, end - time.monotonic())))
            self._closing = True
            dropped = 0
            for _, lane in self._all_lanes():
                for parcel in lane.parcels:
                    self._counts[parcel.channel].dropped += 1
                    dropped += 1
                lane.parcels.clear()
            self._waiting = self._weight = 0
            under_way = list(self._attempts)
            self._changed.notify_all()
            self._ready.notify_all()
        for attempt in under_way:
            attempt.abort()
        if dropped or under_way:
            logger.error("the daemon ends: %d report(s) are dropped and %d deliveries are broken off", dropped,
                         len(under_way))

    # ---------------------------------------------------------------- threads

    @property
    def _under_way(self) -> int:
        return sum(self._busy.values())

    def _all_lanes(self) -> Iterator[tuple[str, _Lane]]:
        for lanes in self._lanes.values():
            yield from lanes.items()

    def _wake(self) -> None:
        """Under the lock: there may be something to take."""
        if self._idle:
            self._ready.notify()
        elif self._threads < PER_CHANNEL * len(Channel):
            self._threads += 1
            try:
                threading.Thread(target=self._work, name="report", daemon=True).start()
            except RuntimeError:
                self._threads -= 1  # no thread is to be had now: the next parcel, or the end, tries again

    def _work(self) -> None:
        while (parcel := self._next()) is not None:
            failed = True
            try:
                failed = not self._deliver(parcel)
            except Exception:
                logger.exception("Job %s: internal error in a report to %s", parcel.job, parcel.destination)
                self._counts[parcel.channel].failed += 1
            finally:
                self._done(parcel, failed)

    def _next(self) -> Parcel | None:
        """The next parcel, destinations taking turns; None when there has been none for a while."""
        end = time.monotonic() + IDLE_SECONDS
        with self._changed:
            while not self._closing:
                if (parcel := self._take()) is not None:
                    return parcel
                left = end - time.monotonic()
                if left <= 0:
                    break
                self._idle += 1
                self._ready.wait(left)
                self._idle -= 1
            self._threads -= 1
            return None

    def _take(self) -> Parcel | None:
        """Under the lock: the next parcel that may go."""
        for channel, lanes in self._lanes.items():
            if self._busy[channel] >= PER_CHANNEL:
                continue
            for name, lane in lanes.items():
                if (parcel := lane.take()) is not None:
                    self._busy[channel] += 1
                    lanes.move_to_end(name)
                    self._lanes[channel] = self._lanes.pop(channel)  # the channels take turns
                    self._waiting -= 1
                    if self._waiting:
                        self._wake()  # the next one may go, too: then by another thread
                    return parcel
        return None

    def _done(self, parcel: Parcel, failed: bool) -> None:
        with self._changed:
            lanes = self._lanes[parcel.channel]
            lane = lanes[parcel.destination]
            lane.busy.remove(parcel.job)
            self._busy[parcel.channel] -= 1
            lane.failures = lane.failures + 1 if failed else 0
            self._weight = max(0, self._weight - parcel.weight)
            if not lane.parcels and not lane.busy and not lane.failures:
                del lanes[parcel.destination]
            if len(lanes) > LIMIT:  # those that failed last are remembered, but not without bound
                for name in [name for name, lane in lanes.items() if not lane.parcels and not lane.busy]:
                    del lanes[name]
            self._changed.notify_all()

    # ---------------------------------------------------------------- one delivery

    def _deliver(self, parcel: Parcel) -> bool:
        """Try, and try again where that makes sense. Whether it was delivered."""
        end = time.monotonic() + parcel.seconds
        for number in range(1, parcel.attempts + 1):
            left = end - time.monotonic() if parcel.whole else parcel.seconds
            try:
                self._try(parcel, Attempt(left))
            except (NotDelivered, TemplateTrouble) as failure:
                again = isinstance(failure, NotDelivered) and failure.again and number < parcel.attempts
                if again and parcel.whole:
                    again = time.monotonic() + PAUSES[number - 1] < end
                if again and self._pause(PAUSES[number - 1]):
                    self._counts[parcel.channel].retried += 1
                    continue
                self._give_up(parcel, str(failure), number)
                return False
            self._counts[parcel.channel].delivered += 1
            logger.info("Job %s: %s of run %s is reported to %s", parcel.job, parcel.event, parcel.run_id,
                        parcel.destination)
            return True
        return False

    def _try(self, parcel: Parcel, attempt: Attempt) -> None:
        with self._changed:
            self._attempts.add(attempt)
            if self._closing:
                attempt.abort()
            self._watch()
        try:
            parcel.send(attempt)
        finally:
            with self._changed:
                self._attempts.discard(attempt)
                self._changed.notify_all()

    def _pause(self, seconds: float) -> bool:
        """Wait before another attempt; False when the daemon ends meanwhile."""
        end = time.monotonic() + seconds
        with self._changed:
            while not self._closing and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            return not self._closing

    def _give_up(self, parcel: Parcel, why: str, attempts: int) -> None:
        message = parcel.redact(why)
        self._counts[parcel.channel].failed += 1
        self._last_failure = LastFailure(
            at=datetime.now(UTC), destination=parcel.destination, job=parcel.job, message=message)
        logger.error("Job %s: %s of run %s could not be reported to %s: %s%s", parcel.job, parcel.event, parcel.run_id,
                     parcel.destination, message, f" ({attempts} attempts)" if attempts > 1 else "")

    # ---------------------------------------------------------------- the watch over time

    def _watch(self) -> None:
        """Under the lock: one thread breaks off what takes too long, also what never lets a timeout come about (a byte
        now and then)."""
        if not self._watching:
            self._watching = True
            threading.Thread(target=self._break_off, name="report watch", daemon=True).start()

    def _break_off(self) -> None:
        while True:
            with self._changed:
                if not self._attempts:
                    self._watching = False
                    return
                now = time.monotonic()
                late = [attempt for attempt in self._attempts if attempt.deadline <= now and not attempt.aborted]
                if not late:
                    pending = [attempt.deadline for attempt in self._attempts if not attempt.aborted]
                    self._changed.wait(min(pending, default=now + 1.0) - now)
            for attempt in late:
                attempt.abort()

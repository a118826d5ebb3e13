"""The queue of reports: bounded, fair, in order, and over in time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from sexton.outcome.reporters import outbox as module
from sexton.outcome.reporters.attempt import Attempt, NotDelivered, OutOfTime
from sexton.outcome.reporters.outbox import AT_A_TIME, PER_CHANNEL, Channel, Outbox, Parcel


def parcel(send: Callable[[Attempt], None], *, job: str = "j", to: str = "there", channel: Channel = Channel.WEBHOOK,
           seconds: float = 5.0, weight: int = 0) -> Parcel:
    return Parcel(channel=channel, destination=to, job=job, run_id="r", event="failure", seconds=seconds, send=send,
                  weight=weight)


def wait(look: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end
        time.sleep(0.005)


class Hanging:
    """Deliveries that last until they are broken off."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.lock = threading.Lock()

    def send(self, key: str) -> Callable[[Attempt], None]:
        def deliver(attempt: Attempt) -> None:
            ended = threading.Event()
            attempt.on_abort(ended.set)
            with self.lock:
                self.running[key] += 1
                self.most[key] = max(self.most[key], self.running[key])
            ended.wait(30)
            with self.lock:
                self.running[key] -= 1
            raise OutOfTime(attempt.seconds)
        return deliver


def test_nothing_grows_while_everything_hangs() -> None:
    """1,000 failing jobs with a report on each channel, all of which hang: threads, waiting parcels and the bytes that
    they hold stay within their bounds, offering takes no time, what does not fit is counted, and the end is in time."""
    outbox, hanging, threads = Outbox(), Hanging(), threading.active_count()
    slowest = 0.0
    for number in range(1000):
        for channel in Channel:
            weight = 100_000 if outbox.has_room_for(100_000) else 1000
            began = time.perf_counter()
            outbox.offer(parcel(hanging.send(channel.value), job=f"j{number}", to=f"{channel.value} {number % 100}",
                                channel=channel, weight=weight, seconds=60.0))
            slowest = max(slowest, time.perf_counter() - began)
    wait(lambda: sum(hanging.running.values()) == PER_CHANNEL * len(Channel))
    health = outbox.health()
    assert health.waiting <= module.LIMIT
    assert outbox._weight <= module.WEIGHT_LIMIT + 4000 * 1000
    assert health.waiting + health.in_flight + sum(counts.dropped for counts in health.channels.values()) == 4000
    assert threading.active_count() - threads <= PER_CHANNEL * len(Channel) + 1
    assert slowest < 0.25, "a lock that is held long"
    began = time.monotonic()
    outbox.close(0.3)
    assert time.monotonic() - began < 2.0
    wait(lambda: not sum(hanging.running.values()))
    assert outbox.health().waiting == 0


def test_a_channel_that_hangs_leaves_the_others_alone() -> None:
    """Webhooks go on while mails hang."""
    outbox, hanging, done = Outbox(), Hanging(), threading.Event()
    for number in range(50):
        outbox.offer(parcel(hanging.send("m"), job=f"j{number}", to=f"mail {number}", channel=Channel.MAIL))
    outbox.offer(parcel(lambda attempt: done.set()))
    assert done.wait(2)
    outbox.close(0.0)


def test_a_destination_has_a_few_at_a_time_and_one_while_it_fails() -> None:
    """One that hangs leaves threads to the others of its channel; after a failure it is tried one by one."""
    outbox, hanging = Outbox(), Hanging()
    for number in range(8):
        outbox.offer(parcel(hanging.send("bad"), job=f"j{number}", to="bad", seconds=0.4))
    wait(lambda: hanging.running["bad"] == AT_A_TIME)
    wait(lambda: outbox.health().failing == ("bad",))
    hanging.most.clear()
    wait(lambda: outbox.health().in_flight + outbox.health().waiting == 0)
    assert hanging.most["bad"] == 1
    assert outbox.health().channels["webhook"].failed == 8
    outbox.close(0.0)


def test_reports_of_a_job_arrive_in_order() -> None:
    """To one destination; those of other jobs go beside them."""
    outbox, arrived = Outbox(), []
    for number in range(40):
        job = f"j{number % 4}"

        def send(attempt: Attempt, job: str = job, number: int = number) -> None:
            time.sleep(0.002 * (number % 3))
            arrived.append((job, number))

        outbox.offer(parcel(send, job=job))
    wait(lambda: len(arrived) == 40)
    for job in ("j0", "j1", "j2", "j3"):
        own = [number for name, number in arrived if name == job]
        assert own == sorted(own)
    outbox.close(0.0)


def test_what_was_not_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times at most, and only where it may be taken later; a bug in a reporter ends nothing."""
    monkeypatch.setattr(module, "PAUSES", (0.01, 0.01))
    outbox, tried = Outbox(), Counter[str]()

    def failing(kind: str, failure: Exception | None, after: int = 99) -> Callable[[Attempt], None]:
        def send(attempt: Attempt) -> None:
            tried[kind] += 1
            if failure is not None and tried[kind] <= after:
                raise failure
        return send

    for kind, failure, after in (
        ("again", NotDelivered("no", again=True), 99), ("never", NotDelivered("no"), 99),
        ("late", OutOfTime(1.0), 99), ("then", NotDelivered("no", again=True), 2), ("bug", ZeroDivisionError(), 99),
    ):
        outbox.offer(parcel(failing(kind, failure, after), to=kind))
    wait(lambda: outbox.health().channels["webhook"].failed == 4 and outbox.health().in_flight == 0)
    assert tried == {"again": 3, "never": 1, "late": 1, "then": 3, "bug": 1}
    counts = outbox.health().channels["webhook"]
    assert (counts.delivered, counts.retried) == (1, 4)
    outbox.close(0.0)


def test_the_watch_breaks_off_what_takes_too_long() -> None:
    """Also where the reporter itself never looks at the time."""
    outbox, hanging = Outbox(), Hanging()
    began = time.monotonic()
    outbox.offer(parcel(hanging.send("x"), seconds=0.2))
    wait(lambda: outbox.health().channels["webhook"].failed == 1)
    assert 0.15 < time.monotonic() - began < 2.0
    outbox.close(0.0)


def test_what_is_queued_at_the_end_is_delivered() -> None:
    """Within the bound; what comes after the end is dropped, and counted."""
    outbox, arrived = Outbox(), []
    for number in range(100):
        outbox.offer(parcel(lambda attempt, number=number: arrived.append(number), job=f"j{number}"))
    outbox.close(5.0)
    assert len(arrived) == 100
    assert not outbox.offer(parcel(lambda attempt: None))
    assert outbox.health().channels["webhook"].dropped == 1


def test_idle_threads_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that reports once a day keeps no threads for it."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    outbox = Outbox()
    for number in range(20):
        outbox.offer(parcel(lambda attempt: None, job=f"j{number}"))
    wait(lambda: outbox.health().channels["webhook"].delivered == 20)
    wait(lambda: outbox._threads == 0 and not outbox._watching)
    done = threading.Event()
    outbox.offer(parcel(lambda attempt: done.set()))
    assert done.wait(2)
    outbox.close(0.0)

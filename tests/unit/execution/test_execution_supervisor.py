"""Whom the supervisor signals: the group, the check for a pid that was given away, refusals. The kernel is faked."""

from __future__ import annotations

import errno
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from sexton.execution.birth import kernel, wire
from sexton.execution.birth.supervisor import Supervisor
from sexton.execution.birth.walk import DEEP_EVERY

MAIN, OTHER, STRANGER = 500, 501, 502
TERM, KILL = signal.SIGTERM, signal.SIGKILL


@dataclass
class Kernel:
    """Processes by pid: their group; what the kernel answers to a signal for them."""

    me: int
    groups: dict[int, int] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=dict)
    refuses: set[int] = field(default_factory=set)
    refuses_group: bool = False
    sent: list[tuple[str, int, int]] = field(default_factory=list)

    def kill(self, pid: int, number: int) -> None:
        if number:
            self.sent.append(("one", pid, number))
        if pid not in self.groups:
            raise ProcessLookupError(errno.ESRCH, "gone")
        if pid in self.refuses:
            raise PermissionError(errno.EPERM, "refused")

    def killpg(self, group: int, number: int) -> None:
        self.sent.append(("group", group, number))
        if self.refuses_group:
            raise PermissionError(errno.EPERM, "refused")
        if group not in self.groups.values():
            raise ProcessLookupError(errno.ESRCH, "gone")

    def getpgid(self, pid: int) -> int:
        if pid not in self.groups:
            raise ProcessLookupError(errno.ESRCH, "gone")
        return self.groups[pid]

    def children_of(self, pid: int) -> list[int]:
        return self.children.get(pid, [])

    def kill_if_child_of(self, pid: int, parent: int) -> int:
        self.sent.append(("below", pid, KILL))
        return errno.EPERM if pid in self.refuses else 0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    fake = Kernel(os.getpid())
    monkeypatch.setattr(os, "kill", fake.kill)
    monkeypatch.setattr(os, "killpg", fake.killpg)
    monkeypatch.setattr(os, "getpgid", fake.getpgid)
    monkeypatch.setattr(kernel, "children_of", fake.children_of)
    monkeypatch.setattr(kernel, "kill_if_child_of", fake.kill_if_child_of)
    return fake


@dataclass
class Bench:
    supervisor: Supervisor
    report: int

    def told(self) -> list[tuple[int, int, int]]:
        """(kind, value, aux) of each report so far."""
        try:
            data = os.read(self.report, 65536)
        except BlockingIOError:
            return []
        return [(r[2], r[4], r[9]) for r in wire.REPORT.iter_unpack(data)]


@pytest.fixture
def bench() -> Iterator[Bench]:
    """A supervisor that holds a run whose own process is MAIN; nothing was ever started."""
    ours, theirs = socket.socketpair()
    read, write = os.pipe2(os.O_NONBLOCK)
    held = Supervisor(1, theirs, write, None)
    held.run, held.main, held.main_alive = 1, MAIN, True
    yield Bench(held, read)
    ours.close()
    theirs.close()
    os.close(read)
    os.close(write)


def test_while_the_own_process_is_not_collected_its_group_is_signalled(machine: Kernel, bench: Bench) -> None:
    """The pid cannot be given away before we collect it: no check, one SIGTERM to the group."""
    machine.groups = {MAIN: MAIN, OTHER: MAIN}
    bench.supervisor.terminate()
    assert machine.sent == [("group", MAIN, TERM)] and bench.told() == [(wire.SIGNALLED, 0, 0)]


def test_a_collected_pid_that_nobody_has_is_still_our_group(machine: Kernel, bench: Bench) -> None:
    """Own process gone, descendants in its group: both signals reach them."""
    machine.groups = {OTHER: MAIN}
    bench.supervisor.main_alive = False
    bench.supervisor.terminate()
    bench.supervisor.kill_round()
    assert machine.sent == [("group", MAIN, TERM), ("group", MAIN, KILL)]


@pytest.mark.parametrize("of_another_user", [False, True])
def test_a_pid_that_was_given_away_is_not_signalled(machine: Kernel, bench: Bench, of_another_user: bool) -> None:
    """A process exists under the collected pid (one that we may not signal counts): the group was empty, and neither
    step is sent to it."""
    machine.groups = {MAIN: MAIN}
    machine.refuses = {MAIN} if of_another_user else set()
    bench.supervisor.main_alive = False
    bench.supervisor.terminate()
    bench.supervisor.kill_round()
    assert machine.sent == [] and not bench.supervisor.group_is_ours()


def test_the_check_is_made_before_each_signal(machine: Kernel, bench: Bench) -> None:
    """The pid is given away between the two steps: the first is sent, the second is not."""
    machine.groups = {OTHER: MAIN}
    bench.supervisor.main_alive = False
    bench.supervisor.terminate()
    machine.groups = {MAIN: MAIN}
    bench.supervisor.kill_round()
    assert machine.sent == [("group", MAIN, TERM)]


def test_a_refused_group_falls_back_to_the_process(machine: Kernel, bench: Bench) -> None:
    """EPERM for the group: the own process alone is tried, and both answers are reported."""
    machine.groups, machine.refuses, machine.refuses_group = {MAIN: MAIN}, {MAIN}, True
    bench.supervisor.terminate()
    assert machine.sent == [("group", MAIN, TERM), ("one", MAIN, TERM)]
    assert bench.told() == [(wire.SIGNALLED, errno.EPERM, errno.EPERM)]


def test_an_empty_group_is_reported_and_not_tried_again(machine: Kernel, bench: Bench) -> None:
    """ESRCH for the group is the end of it."""
    bench.supervisor.main_alive = False
    bench.supervisor.terminate()
    assert machine.sent == [("group", MAIN, TERM)] and bench.told() == [(wire.SIGNALLED, errno.ESRCH, 0)]


def test_those_that_left_the_group_are_asked_too(machine: Kernel, bench: Bench) -> None:
    """A descendant in a session of its own gets the graceful signal as well."""
    machine.groups = {MAIN: MAIN, OTHER: OTHER}
    machine.children = {machine.me: [MAIN, OTHER]}
    bench.supervisor.terminate()
    assert machine.sent == [("group", MAIN, TERM), ("one", OTHER, TERM)]


def test_the_forced_step_reaches_group_and_tree(machine: Kernel, bench: Bench) -> None:
    """SIGKILL to the group once and to our own children; at every fourth round to every process below, at any depth.
    Whoever has had it gets it again only then."""
    machine.groups = {MAIN: MAIN, OTHER: OTHER, STRANGER: STRANGER}
    machine.children = {machine.me: [MAIN, OTHER], OTHER: [STRANGER]}
    ours = [("one", MAIN, KILL), ("one", OTHER, KILL)]
    for _ in range(DEEP_EVERY - 1):
        bench.supervisor.walk.due = 0.0
        bench.supervisor.kill_round()
        assert machine.sent == [("group", MAIN, KILL), *ours]
    bench.supervisor.walk.due = 0.0
    bench.supervisor.kill_round()
    assert machine.sent == [("group", MAIN, KILL), *ours, *ours, ("below", STRANGER, KILL)]


def test_what_hides_behind_a_refusal_is_looked_for_at_once(machine: Kernel, bench: Bench) -> None:
    """All our children refuse: whom they have is killed in the same round, and nothing is told."""
    machine.groups = {MAIN: MAIN, OTHER: OTHER}
    machine.refuses, machine.children = {MAIN}, {machine.me: [MAIN], MAIN: [OTHER]}
    bench.supervisor.kill_round()
    assert ("below", OTHER, KILL) in machine.sent and bench.told() == []


def test_rounds_have_a_pause(machine: Kernel, bench: Bench) -> None:
    """Exits that come one by one do not make a round each: that would be quadratic."""
    machine.groups, machine.children = {MAIN: MAIN}, {machine.me: [MAIN]}
    bench.supervisor.walk.due = time.monotonic() + 60.0
    bench.supervisor.kill_round()
    assert machine.sent == []


def test_a_refused_forced_step_is_told_once(machine: Kernel, bench: Bench) -> None:
    """All that is left refuses: one report with the errno, however many rounds follow."""
    machine.groups, machine.refuses, machine.refuses_group = {MAIN: MAIN}, {MAIN}, True
    machine.children = {machine.me: [MAIN]}
    for _ in range(3):
        bench.supervisor.walk.due = 0.0
        bench.supervisor.kill_round()
    assert bench.told() == [(wire.REFUSED, errno.EPERM, MAIN)] and bench.supervisor.group_error == errno.EPERM

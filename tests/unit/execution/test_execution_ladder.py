"""The ladder on a run that is only a script: order, bounds, log lines; no process and no waiting."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

import pytest

from sexton.execution.messages import KillRefused, Signalled
from sexton.execution.stop import CONFIRM_SECONDS, KILL_ANSWER_SECONDS, SIGNAL_ANSWER_SECONDS, bring_down
from sexton.model.clock import Monotonic
from sexton.model.run import Phase

NOT_GRACEFUL = "Job j did not gracefully terminate after {} seconds, killing it..."
PROCESS = "Job j: could not signal its process (pid 77): Operation not permitted"
GROUP = ("Job j: could not signal the process group of pid 77 (Operation not permitted); "
         "falling back to signalling that process alone")


class Scripted:
    """A Subject whose processes end at given seconds after a step; waiting moves its clock."""

    name = "j"
    pid = 77
    at_once = False
    supervisor_lost = False
    roused = 0

    def __init__(self, kill_timeout: float = 30.0, *, exits_after_term: float | None = None,
                 empties_after_kill: float | None = 0.0, gone: bool = False, force_at: float | None = None,
                 refuses: int = 0, answers: bool = True, sweeps: float | None = None) -> None:
        self.kill_timeout = kill_timeout
        self.grace_is_for_the_tree = False
        self.force = force_at == 0.0
        self.signalled: Signalled | None = None
        self.kill_refused: KillRefused | None = None
        self.process_gone = gone
        self.tree_gone = False
        self.clock = 0.0
        self.log: list[tuple[float, str]] = []
        self._exits, self._empties = exits_after_term, empties_after_kill
        self._refuses, self._answers, self._sweeps = refuses, answers, sweeps
        self._coming: list[tuple[float, Callable[[], None]]] = []
        if force_at:
            self._coming.append((force_at, self._forced))

    def _forced(self) -> None:
        self.force = True

    def _answer(self) -> None:
        self.signalled = Signalled(self.now(), self._refuses, self._refuses)

    def _exit(self) -> None:
        self.process_gone = True

    def _empty(self) -> None:
        self.process_gone = self.tree_gone = True

    def _refuse(self) -> None:
        self.kill_refused = KillRefused(self.now(), self._refuses, 77, self._refuses)

    def rouse(self) -> None:
        self.roused += 1

    def enter(self, phase: Phase) -> None:
        self.log.append((self.clock, phase.value))

    def terminate(self) -> None:
        self.log.append((self.clock, "TERM"))
        if self._answers:
            self._coming.append((self.clock + 0.001, self._answer))
        if self._exits is not None:
            self._coming.append((self.clock + self._exits, self._exit))

    def kill(self) -> None:
        self.log.append((self.clock, "KILL"))
        if self._refuses:
            self._coming.append((self.clock + 0.001, self._refuse))
        elif self._empties is not None:
            self._coming.append((self.clock + self._empties, self._empty))

    def end_supervisor(self) -> None:
        self.log.append((self.clock, "END"))
        if self._sweeps is not None:
            self._coming.append((self.clock + self._sweeps, self._empty))

    def now(self) -> Monotonic:
        return Monotonic(self.clock)

    async def until(self, condition: Callable[[], bool], limit: Monotonic | None) -> bool:
        while not condition():
            self._coming.sort(key=lambda item: item[0])
            if not self._coming or (limit is not None and self._coming[0][0] > limit):
                assert limit is not None, "no bound and nothing to come"
                self.clock = limit
                return False
            at, happens = self._coming.pop(0)
            self.clock = max(self.clock, at)
            happens()
        return True


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.DEBUG, logger="sexton")
    return lambda: [record.getMessage() for record in caplog.records]


def steps(run: Scripted) -> list[tuple[float, str]]:
    return [(at, what) for at, what in run.log if what in ("TERM", "KILL")]


async def test_the_wait_ends_with_the_own_process(said: Callable[[], list[str]]) -> None:
    """The forced step follows the own process's exit, whatever remains of killTimeout; nothing is logged."""
    run = Scripted(30.0, exits_after_term=0.2)
    await bring_down(run)
    assert steps(run) == [(0.0, "TERM"), (0.2, "KILL")] and said() == []


async def test_the_forced_step_comes_at_the_end_of_kill_timeout(said: Callable[[], list[str]]) -> None:
    """A process that ignores SIGTERM is killed killTimeout after that went out, with a line that names the bound."""
    run = Scripted(2.5)
    await bring_down(run)
    assert steps(run) == [(0.0, "TERM"), (2.501, "KILL")] and said() == [NOT_GRACEFUL.format("2.5")]


async def test_phases_are_entered_in_order() -> None:
    """Each phase is entered before its step is taken, so a view never shows a step that has not been taken as past."""
    run = Scripted(1.0)
    await bring_down(run)
    assert [what for _, what in run.log] == ["stopping", "TERM", "killing", "KILL", "confirming"]


async def test_an_own_process_that_has_gone_already_is_not_waited_for(said: Callable[[], list[str]]) -> None:
    """Only others are left: the forced step as soon as the graceful one is out, without the line."""
    run = Scripted(30.0, gone=True)
    await bring_down(run)
    assert steps(run) == [(0.0, "TERM"), (0.001, "KILL")] and said() == []


async def test_kill_timeout_zero(said: Callable[[], list[str]]) -> None:
    """0: the forced step follows the answer that the graceful one is out; the line is logged as the process lives."""
    run = Scripted(0.0)
    await bring_down(run)
    assert steps(run) == [(0.0, "TERM"), (0.001, "KILL")] and said() == [NOT_GRACEFUL.format("0")]


async def test_kill_timeout_zero_and_a_process_that_has_exited(said: Callable[[], list[str]]) -> None:
    """0 and no process to wait for: no line."""
    await bring_down(Scripted(0.0, gone=True))
    assert said() == []


async def test_a_supervisor_that_does_not_answer_cannot_hold_the_forced_step() -> None:
    """killTimeout 0 and no answer to the graceful step: bounded all the same."""
    run = Scripted(0.0, answers=False)
    await bring_down(run)
    assert steps(run) == [(0.0, "TERM"), (SIGNAL_ANSWER_SECONDS, "KILL")]


@pytest.mark.parametrize("exits", [0.2, None])
async def test_the_forced_step_is_taken_always(exits: float | None) -> None:
    """Whether or not the own process went in time, what is left of the run gets SIGKILL."""
    run = Scripted(1.0, exits_after_term=exits)
    await bring_down(run)
    assert [what for _, what in steps(run)].count("KILL") == 1 and run.tree_gone


async def test_nothing_is_signalled_when_nothing_is_left() -> None:
    """The tree was proven gone before the forced step: there is nobody to signal."""
    run = Scripted(30.0, gone=True)
    run.tree_gone = True
    await bring_down(run)
    assert steps(run) == [(0.0, "TERM")]


async def test_force_from_the_start_gives_no_grace(said: Callable[[], list[str]]) -> None:
    """Force: graceful and forced step at once; the line does not claim a wait."""
    run = Scripted(30.0, force_at=0.0)
    await bring_down(run)
    assert steps(run) == [(0.0, "TERM"), (0.001, "KILL")]
    assert len(said()) == 1 and "after" not in said()[0]


async def test_force_later_cuts_the_grace() -> None:
    """Force that arrives within the grace ends it there."""
    run = Scripted(30.0, force_at=4.0)
    await bring_down(run)
    assert steps(run) == [(0.0, "TERM"), (4.0, "KILL")]


async def test_refused_signals(said: Callable[[], list[str]]) -> None:
    """Both steps are refused: each says so for the group and for the process, killTimeout is waited all the same, and
    the sequence ends without the proof."""
    run = Scripted(3.0, refuses=errno.EPERM)
    await bring_down(run)
    assert steps(run) == [(0.0, "TERM"), (3.001, "KILL")] and run.clock == 3.002 and not run.tree_gone
    lines = said()
    assert lines[:5] == [GROUP, PROCESS, NOT_GRACEFUL.format("3"), GROUP, PROCESS]
    assert len(lines) == 6 and "could not be ended" in lines[5]


async def test_a_group_that_is_gone_is_no_refusal(said: Callable[[], list[str]]) -> None:
    """ESRCH is an answer, not a fault: nothing is logged for it."""
    run = Scripted(1.0, exits_after_term=0.1)
    run._answer = lambda: setattr(run, "signalled", Signalled(run.now(), errno.ESRCH, errno.ESRCH))  # type: ignore[method-assign]
    await bring_down(run)
    assert said() == []


async def test_a_process_that_does_not_die_is_waited_for_within_the_bound(said: Callable[[], list[str]]) -> None:
    """SIGKILL taken and no end (a process in the kernel): the sequence ends after the bound and says so; no refusal is
    claimed."""
    run = Scripted(1.0, empties_after_kill=None)
    await bring_down(run)
    assert run.clock == pytest.approx(1.001 + CONFIRM_SECONDS) and not run.tree_gone
    assert any("could not be ended in time" in line for line in said())
    assert not any("could not signal" in line for line in said())


async def test_a_slow_death_is_no_refusal(said: Callable[[], list[str]]) -> None:
    """"Has not died of it yet" does not end the wait for the proof and is not told as a refused signal."""
    run = Scripted(1.0, empties_after_kill=5.0)
    run._coming.append((2.0, lambda: setattr(run, "kill_refused", KillRefused(run.now(), errno.ETIMEDOUT, 78))))
    await bring_down(run)
    assert run.clock == pytest.approx(6.001) and run.tree_gone
    assert not any("could not signal" in line for line in said())


async def test_a_supervisor_that_cannot_act_is_ended(said: Callable[[], list[str]]) -> None:
    """Stopped or frozen by its own run it answers neither step: it is ended itself within the bound, and the sweep of
    what it held is the proof."""
    run = Scripted(0.0, answers=False, empties_after_kill=None, sweeps=0.1)
    await bring_down(run)
    ended = SIGNAL_ANSWER_SECONDS + KILL_ANSWER_SECONDS
    assert [at for at, what in run.log if what == "END"] == [ended]
    assert run.tree_gone and run.clock == pytest.approx(ended + 0.1)
    assert not any("could not be ended" in line for line in said())


async def test_a_supervisor_that_says_why_is_left_to_it() -> None:
    """One that reports a process that does not die is at work, and is not ended."""
    run = Scripted(0.0, empties_after_kill=9.0)
    run._coming.append((2.0, lambda: setattr(run, "kill_refused", KillRefused(run.now(), errno.ETIMEDOUT, 78))))
    await bring_down(run)
    assert run.tree_gone and not any(what == "END" for _, what in run.log)

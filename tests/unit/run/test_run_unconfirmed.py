"""A run that was stopped and is not proven gone: what keeps its place, and what frees it."""

from __future__ import annotations

import logging

import pytest
from simulated import World, job, lines

from sexton.execution.messages import Emptied
from sexton.model.job import EndsWhen, KillWaitsFor, Leftovers, WhenUnconfirmed
from sexton.model.run import GoneState, Outcome, Phase
from sexton.run.mailbox import AbandonRequested

HOLD = WhenUnconfirmed.HOLD
KEEPS = "could not be terminated and keeps its place"


def refusing(world: World) -> None:
    world.process.group_errno = world.process.process_errno = world.process.kill_errno = 1
    world.process.dies_of_term_after = None


async def test_the_place_is_kept_until_the_run_is_seen_gone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Recorded at once as after every timeout; the place goes to nobody until the process is gone, and then the record
    carries the proof."""
    refusing(world)
    world.exits(500.0, 4)
    kept: list[tuple[bool, bool, Phase]] = []
    world.after(100.0, lambda: kept.append((world.run.unconfirmed, world.run.freed.is_set(), world.run.phase)))
    record = await world.live(job(execution_timeout=1.0, kill_timeout=2.0, when_unconfirmed=HOLD))
    assert kept == [(True, False, Phase.RECORDED)]
    assert record.exit_code == -100 and record.gone is not None and record.gone.state is not GoneState.PROVEN
    assert record.stop is not None and record.stop.confirmed_at is None
    amended = world.records[-1]
    assert len(world.records) == 2 and amended.gone is not None and amended.gone.state is GoneState.PROVEN
    assert amended.stop is not None and amended.stop.confirmed_at is not None
    assert (amended.outcome, amended.exit_code) == (record.outcome, record.exit_code)
    assert amended.finished_at == record.finished_at, "the run had ended with its sequence"
    assert len(lines(caplog, KEEPS, logging.ERROR)) == 1 and lines(caplog, "is gone", logging.INFO)


async def test_abandon_frees_the_place_and_is_recorded(world: World) -> None:
    """Who gave it up and why stands in the record, and nothing claims that the run is gone."""
    refusing(world)
    world.after(60.0, lambda: AbandonRequested("the disk array is dead", "ada"))
    await world.live(job(execution_timeout=1.0, kill_timeout=0.0, when_unconfirmed=HOLD))
    record = world.records[-1]
    assert record.abandoned is not None and record.gone is not None and record.gone.state is not GoneState.PROVEN
    assert (record.abandoned.reason, record.abandoned.requested_by) == ("the disk array is dead", "ada")


async def test_release_is_the_rule_of_the_page(world: World) -> None:
    """whenUnconfirmed: release: the run has ended when the sequence has finished, whatever lives on."""
    refusing(world)
    record = await world.live(job(execution_timeout=1.0, kill_timeout=2.0, when_unconfirmed=WhenUnconfirmed.RELEASE))
    assert len(world.records) == 1 and record.gone is not None and record.gone.state is not GoneState.PROVEN


async def test_somebody_else_in_the_cgroup_is_watched(world: World) -> None:
    """The supervisor has none of the run any more, but its cgroup is not empty: proven when nobody is left in it."""
    world.stop(1.0)
    world.process.dies_of_kill_after = None
    world.after(1.5, lambda: Emptied(world.now, False))
    await world.live(job(kill_timeout=0.0, when_unconfirmed=HOLD))
    assert world.records[-1].gone is not None and world.records[-1].gone.state is GoneState.PROVEN


async def test_a_run_that_is_proven_gone_keeps_nothing(world: World) -> None:
    """The rule of every ordinary stop."""
    world.stop(1.0)
    record = await world.live(job(when_unconfirmed=HOLD))
    assert record.gone is not None and record.gone.state is GoneState.PROVEN and len(world.records) == 1


async def test_kill_waits_for_the_tree(world: World) -> None:
    """killWaitsFor: tree gives the whole grace to every process: the forced step waits though the own one has gone."""
    world.stop(1.0)
    world.process.dies_of_term_after = 0.5
    await world.live(job(kill_timeout=10.0, kill_waits_for=KillWaitsFor.TREE))
    assert [what for _, what in world.process.orders] == ["TERM", "KILL"]
    assert world.since_start(world.process.orders[1][0]) == pytest.approx(11.001, abs=0.01)


async def test_kill_waits_for_the_tree_and_no_longer(world: World) -> None:
    """When all of it has gone there is nothing to wait for."""
    world.stop(1.0)
    world.process.dies_of_term_after = 0.5
    world.after(2.0, lambda: Emptied(world.now, True))
    await world.live(job(kill_timeout=10.0, kill_waits_for=KillWaitsFor.TREE))
    assert world.ended < 2.5


async def test_a_run_may_end_with_its_process(world: World) -> None:
    """endsWhen: exit does not wait for whoever holds the output, and closes it."""
    world.exits(2.0, 0)
    record = await world.live(job(ends_when=EndsWhen.EXIT, capture_stdout=True))
    assert record.outcome is Outcome.SUCCESS and world.ended == 2.0 and record.duration == 2.0
    assert world.pipes is not None and world.pipes.open_streams == []


async def test_leftovers_can_be_ended(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """leftovers: kill ends what a run leaves behind before its place is free; the run keeps its own end and outcome."""
    world.exits(2.0, 0, empty=False)
    record = await world.live(job(leftovers=Leftovers.KILL))
    assert [what for _, what in world.process.orders] == ["KILL"]
    assert record.outcome is Outcome.SUCCESS and record.duration == 2.0 and record.stop is None
    assert record.gone is not None and record.gone.state is GoneState.PROVEN
    assert lines(caplog, "(leftovers: kill)")


async def test_leftovers_that_refuse_keep_the_place(world: World) -> None:
    """What we meant to end and could not is unconfirmed like any other."""
    refusing(world)
    world.exits(2.0, 0, empty=False)
    world.after(50.0, lambda: Emptied(world.now, True))
    await world.live(job(leftovers=Leftovers.KILL, when_unconfirmed=HOLD))
    assert len(world.records) == 2 and world.records[0].outcome is Outcome.SUCCESS
    assert world.records[1].gone is not None and world.records[1].gone.state is GoneState.PROVEN


@pytest.mark.parametrize("policy", [Leftovers.KEEP, Leftovers.REPORT])
async def test_leftovers_are_left_alone_unless_asked_for(world: World, policy: Leftovers) -> None:
    """They are released and not touched."""
    world.exits(1.0, 0, empty=False)
    await world.live(job(leftovers=policy))
    assert [what for _, what in world.process.orders] == ["RELEASE"]


async def test_what_ends_while_it_is_looked_at_is_not_unknown(world: World) -> None:
    """The last process of a run that ended by itself trails it for so long that it counts as left behind, and is gone
    when it is to be named: the record waits for the supervisor's word, which is a moment away."""
    world.exits(0.2, empty=False)
    world.after(0.31, lambda: Emptied(world.now, True))
    record = await world.live(job())
    assert record.gone is not None and record.gone.state is GoneState.PROVEN

"""The table of phases, walked exhaustively."""

from __future__ import annotations

import itertools

import pytest

from sexton.model.run import Phase
from sexton.run.lifecycle import COUNTS_AS_RUNNING, NEXT, PhaseError, step

ORDER = list(Phase)


def test_every_phase_is_in_the_table_once() -> None:
    """No phase without a row, and no row leads out of the table."""
    assert set(NEXT) == set(Phase) and set().union(*NEXT.values()) <= set(Phase)


@pytest.mark.parametrize(("here", "there"), list(itertools.product(Phase, Phase)))
def test_a_step_is_allowed_or_raises(here: Phase, there: Phase) -> None:
    """Exactly the steps of the table are taken; any other raises and names both phases."""
    if there in NEXT[here]:
        assert step(here, there) is there
        return
    with pytest.raises(PhaseError, match=f"from {here.value} to {there.value}"):
        step(here, there)


@pytest.mark.parametrize(("here", "there"), [(a, b) for a in Phase for b in Phase if b in NEXT[a]])
def test_no_step_goes_back(here: Phase, there: Phase) -> None:
    """Phases follow the order in which they are declared, so no run can live for ever by its table."""
    assert ORDER.index(there) > ORDER.index(here)


def test_every_path_ends_recorded_by_way_of_ended() -> None:
    """Whatever happens: each path through the table passes `ended` and stops at `recorded`, and nowhere else."""
    def paths(phase: Phase) -> list[tuple[Phase, ...]]:
        return [(phase, *rest) for following in NEXT[phase] for rest in paths(following)] or [(phase,)]

    found = paths(Phase.QUEUED)
    assert all(path[-2:] == (Phase.ENDED, Phase.RECORDED) for path in found) and len(found) == len(set(found))
    assert {phase for path in found for phase in path} == set(Phase), "every phase can be reached"


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.RECORDED])
def test_counting_stops_at_ended_and_never_begins_again(phase: Phase) -> None:
    """An instance counts for the overlap policies until it has ended, waiting replacements included. One that waits for
    its pool does not count yet."""
    assert (phase in COUNTS_AS_RUNNING) == (phase not in (Phase.QUEUED, Phase.ENDED))
    if phase is Phase.ENDED:
        assert not NEXT[phase] & COUNTS_AS_RUNNING


def test_every_living_phase_may_end() -> None:
    """A bug or a lost supervisor can end a run from any phase that counts."""
    assert all(Phase.ENDED in NEXT[phase] for phase in COUNTS_AS_RUNNING)

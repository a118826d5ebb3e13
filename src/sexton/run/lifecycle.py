"""The table of phases: from where a run may go where. Anything else is a bug and raises."""

from __future__ import annotations

from sexton.model.run import Phase

NEXT: dict[Phase, frozenset[Phase]] = {
    Phase.QUEUED: frozenset({Phase.CLAIMED, Phase.ENDED}),
    Phase.CLAIMED: frozenset({Phase.STARTING, Phase.ENDED}),
    Phase.STARTING: frozenset({Phase.RUNNING, Phase.STOPPING, Phase.ENDED}),
    Phase.RUNNING: frozenset({Phase.DRAINING, Phase.VERIFYING, Phase.STOPPING, Phase.ENDED}),
    Phase.DRAINING: frozenset({Phase.VERIFYING, Phase.STOPPING, Phase.ENDED}),
    Phase.VERIFYING: frozenset({Phase.STOPPING, Phase.ENDED}),
    Phase.STOPPING: frozenset({Phase.KILLING, Phase.ENDED}),
    Phase.KILLING: frozenset({Phase.CONFIRMING, Phase.ENDED}),
    Phase.CONFIRMING: frozenset({Phase.ENDED}),
    Phase.ENDED: frozenset({Phase.RECORDED}),
    Phase.RECORDED: frozenset(),
}

OVER = frozenset({Phase.ENDED, Phase.RECORDED})
COUNTS_AS_RUNNING = frozenset(Phase) - OVER - {Phase.QUEUED}
"""The phases in which an instance counts for the concurrency policy."""


class PhaseError(Exception):
    """A step that the table does not allow."""


def step(current: Phase, to: Phase) -> Phase:
    """The new phase. Raises PhaseError when the table has no such step."""
    if to not in NEXT[current]:
        raise PhaseError(f"a run cannot go from {current.value} to {to.value}")
    return to

"""The slot of a cluster-scoped job, as the API shows it; `held`, `holder` and `refs` are the reference's names."""

from __future__ import annotations

import msgspec

from sexton.model.job import ConcurrencyScope, JobSpec
from sexton.run.live import Run
from sexton.run.slots import Slots


class SlotView(msgspec.Struct, kw_only=True):
    held: bool
    """This node has it."""
    holder: str | None
    """The node that has it; of another one as it was when this node last asked in vain."""
    fence: int | None
    refs: int
    """Runs of this node that need it."""
    in_doubt: bool
    """It could not be renewed in time: another node may have it by now."""
    pursued_by: str | None
    """A run of this node that waits for the holder to yield."""


def slot_view(spec: JobSpec, slots: Slots | None, live: list[Run], me: str) -> SlotView | None:
    if spec.concurrency_scope is not ConcurrencyScope.CLUSTER or slots is None:
        return None
    pursuer = next((run.id for run in live if run.pursues is not None), None)
    held = slots.of(spec.name)
    if held is not None:
        return SlotView(held=True, holder=me, fence=held.lease.fence, refs=len(held.runs),
                        in_doubt=held.doubtful, pursued_by=pursuer)
    seen = slots.seen.get(spec.name)
    return SlotView(held=False, holder=seen.by.node if seen is not None else None,
                    fence=seen.by.fence if seen is not None else None, refs=0, in_doubt=False,
                    pursued_by=pursuer)

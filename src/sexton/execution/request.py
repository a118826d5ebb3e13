"""What a supervisor is sent to start a run, and what its refusals mean."""

from __future__ import annotations

import marshal
from collections.abc import Sequence
from typing import Any

from sexton.execution.birth import wire
from sexton.execution.keeping import Keeping
from sexton.execution.plan import Plan

LIMITS_STAGE = "the cgroup for its limits cannot be set up"
STAGES = {
    wire.STAGE_EXEC: "cannot execute the command",
    wire.STAGE_DIRECTORY: "cannot enter workingDirectory",
    wire.STAGE_USER: "cannot become the configured user",
    wire.STAGE_LIMITS: LIMITS_STAGE,
}


def encode(
    run: int, plan: Plan, targets: Sequence[int], patience_ms: int, keeping: Keeping | None = None,
) -> bytes:
    """The request for one run: `targets` are the numbers that the descriptors sent with it have in the job."""
    who = plan.identity
    user = None if who is None else (who.uid, who.gid, list(who.groups))
    message: Any = (
        run, list(plan.argv), plan.environment, plan.directory, user, plan.nice, list(targets), patience_ms,
        plan.confined, keeping.request() if keeping is not None else None,
    )
    return marshal.dumps(message)

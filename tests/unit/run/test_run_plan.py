"""What of a job's definition its supervisor is told."""

from __future__ import annotations

import pytest
from simulated import job

from sexton.execution.plan import plan


@pytest.mark.parametrize(("timeout", "hasty"), [(None, False), (60.0, False), (0.5, False), (0.05, True)])
def test_a_near_deadline_is_told_of(timeout: float | None, hasty: bool) -> None:
    """The clock of a run starts with its process: of a short `executionTimeout` the start must be known at once."""
    assert plan(job(execution_timeout=timeout), "run", None, "node").hasty is hasty

"""How many warm supervisors to have."""

from __future__ import annotations

import pytest

from sexton.execution.sizing import IDLE_CEILING, MINIMUM, QUIET_BEFORE_TRIM, TRIM_EVERY, surplus

SOON, LATER, MUCH_LATER = TRIM_EVERY / 2, TRIM_EVERY + 1, QUIET_BEFORE_TRIM + 1


@pytest.mark.parametrize(("idle", "total", "quiet", "gone"), [
    (IDLE_CEILING + 40, IDLE_CEILING + 40, SOON, 0),
    (IDLE_CEILING + 40, IDLE_CEILING + 40, LATER, 40),
    (IDLE_CEILING + 40, IDLE_CEILING + 40, MUCH_LATER, 40),
    (IDLE_CEILING, IDLE_CEILING, LATER, 0),
    (MINIMUM + 1, MINIMUM + 1, LATER, 0),
    (MINIMUM + 1, MINIMUM + 1, MUCH_LATER, 1),
    (MINIMUM, MINIMUM, MUCH_LATER, 0),
    (0, MINIMUM + 5, MUCH_LATER, 0),
    (3, MINIMUM + 5, MUCH_LATER, 1),
])
def test_who_is_let_go(idle: int, total: int, quiet: float, gone: int) -> None:
    """After a crowd the pool shrinks to its ceiling soon, and to its minimum slowly; busy ones stay."""
    assert surplus(idle, total, quiet) == gone

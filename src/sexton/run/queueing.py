"""A run's wait for slots of its pool, as `conduct` lives through it."""

from __future__ import annotations

from sexton.model.clock import Monotonic
from sexton.model.run import Phase
from sexton.run.facilities import Facilities
from sexton.run.intent import write_claim
from sexton.run.live import Run, Until


async def wait_for_slots(run: Run, daemon: Facilities, until: Until) -> bool:
    """Whether the run may start now. Not if it has waited too long (`run.expired`), is to stop, or must not be started
    without the ledger knowing (`run.fail_reason`)."""
    ticket = run.launch.ticket
    if run.phase is not Phase.QUEUED or ticket is None:
        return True
    left = (ticket.expires_at - daemon.clock.now()).total_seconds()
    limit = Monotonic(daemon.clock.monotonic() + max(0.0, left))
    in_time = await until(run, lambda: run.admitted_at is not None or run.stop is not None, limit)
    if not in_time:
        waited = (daemon.clock.now() - run.launch.created_at).total_seconds()
        run.expired = f"waited {waited:.3g} seconds for {ticket.slots} slot(s) of pool {ticket.pool!r} (queueTimeout)"
    if run.admitted_at is None:
        run.leave_queue(run, expired=not in_time)
        return False
    if run.stop is not None:
        return False
    run.advance(Phase.CLAIMED)
    return await write_claim(run, daemon)

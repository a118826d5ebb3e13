"""From the launch to the permission to start: intent, pool, the runs it replaces, the slot in the cluster.

The slot is claimed here for every kind of launch (binding page, "Concurrency across a cluster"). A launch that finds it
taken and does not wait leaves nothing behind, as one that the local policy refuses; one that waits is in the ledger
first.
"""

from __future__ import annotations

import logging
from typing import assert_never

from sexton.admission.decide import Refusal, Refuse
from sexton.admission.slot import Enter, Pursue, SlotTurn, when_held, when_moved, when_outwaited, when_unanswered
from sexton.model.clock import Monotonic
from sexton.model.errors import StoreError
from sexton.model.job import ConcurrencyScope
from sexton.model.run import Phase
from sexton.model.settings import OnStoreUnavailable
from sexton.run.facilities import Facilities
from sexton.run.intent import write_intent
from sexton.run.live import Run, Until
from sexton.run.queueing import wait_for_slots
from sexton.run.slots import Slots, slot_name
from sexton.store.coordination import Denied, Signal, SignalKind, bounded

logger = logging.getLogger("sexton.run")

LOOK_SECONDS, SOON_SECONDS, SOON = 0.25, 0.1, 2.0
"""How often a pursuit asks whether the slot is free; in its first seconds, in which most holders yield, more often."""


async def enter(run: Run, daemon: Facilities, until: Until) -> bool:
    """Whether the run may start now. Where not, it has a `stop`, a `refusal`, has `expired`, or a `fail_reason`."""
    slots = daemon.slots if run.job.concurrency_scope is ConcurrencyScope.CLUSTER else None
    if slots is None:
        run.answered.set()
    elif not run.launch.ticket and not run.waits_for:
        return (await _claim(run, daemon, slots, until) and await _intend(run, daemon)
                and await _still_has_it(run, daemon, slots, until))
    shared = slots is not None and slots.share(run.job.name, run.id)
    if shared:
        daemon.on_admitted(run)
    if not (await _intend(run, daemon) and await wait_for_slots(run, daemon, until)):
        return False
    if run.waits_for:
        run.answered.set()  # that may take a `killTimeout`: who asked is told what it waits for
    await _wait_for_victims(run, until)
    if run.stop is not None or slots is None or shared:
        run.answered.set()
        return run.stop is None and (slots is None or await _still_has_it(run, daemon, slots, until))
    return await _claim(run, daemon, slots, until)


async def _still_has_it(run: Run, daemon: Facilities, slots: Slots, until: Until) -> bool:
    """Between the grant and the start a disk may hang, or all of us be stopped: what cannot be trusted any more is
    asked for once more."""
    return not slots.is_doubtful(run.job.name, run.id) or await _claim(run, daemon, slots, until)


async def _intend(run: Run, daemon: Facilities) -> bool:
    """No process runs that the ledger does not know of, and no promise is lost."""
    if run.intended.is_set():
        return run.fail_reason is None
    may_start = await write_intent(run, daemon)
    run.intended.set()
    return may_start


async def _wait_for_victims(run: Run, until: Until) -> None:
    """A replacement starts only after the runs that it replaces have given up their places."""
    await until(run, lambda: not run.waits_for or run.stop is not None)


async def _claim(run: Run, daemon: Facilities, slots: Slots, until: Until) -> bool:
    answer = await _ask(run, daemon, slots)
    turn = answer if not isinstance(answer, Denied) else when_held(run.job, answer.by.node)
    match turn:
        case Enter():
            run.answered.set()
            daemon.on_admitted(run)
            return True
        case Refuse():
            return _refuse(run, turn)
        case Pursue():
            assert isinstance(answer, Denied)
            run.pursues = answer.by.node
            may_wait = await _intend(run, daemon)
            run.answered.set()
            return may_wait and await _pursue(run, daemon, slots, answer, until)
        case _:
            assert_never(turn)


async def _ask(run: Run, daemon: Facilities, slots: Slots) -> SlotTurn | Denied:
    """Claim once. What a store that does not answer means is for `onStoreUnavailable` to say."""
    name = run.job.name
    try:
        return await _claim_once(run, daemon, slots)
    except StoreError as failure:
        daemon.counters.slots_unanswered += 1
        policy = OnStoreUnavailable.FAIL_CLOSED if daemon.intent_required else OnStoreUnavailable.DEGRADE
        turn = when_unanswered(str(failure), policy)
        if isinstance(turn, Enter):
            logger.warning(
                "Job %s: cannot claim its cluster concurrency slot (%s); enforcing concurrencyPolicy on this node only "
                "for this run (onStoreUnavailable: degrade)", name, failure)
        return turn


async def _claim_once(run: Run, daemon: Facilities, slots: Slots) -> Enter | Denied:
    """Raises StoreError when the store does not answer."""
    answer = await slots.claim(run.job.name, run.id)
    if isinstance(answer, Denied):
        return answer
    if answer.taken_from is not None:
        logger.warning("Job %s: its cluster concurrency slot was taken from %s, which has fallen silent", run.job.name,
                       answer.taken_from.node)
        daemon.on_silent(answer.taken_from.holder, run.job.name)
    return Enter()


async def _pursue(run: Run, daemon: Facilities, slots: Slots, denied: Denied, until: Until) -> bool:
    """Ask the holder to yield, and claim again until the slot is free; for twice its time to live at most. A store that
    does not answer meanwhile leaves no question open: the holder was seen, and has not been seen to yield."""
    name, bound = run.job.name, 2 * slots.ttl()
    began, moves = daemon.clock.monotonic(), slots.moves
    limit = began + bound
    asked, told = None, False
    while True:
        if asked != denied.by.fence:
            asked = denied.by.fence if await _ask_to_yield(run, daemon, denied) else None
        now = daemon.clock.monotonic()
        pause = Monotonic(min(limit, now + (SOON_SECONDS if now < began + SOON else LOOK_SECONDS)))
        if await until(run, lambda: run.stop is not None, pause):
            return False
        answer: Enter | Denied | None = None
        try:
            answer = await _claim_once(run, daemon, slots)
        except StoreError as failure:
            daemon.counters.slots_unanswered += 1
            if not told:
                logger.warning("Job %s: whether %s has yielded cannot be said now (%s); it is asked again", name,
                               denied.by.node, failure)
            told = True
        if slots.moves != moves:
            slots.give_back(name, run.id)
            return _refuse(run, when_moved(run.pursues or denied.by.node))
        if isinstance(answer, Enter):
            logger.info("Job %s: launched after the previous cluster slot holder yielded (concurrencyPolicy: Replace)",
                        name)
            run.pursues = None
            daemon.on_admitted(run)
            return True
        if isinstance(answer, Denied):
            denied = answer
            run.pursues = denied.by.node
        if daemon.clock.monotonic() >= limit:
            logger.warning(
                "Job %s: the foreign holder (%s) did not yield its cluster concurrency slot within %gs; skipping this "
                "launch (no-run over double-run)", name, denied.by.node, bound)
            return _refuse(run, when_outwaited(denied.by.node, bound))


async def _ask_to_yield(run: Run, daemon: Facilities, denied: Denied) -> bool:
    logger.info("Job %s: cluster Replace: asking the current slot holder (%s) to yield; the launch is re-attempted "
                "when the slot frees", run.job.name, denied.by.node)
    request = Signal(
        to=denied.by.holder, kind=SignalKind.YIELD, sender=run.launch.node, lease=slot_name(run.job.name),
        fence=denied.by.fence, run=run.id, requested_by=run.launch.requested_by,
        reason=f"run {run.id} on {run.launch.node} takes its place",
    )
    try:
        assert daemon.signals is not None
        await bounded(daemon.signals.send(request))
        return True
    except StoreError as failure:
        logger.warning("Job %s: %s could not be asked to yield (%s); it is tried again", run.job.name, denied.by.node,
                       failure)
        return False


def _refuse(run: Run, refusal: Refuse) -> bool:
    """In the ledger already: it is recorded as skipped. Otherwise it was never there."""
    logger.warning("Job %s skipped: %s", run.job.name, refusal.message)
    run.refusal = refusal
    if run.intended.is_set():
        run.expired = refusal.message
    run.answered.set()
    return False


def may_come_later(refusal: Refuse | None) -> bool:
    """Whether the reason passes by itself: another node's run ends, a store comes back."""
    return refusal is not None and refusal.refusal in (Refusal.SLOT_HELD, Refusal.SLOT_UNKNOWN)


def turned_away(run: Run) -> bool:
    """It was refused before the ledger knew of it."""
    return run.refusal is not None and not run.intended.is_set() and run.phase is Phase.CLAIMED

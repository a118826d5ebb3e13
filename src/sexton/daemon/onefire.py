"""`runOn: one-node`: an occurrence is fired by the first node that claims it in the store, and by no other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from sexton.daemon.claiming import Rounds
from sexton.daemon.jobs import REMEMBERED_RUNS, JobEntry, Jobs
from sexton.model.errors import StoreError
from sexton.model.job import RunOn
from sexton.model.node import NodeIdentity
from sexton.model.settings import OnStoreUnavailable
from sexton.store.coordination import Occurrence, Store, bounded

logger = logging.getLogger("sexton.schedule")

LOOK_BACK = timedelta(minutes=2)
"""How long before its last sign of life a dead node may have claimed an occurrence that it did not start: a start takes
seconds, but the clock of the node may be off."""
AGAIN = "\0again"
"""Under the job's name with this, the second claim of such an occurrence is unique, too."""
MOST_KNOWN = 1000


class OneFire:
    def __init__(self, store: Store, me: NodeIdentity, jobs: Jobs, on_unavailable: OnStoreUnavailable,
                 living: Callable[[], Collection[str]] = lambda: ()) -> None:
        """`living` names (by `NodeIdentity.id`) the nodes that share what is due."""
        self._rounds = Rounds(store, me, living)
        self._store = store
        self._me = me
        self._jobs = jobs
        self._on_unavailable = on_unavailable
        self.fired_elsewhere = 0
        self.unanswered = 0
        self.owes = False
        """We are ending, and have claimed an occurrence that we do not start any more."""
        self.on_lost_fire: Callable[[JobEntry, datetime], None] = lambda entry, scheduled_for: None
        """Told of an occurrence that a dead node had claimed and did not start: it is ours to fire now."""

    async def is_ours(self, entry: JobEntry, scheduled_for: datetime) -> bool:
        """Claim the occurrence for this node. Without an answer of the store `onStoreUnavailable` decides: `degrade`
        fires it here, whatever other nodes do, and `fail-closed` does not."""
        name = entry.spec.name
        try:
            if entry.spec.only_if_last_succeeded:  # the last run may have been another node's
                entry.merge(await bounded(self._store.history(name, REMEMBERED_RUNS)))
            ours = await self._rounds.claim(Occurrence(name, scheduled_for))
        except StoreError as failure:
            self.unanswered += 1
            fires = self._on_unavailable is OnStoreUnavailable.DEGRADE
            logger.warning("Job %s: whether another node fires the run due at %s cannot be said (%s); %s", name,
                           scheduled_for.isoformat(), failure,
                           "it is fired here (onStoreUnavailable: degrade)" if fires else
                           "it is skipped (onStoreUnavailable: fail-closed)")
            return fires
        if not ours:
            self.fired_elsewhere += 1
            logger.debug("Job %s: the run due at %s is another node's", name, scheduled_for.isoformat())
        return ours

    async def decline(self, job: str, scheduled_for: datetime | None) -> None:
        """Of an occurrence that is ours, and that we have decided not to start: should we die, nobody makes up for
        it. None is no occurrence."""
        if scheduled_for is None:
            return
        try:
            await self._rounds.claim(Occurrence(job + AGAIN, scheduled_for), at_once=True)
        except StoreError as failure:
            logger.debug("Job %s: that the run due at %s is skipped cannot be noted: %s", job,
                         scheduled_for.isoformat(), failure)

    async def make_up_for(self, dead: str, last_seen: datetime) -> None:
        """Fire what a dead node (by its identity) had claimed and did not start: the ledger knows of no run for it, so
        no process of it ever was. Raises StoreError."""
        for entry in list(self._jobs):
            if entry.spec.run_on is not RunOn.ONE_NODE or not entry.spec.enabled:
                continue
            name = entry.spec.name
            since = last_seen - LOOK_BACK - timedelta(seconds=entry.spec.jitter or 0)
            claimed = [fire.scheduled_for for fire in await bounded(self._store.fired(name, since)) if fire.by == dead]
            if not claimed:
                continue
            known = {record.launch.scheduled_for
                     for record in await bounded(self._store.runs(job=name, limit=MOST_KNOWN))} - {None}
            for scheduled_for in not_started(claimed, known):
                if await bounded(self._store.claim_fire(name + AGAIN, scheduled_for, self._me)):
                    logger.warning("Job %s: a node died between claiming the run due at %s and starting it; it is "
                                   "fired here", name, scheduled_for.isoformat())
                    self.on_lost_fire(entry, scheduled_for)


def not_started(claimed: Sequence[datetime], known: Collection[datetime | None]) -> list[datetime]:
    """Of the claimed occurrences those without a run. Before the oldest run that is known the ledger may have forgotten
    some, and says nothing."""
    oldest = min((at for at in known if at is not None), default=None)
    return [at for at in claimed if at not in known and (oldest is None or at > oldest)]

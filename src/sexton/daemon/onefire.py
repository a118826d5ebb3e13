"""`runOn: one-node`: an occurrence is fired by the first node that claims it in the store, and by no other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from sexton.daemon.jobs import REMEMBERED_RUNS, JobEntry, Jobs
from sexton.model.errors import StoreError
from sexton.model.job import RunOn
from sexton.model.node import NodeIdentity
from sexton.model.settings import OnStoreUnavailable
from sexton.run.slots import bounded
from sexton.store.coordination import Store

logger = logging.getLogger("sexton.schedule")

LOOK_BACK = timedelta(hours=1)
"""How old an occurrence may be that a dead node had claimed and did not start, to be fired all the same."""
AGAIN = "\0again"
"""Under the job's name with this, the second claim of such an occurrence is unique, too."""


class OneFire:
    def __init__(self, store: Store, me: NodeIdentity, jobs: Jobs, on_unavailable: OnStoreUnavailable) -> None:
        self._store = store
        self._me = me
        self._jobs = jobs
        self._on_unavailable = on_unavailable
        self.fired_elsewhere = 0
        self.unanswered = 0
        self.on_lost_fire: Callable[[JobEntry, datetime], None] = lambda entry, scheduled_for: None
        """Told of an occurrence that a dead node had claimed and did not start: it is ours to fire now."""

    async def is_ours(self, entry: JobEntry, scheduled_for: datetime) -> bool:
        """Claim the occurrence for this node. Without an answer of the store `onStoreUnavailable` decides: `degrade`
        fires it here, whatever other nodes do, and `fail-closed` does not."""
        name = entry.spec.name
        try:
            if entry.spec.only_if_last_succeeded:  # the last run may have been another node's
                entry.merge(await bounded(self._store.history(name, REMEMBERED_RUNS)))
            ours = await bounded(self._store.claim_fire(name, scheduled_for, self._me))
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

    async def make_up_for(self, dead: str, now: datetime) -> None:
        """Fire what a dead node (by its identity) had claimed and did not start: the ledger knows of no run for it, so
        no process of it ever was. Raises StoreError."""
        for entry in list(self._jobs):
            if entry.spec.run_on is not RunOn.ONE_NODE or not entry.spec.enabled:
                continue
            name = entry.spec.name
            claimed = [fire.scheduled_for for fire in await bounded(self._store.fired(name, now - LOOK_BACK))
                       if fire.by == dead]
            if not claimed:
                continue
            known = {record.launch.scheduled_for for record in await bounded(self._store.runs(job=name, limit=1000))}
            for scheduled_for in claimed:
                if scheduled_for not in known and await bounded(
                    self._store.claim_fire(name + AGAIN, scheduled_for, self._me)
                ):
                    logger.warning("Job %s: a node died between claiming the run due at %s and starting it; it is "
                                   "fired here", name, scheduled_for.isoformat())
                    self.on_lost_fire(entry, scheduled_for)

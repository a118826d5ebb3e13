"""Records that the ledger could not take when their runs ended (a full disk): kept, shown, and offered again until it
takes them. Else a run whose end was seen would be `running` while the daemon lives, and `interrupted` after.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sexton.model.errors import StoreError
from sexton.model.run import RunRecord
from sexton.store.port import Ledger

logger = logging.getLogger("sexton.run")

OFFER_SECONDS = 5.0
LIMIT = 10_000
"""Records; beyond it the oldest are lost, and that is said."""


class Unwritten:
    def __init__(self) -> None:
        self._records: dict[str, RunRecord] = {}
        self._then: dict[str, Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._offering: asyncio.Task[None] | None = None

    def add(self, record: RunRecord, ledger: Ledger, then: Callable[[], None] = lambda: None) -> None:
        """`then` is called when the ledger has it."""
        self._records[record.launch.id] = record
        self._then[record.launch.id] = then
        if len(self._records) > LIMIT:
            lost = self._records.pop(next(iter(self._records)))
            del self._then[lost.launch.id]
            logger.error("Job %s: the record of run %s is lost: too many wait for the store", lost.launch.job,
                         lost.launch.id)
        self._offer_later(ledger)

    def get(self, run_id: str) -> RunRecord | None:
        return self._records.get(run_id)

    def of(self, job: str | None) -> list[RunRecord]:
        """Those of one job, or all."""
        return [record for record in self._records.values() if job is None or record.launch.job == job]

    def __len__(self) -> int:
        return len(self._records)

    def _offer_later(self, ledger: Ledger) -> None:
        if self._timer is None and self._offering is None:
            self._timer = asyncio.get_running_loop().call_later(OFFER_SECONDS, self._begin, ledger)

    def _begin(self, ledger: Ledger) -> None:
        self._timer = None
        self._offering = asyncio.get_running_loop().create_task(self._offer_and_go_on(ledger))

    async def _offer_and_go_on(self, ledger: Ledger) -> None:
        await self.offer(ledger)
        self._offering = None
        if self._records:
            self._offer_later(ledger)

    async def offer(self, ledger: Ledger) -> None:
        """Offer all of them, together: they are one commit where the store can do that."""
        offered = list(self._records.values())
        answers = await asyncio.gather(*map(ledger.record, offered), return_exceptions=True)
        written = 0
        for record, answer in zip(offered, answers, strict=True):
            if answer is None:
                written += 1
                if self._records.get(record.launch.id) is record:
                    del self._records[record.launch.id]
                    self._then.pop(record.launch.id)()
            elif not isinstance(answer, StoreError):
                raise answer
        if written:
            logger.warning("%d record(s) that had waited for the store are written; %d still wait", written, len(self))

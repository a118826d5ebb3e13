"""What the rest of Sexton asks of a store: one narrow Protocol per need, with the duties of an implementer.

`tests/contract` runs one suite over every implementation; what an implementation lacks it declares in
`Capabilities`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from sexton.model.run import Launch, Outcome, RunRecord


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an implementation can do beyond the least."""

    durable: bool
    """Records survive the process, SIGKILL and power loss included."""
    shared: bool = False
    """Several daemons have it open at once, on one machine or many."""
    queue: bool = False
    """It has a `Queue`: runs may wait in it for a worker."""


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has done of one kind since it was opened."""

    done: int = 0
    failed: int = 0
    rounds: int = 0
    """To the disk, each for one or many of them."""
    seconds: float = 0.0
    """Of all rounds together."""


@runtime_checkable
class Counted(Protocol):
    """A store that counts what it does."""

    @property
    def operations(self) -> Mapping[str, Operations]:
        """By kind: `read`, `write`, and whatever else it tells apart. Never waits, and may be asked from any thread."""
        ...

    @property
    def lost_notes(self) -> int:
        """Writes that nobody waited for and that have failed."""
        ...


class JobHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger knows of a job's recorded runs, newest last."""

    runs: tuple[RunRecord, ...] = ()
    totals: Mapping[Outcome, int] = {}


def ended_at(record: RunRecord) -> datetime:
    """The instant by which a recorded run takes its place in the history. A run that never started has no
    other instant than that of its intent."""
    return record.finished_at or record.started_at or record.launch.created_at


class Ledger(Protocol):
    """The record of runs: an intent before each spawn, a record at each end.

    Duties. `intend` and `record` return only when what they were given is durable (where `durable` is
    declared), and writes of one run take effect in the order of the calls. A write that fails raises
    StoreError and leaves the ledger as it was. No method may block the event loop; a slow disk delays only
    those who wait for it.
    A run's record replaces its intent: a run is in the ledger once, whatever happens in between.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def problem(self) -> str | None:
        """Why the store takes no writes now, as far as it knows; None while it does. Never waits."""

    async def open(self) -> None:
        """Make the store ready (create, migrate, recover). Raises StoreError when it cannot be used."""

    async def close(self) -> None:
        """Write what is queued, then let go of every resource. Later calls raise StoreError."""

    async def intend(self, launch: Launch) -> None:
        """Make it known that this run is about to be started."""

    def note(self, record: RunRecord) -> None:
        """Keep the latest facts of a live run (pid, start) for whoever must recover it. Never waits; best
        effort, and ordered with the other writes of the run. A run that is unknown or recorded stays as it
        is."""

    async def keep(self, record: RunRecord) -> None:
        """As `note`, and returns only when it is durable: for a fact without which a later daemon would start the run a
        second time."""

    async def record(self, record: RunRecord) -> None:
        """Write the final record of a run (intended before or not)."""

    async def unfinished(self) -> Sequence[RunRecord]:
        """Every run with an intent and no record, oldest first: what a dead daemon left."""

    async def get(self, run_id: str) -> RunRecord | None:
        """One run, recorded or not."""

    async def known(self, run_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs that are in the ledger, recorded or not."""
        ...

    async def history(self, job: str, limit: int) -> JobHistory:
        """The newest `limit` recorded runs of a job by `finished_at` (ties: later recorded), oldest first,
        and the totals over all recorded runs that are kept."""

    async def recent(self, per_job: int) -> Mapping[str, JobHistory]:
        """`history` of every job at once: what a daemon reads when it starts."""

    async def runs(
        self, *, job: str | None = None, outcome: Outcome | None = None, node: str | None = None, limit: int,
        before: str | None = None, after: str | None = None,
    ) -> Sequence[RunRecord]:
        """Runs, newest first by id (UUIDv7: time order), with all that is given: of the job, with the outcome, started
        on the node (by its name), older than the id `before`, newer than the id `after`."""

    async def prune(self, job: str, keep: int) -> Sequence[str]:
        """Forget all but the newest `keep` recorded runs of a job; returns the ids that went.
        Intents stay."""


class JobState(Protocol):
    """Small durable facts about a job, such as the boot for which its @reboot run was started.

    Duties: `put` is durable when it returns and the last write wins; `get` sees every write that returned.
    """

    async def get_state(self, job: str, key: str) -> str | None: ...

    async def states(self, key: str) -> Mapping[str, str]:
        """What is kept under the key, by job: for a daemon that starts, all at once."""
        ...

    async def put_state(self, job: str, key: str, value: str) -> None: ...

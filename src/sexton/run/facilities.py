"""What a run needs from the rest of the daemon."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sexton.execution.keeping import KeptRuns
from sexton.execution.mirror import Mirror
from sexton.execution.runlog import OutputFiles
from sexton.execution.secrets import Vault
from sexton.execution.supervisors import Supervisors
from sexton.model.clock import Clock
from sexton.model.run import RunRecord
from sexton.run.confine import Confining
from sexton.run.live import Run
from sexton.run.registry import Registry
from sexton.run.slots import Slots
from sexton.run.unwritten import Unwritten
from sexton.store.coordination import Signals
from sexton.store.port import Ledger


class Counters(msgspec.Struct):
    """What went wrong without stopping anything; shown by the API."""

    store_failures: int = 0
    internal_errors: int = 0
    slots_unanswered: int = 0
    """Claims of a slot in the cluster that the store did not answer."""


class Facilities(msgspec.Struct, frozen=True):
    """What a run needs from the rest of the daemon."""

    ledger: Ledger
    supervisors: Supervisors
    registry: Registry
    clock: Clock
    mirror: Mirror | None
    output_files: OutputFiles | None
    on_recorded: Callable[[Run, RunRecord], None]
    """Told once of each recorded run, for history, counters and whoever comes later (reports, retries)."""
    on_started: Callable[[Run], None] = lambda run: None
    """Told of each run that has a process."""
    on_amended: Callable[[Run, RunRecord], None] = lambda run, record: None
    """Told when a record was written anew because its run was seen gone, or abandoned, later."""
    on_unconfirmed: Callable[[Run, RunRecord], None] = lambda run, record: None
    """Told of a run whose process outlived the forced step and whose record waits for it."""
    confining: Confining = msgspec.field(default_factory=Confining)
    counters: Counters = msgspec.field(default_factory=Counters)
    vault: Vault = msgspec.field(default_factory=Vault)
    unwritten: Unwritten = msgspec.field(default_factory=Unwritten)
    intent_required: bool = False
    """onStoreUnavailable: fail-closed. Nothing is started that the ledger does not know of."""
    slots: Slots | None = None
    """Of cluster-scoped jobs; None without a store that has leases."""
    signals: Signals | None = None
    on_admitted: Callable[[Run], None] = lambda run: None
    """Told of each cluster-scoped run that has its slot (or does without it)."""
    on_refused: Callable[[Run], None] = lambda run: None
    """Told of each run that was turned away before the ledger knew of it."""
    on_silent: Callable[[str, str], None] = lambda node, job: None
    """Told of a node (by its identity) that has fallen silent while it held the slot of a job."""
    kept: KeptRuns | None = None
    """Where runs are found again that outlive us; None without a durable store."""

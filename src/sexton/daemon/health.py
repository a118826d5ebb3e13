"""Whether the daemon does its work, and what it could not do: the answer of GET /health."""

from __future__ import annotations

from datetime import datetime

import msgspec

from sexton.daemon.reload import ReloadResult
from sexton.outcome.reporters.outbox import OutboxHealth


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """Of the API: how many there are and may be, and what the bound has cost since the start."""

    open: int = 0
    bound: int = 0
    closed_idle: int = 0
    turned_away: int = 0
    not_accepted: int = 0
    """The daemon was out of descriptors."""


class StoreLeft(msgspec.Struct, frozen=True, kw_only=True):
    """A store that a reload has left, and that this node goes on to serve."""

    since: datetime
    answers: bool
    """It has answered this node's last heartbeat. A store of one node alone is not asked."""
    runs: tuple[str, ...]
    """Ids of the runs whose ends it is owed."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the daemon does its work, and what it could not do."""

    status: str
    version: str
    node: str
    started_at: datetime
    containment: str
    containment_advice: str | None
    durable: bool
    jobs: int
    running: int
    queued: int
    """Runs that wait for slots of their pools."""
    unconfirmed: int
    """Runs that were stopped, are not proven gone, and keep their place."""
    last_reload: ReloadResult
    reload_failures: int
    skipped_late: int
    launches_refused: int
    missed_made_up: int
    """Runs that made up for missed occurrences."""
    missed_given_up: int
    """Missed occurrences that were too old or too many."""
    mirror_dropped_bytes: int
    log_lines_dropped: int
    store_failures: int
    internal_errors: int
    """Bugs of ours that cost no more than the run or the report they happened in."""
    store_problem: str | None
    unwritten_records: int
    connections: Connections
    reports: OutboxHealth
    supervisors: dict[str, int]
    configuration_warnings: tuple[str, ...]
    clock_watch: bool
    slots_unanswered: int
    """Claims of slots in the cluster that the store did not answer."""
    slots_lost: int
    """Slots that another node took over while runs of the job lived here."""
    nodes: int
    """Nodes that were seen at the last look; 1 without a shared store."""
    nodes_problem: str | None
    """Why the other nodes are not seen now."""
    stores_left: tuple[StoreLeft, ...]
    """As long as they are owed something; empty unless a reload has named another store while runs lived."""
    ends_untold: int
    """Ends of runs that a store that was left could not be told: it has them as unfinished."""

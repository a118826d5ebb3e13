"""A node: one daemon process among those that share a store, and what it says of itself."""

from __future__ import annotations

from datetime import datetime

import msgspec


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a daemon process is. Another process never has the same `id`, not even after a restart on the same machine:
    nobody can take a predecessor's lease for its own."""

    id: str
    """`NAME#TOKEN`, unique to the process."""
    name: str
    """What people call the node: `state.nodeName`, or the name of the machine."""
    pid: int
    pid_started_ticks: int
    """When the process started, in clock ticks since boot."""
    boot_id: str
    pid_namespace: int
    """Inode of the process's pid namespace. Only within one boot and one namespace does a pid say anything."""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a node announces of itself with each heartbeat."""

    identity: NodeIdentity
    version: str
    started_at: datetime
    clock: datetime
    """The node's wall clock as it announced this: the store's clock beside it shows the offset."""
    job_set_id: str = ""
    """Digest of the jobs it has loaded: two nodes with different ones are configured differently."""
    jobs: int = 0
    runs: tuple[str, ...] = ()
    """Ids of the runs that live here."""
    slots: tuple[str, ...] = ()
    """Names of the leases it holds."""

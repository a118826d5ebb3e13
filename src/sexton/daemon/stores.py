"""Which store a configuration means, and where a node that uses it keeps its own files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from sexton.daemon.node import NodeHome, move_in, this_process
from sexton.model.errors import StoreError
from sexton.model.settings import OnStoreUnavailable, StateSettings, Topology
from sexton.store.coordination import Store
from sexton.store.memory.store import MemoryStore

OnPruned = Callable[[Sequence[str]], None]

NETWORK_FILE_SYSTEMS = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph",
    "lustre", "ocfs2", "gfs2", "beegfs", "afs", "9p", "virtiofs",
})  # fmt: skip
"""As /proc/self/mountinfo calls them."""


def make_store(state: StateSettings | None, on_pruned: OnPruned) -> Store:
    """The store of this configuration, not opened yet. Each is imported only when it is wanted."""
    if state is None:
        return MemoryStore()
    if state.url is not None:
        from sexton.store.postgres.store import PostgresStore

        return PostgresStore(state.url, state.deployment_id, max_runs_per_job=state.max_runs_per_job,
                             on_pruned=on_pruned, wary=state.on_store_unavailable is OnStoreUnavailable.FAIL_CLOSED)
    assert state.path is not None
    if is_shared(state):
        from sexton.store.directory.store import DirectoryStore

        return DirectoryStore(state.path, state.deployment_id, max_runs_per_job=state.max_runs_per_job,
                              on_pruned=on_pruned)
    from sexton.store.sqlite.store import SqliteStore

    return SqliteStore(state.path, state.deployment_id, max_runs_per_job=state.max_runs_per_job, on_pruned=on_pruned)


def is_shared(state: StateSettings) -> bool:
    """`topology: auto` is a folder on a network mount for several nodes, and one on a disk for one."""
    if state.url is not None:
        return True
    assert state.path is not None
    match state.topology:
        case Topology.SHARED:
            return True
        case Topology.SINGLE_NODE:
            return False
        case Topology.AUTO:
            return file_system_of(state.path, _mounts()) in NETWORK_FILE_SYSTEMS


def file_system_of(path: str, mountinfo: str) -> str:
    """The type of the file system that the path is on; empty when that cannot be told."""
    wanted, found, kind = os.path.realpath(path), "", ""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) < 5 or not after:
            continue
        point = words[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        inside = point == "/" or wanted == point or wanted.startswith(point + "/")
        if inside and len(point) >= len(found):
            found, kind = point, after.split(" ")[0]
    return kind


def _mounts() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


def home_of(state: StateSettings | None, store: Store) -> NodeHome:
    """Where this node keeps what is its own. Raises StoreError. Blocking."""
    name = (state.node_name if state is not None else None) or socket.gethostname()
    if state is None:
        return NodeHome(this_process(name))
    if not store.capabilities.shared:
        return NodeHome(this_process(name), Path(state.path or ".") / state.deployment_id)
    return move_in(_local_base(state), name)


def _local_base(state: StateSettings) -> Path:
    """A folder of this machine for the nodes that run on it."""
    if state.local_path is not None:
        return Path(state.local_path) / state.deployment_id
    if state.path is not None:
        return Path(state.path) / state.deployment_id / "nodes-own"
    if os.geteuid() == 0:
        return Path("/var/lib/sexton") / state.deployment_id
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if home.startswith("~"):
        raise StoreError("there is no home directory to keep this node's own files in; set `localPath` in `state`")
    return Path(home) / "sexton" / state.deployment_id

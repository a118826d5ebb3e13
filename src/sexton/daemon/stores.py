"""Which store a configuration means, and where a node that uses it keeps its own files."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from sexton.daemon.node import Belongings, NodeHome, move_in, this_process
from sexton.execution.keeping import KeptRuns
from sexton.execution.lastwords import LastWords
from sexton.execution.runlog import OutputFiles
from sexton.model.errors import StoreError
from sexton.model.settings import OnStoreUnavailable, StateSettings
from sexton.store.coordination import Store
from sexton.store.memory.store import MemoryStore
from sexton.store.mounts import is_shared

T = TypeVar("T")

OnPruned = Callable[[Sequence[str]], None]
Place = tuple[str | None, str | None, str]
"""Which store a section means: the folder without links, the URL, the deployment."""


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


async def aside(state: StateSettings, work: Callable[[], T]) -> T:
    """Do what may wait for the mount of that section's folder, in a thread that is left to itself where the mount
    hangs. Raises StoreError, also instead of OSError and when there is no answer in time."""
    from sexton.store.directory.threads import Threads

    threads = Threads("moving", 1, state.path or "the node's own folder")
    try:
        return await threads.ask(work)
    finally:
        threads.stop()


async def place_of(state: StateSettings) -> Place:
    """However it is spelled. Raises StoreError where the folder's mount hangs."""
    path = state.path
    found = None if path is None else await aside(state, lambda: os.path.realpath(path))
    return found, state.url, state.deployment_id


def home_of(state: StateSettings | None, store: Store) -> NodeHome:
    """Where this node keeps what is its own. Raises StoreError. Blocking."""
    name = (state.node_name if state is not None else None) or socket.gethostname()
    if state is None:
        return NodeHome(this_process(name))
    if not store.capabilities.shared:
        return NodeHome(this_process(name), Path(state.path or ".") / state.deployment_id)
    return move_in(_local_base(state), name)


def next_home(there: StateSettings, homes: Sequence[NodeHome]) -> NodeHome | None:
    """Where this process, whose home is the last of these and which has left the others, keeps what is its own when it
    uses the store of that section; None where another daemon has that place. Raises StoreError. Blocking."""
    me = homes[-1].identity
    own = me.name if is_shared(there) else ""
    base = _local_base(there) if is_shared(there) else Path(there.path or ".") / there.deployment_id
    for home in homes:
        if home.directory == base / own:
            return home
    if not is_shared(there):
        return NodeHome(me, base)
    found = move_in(base, me.name)
    if found.identity.name != me.name:
        found.leave()
        return None
    return NodeHome(me, found.directory, found.lock)


def belongings_of(state: StateSettings | None, home: NodeHome) -> Belongings | None:
    """None for a node without a store: nothing of it outlives it."""
    if state is None or home.directory is None:
        return None
    files = output_directory(state, home)
    return Belongings(OutputFiles(files, state.max_output_bytes),
                      KeptRuns(home.directory, files, state.max_output_bytes), LastWords(words_directory(home)))


def output_directory(state: StateSettings, home: NodeHome) -> Path:
    """Where the output of runs is kept: other nodes may read it where they share a folder."""
    if state.path is not None:
        return Path(state.path) / state.deployment_id / "output"
    assert home.directory is not None
    return home.directory / "output"


def words_directory(home: NodeHome) -> Path:
    """Where zygotes leave their last words."""
    assert home.directory is not None
    return home.directory / "zygotes"


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

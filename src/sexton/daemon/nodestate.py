"""Facts about a job that concern one node only, in a store that several share."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from sexton.model.job import ConcurrencyScope, JobSpec, RunOn
from sexton.store.port import JobHistory, JobState


class NodeState:
    """Implements `JobState`: under each key, what this node has put there. Its name and not its process counts: the
    next daemon of the same node goes on with it."""

    def __init__(self, store: JobState, node: str) -> None:
        self._store = store
        self._node = node

    async def get_state(self, job: str, key: str) -> str | None:
        return await self._store.get_state(job, self._own(key))

    async def states(self, key: str) -> Mapping[str, str]:
        return await self._store.states(self._own(key))

    async def put_state(self, job: str, key: str, value: str) -> None:
        await self._store.put_state(job, self._own(key), value)

    def _own(self, key: str) -> str:
        return own_key(key, self._node)


def own_key(key: str, node: str) -> str:
    """Under what a node's own fact is kept in the store."""
    return f"{key}@{node}"


def of_node(histories: Mapping[str, JobHistory], node: str) -> dict[str, JobHistory]:
    """What of the shared history is this node's own."""
    return {
        name: msgspec.structs.replace(
            history, runs=tuple(record for record in history.runs if record.launch.node == node))
        for name, history in histories.items()
    }


def is_fleet_wide(spec: JobSpec) -> bool:
    """Any node's run of the job is a run for all of them."""
    return spec.run_on is RunOn.ONE_NODE or spec.concurrency_scope is ConcurrencyScope.CLUSTER

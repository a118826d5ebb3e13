"""`pools`, and what jobs say of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from yaml import MappingNode, Node

from sexton.config.document import described
from sexton.config.mapping import fields, nearest, pairs
from sexton.config.reading import Reading, shown
from sexton.config.schema import MAX_NAME_CHARACTERS, POOL
from sexton.config.values import CONTROL
from sexton.model.job import ConcurrencyPolicy, JobSpec, Place
from sexton.model.pool import PoolSettings, PoolUse
from sexton.model.settings import Severity

_HINT = "write for example `pools: {backups: {slots: 2}}`"
_USE = {"pool": "name", "pool_slots": "slots", "queue_priority": "priority", "queue_timeout": "timeout"}
_ONLY_WITH_A_POOL = ("poolSlots", "queuePriority", "queueTimeout")


class PoolClaims:
    """The pools of all files, by name."""

    def __init__(self) -> None:
        self.pools: dict[str, PoolSettings] = {}
        self._places: dict[str, Place] = {}

    def read(self, reading: Reading, node: Node) -> None:
        """Take in the `pools` of one file; a name belongs to one pool."""
        if not isinstance(node, MappingNode):
            reading.error(node, f"`pools`: expected a map of pools, got {described(node)}", _HINT)
            return
        for name, key, value in pairs(reading, node):
            self._pool(reading, name, key, value)

    def _pool(self, reading: Reading, name: str, key: Node, node: Node) -> None:
        if not name or len(name) > MAX_NAME_CHARACTERS or CONTROL.search(name) or "/" in name:
            message = f"{shown(name)} cannot be the name of a pool"
            reading.error(key, message, f"1 to {MAX_NAME_CHARACTERS} characters, without / and control characters")
            return
        place = reading.place(key)
        first = self._places.setdefault(name, place)
        if first is not place:
            reading.error(key, f"pool {name!r} is defined a second time, first in {first}", "keep one of them")
            return
        if not isinstance(node, MappingNode):
            reading.error(node, f"pool {name!r}: expected a map with `slots`, got {described(node)}", _HINT)
            return
        values, nodes, _ = fields(reading, node, POOL)
        if "slots" not in nodes:
            reading.error(node, f"pool {name!r} has no `slots`", "how many slots its runs may hold, all together")
        if "slots" in values:
            self.pools[name] = PoolSettings(name=name, **values)

    def check(self, reading: Reading, jobs: Iterable[JobSpec], *, durable: bool) -> None:
        """What must fit between pools and jobs, when all files have been read."""
        for job in jobs:
            if job.pool is not None:
                self._check_job(reading, job, job.pool)
        if self.pools and not durable:
            name = next(iter(self.pools))
            message = "`pools` without `state`: what waits for a pool is lost when the daemon ends"
            reading.report(Severity.WARNING, self._places[name], message, "add `state: {path: ...}`")

    def _check_job(self, reading: Reading, job: JobSpec, use: PoolUse) -> None:
        pool = self.pools.get(use.name)
        if pool is None:
            if use.name in self._places:
                return  # it is there, and what is wrong with it has been said
            close = nearest(use.name, list(self.pools))
            hint = f"did you mean `{close}`?" if close else f"define it: `pools: {{{use.name}: {{slots: 1}}}}`"
            message = f"job {job.name!r}: there is no pool {shown(use.name)}"
            reading.report(Severity.ERROR, job.place, message, hint)
        elif use.slots > pool.slots:
            message = f"job {job.name!r} takes {use.slots} slots of pool {use.name!r}, which has {pool.slots}"
            hint = f"lower `poolSlots` to {pool.slots} at most, or give the pool more `slots`"
            reading.report(Severity.ERROR, job.place, message, hint)


def use_of(values: dict[str, Any]) -> PoolUse | None:
    """Take the four options of a pool out of a job's values; None for a job without a pool."""
    use = {field: values.pop(name) for name, field in _USE.items() if name in values}
    return PoolUse(**use) if use.get("name") is not None else None


def check_use(reading: Reading, spec: JobSpec, nodes: Mapping[str, Node]) -> None:
    """What of these options bounds nothing is an error where it stands in the job itself."""
    for key in _ONLY_WITH_A_POOL:
        if spec.pool is None and key in nodes:
            message = f"job {spec.name!r}: `{key}` means nothing without a pool"
            reading.error(nodes[key], message, "add `pool: NAME`, or remove it")
    if "maxInstances" in nodes and spec.max_instances is not None and (
        spec.concurrency_policy is not ConcurrencyPolicy.ALLOW
    ):
        policy = spec.concurrency_policy.value
        message = f"job {spec.name!r}: `maxInstances` bounds nothing with concurrencyPolicy {policy}"
        hint = "a Forbid or Replace job has one instance anyway; remove it, or set Allow"
        reading.error(nodes["maxInstances"], message, hint)

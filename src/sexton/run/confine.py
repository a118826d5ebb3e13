"""Limits and monitoring of a run, as its journey calls for them: before its start, when it is there, at its end."""

from __future__ import annotations

import logging
from typing import Any

from sexton.execution import limits
from sexton.execution.controllers import Controllers
from sexton.execution.held import HeldState
from sexton.execution.plan import identity_of
from sexton.execution.sampler import Sampler
from sexton.model.limits import Mechanism
from sexton.run.live import Run

logger = logging.getLogger("sexton.limits")


class Confining:
    """One for the daemon. A run without limits and monitoring passes through untouched."""

    def __init__(self, controllers: Controllers | None = None, sampler: Sampler | None = None) -> None:
        self._controllers = controllers or Controllers(None)
        self._sampler = sampler or Sampler(None)
        self._warned: set[tuple[str, str]] = set()

    def confine(self, run: Run) -> tuple[Any, ...] | None:
        """What its supervisor is to set up. Raises LimitsRefused, SpawnError."""
        job = run.job
        if job.resource_limits is None:
            return limits.request(None, job.monitor_resources is not None)
        identity = identity_of(job.user, job.group)
        try:
            run.limits = limits.intend(job.resource_limits, self._controllers, identity)
        except limits.LimitsRefused as refused:
            run.limits_refused = refused.why
            raise
        return limits.request(run.limits, job.monitor_resources is not None)

    def watch(self, run: Run) -> None:
        """It runs: say what could not be enforced, and begin to look at what it uses."""
        if run.job.resource_limits is not None:
            self._warn_once(run)
        held = run.held
        if run.job.monitor_resources is not None and held is not None and held.supervisor is not None:
            supervisor = held.supervisor
            run.watched = self._sampler.watch(
                run.id, supervisor.pid, supervisor.number if supervisor.in_cgroup else None, run.job.monitor_resources,
                lambda: held.state is HeldState.LIVE)

    def _warn_once(self, run: Run) -> None:
        facts = run.limit_facts()
        if facts is None or facts.enforced or facts.reason is None:
            return
        if (run.job.name, facts.reason) not in self._warned:
            self._warned.add((run.job.name, facts.reason))
            instead = [f"{name} by {mechanism.value}" for name, mechanism in facts.by.items()
                       if mechanism is Mechanism.RLIMIT]
            logger.warning(
                "Job %s: resource limits are not enforced as asked for (%s)%s; it runs all the same", run.job.name,
                facts.reason, f"; instead: {', '.join(instead)}" if instead else "",
            )

    def let_go(self, run: Run) -> None:
        """It is over: no further look; what a supervisor that was killed cannot remove any more is removed."""
        if run.watched is not None:
            self._sampler.forget(run.id)
        if run.limits is not None and run.swept and run.held is not None and run.held.supervisor is not None:
            self._controllers.clean(run.held.supervisor.number)

    def close(self) -> None:
        self._sampler.close()
        self._controllers.close()

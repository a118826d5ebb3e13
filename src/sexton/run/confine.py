"""Limits and monitoring of a run, as its journey calls for them: before its start, when it is there, at its end."""

from __future__ import annotations

import logging
from typing import Any

from sexton.execution import limits
from sexton.execution.adopted import Adopted
from sexton.execution.controllers import Controllers
from sexton.execution.held import Held, HeldState, WarmSupervisor
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
        if run.job.monitor_resources is None:
            return
        match run.held:
            case Held(supervisor=WarmSupervisor() as supervisor) as held:
                number = supervisor.number if supervisor.in_cgroup else None
                run.monitored = self._sampler.watch(
                    run.id, supervisor.pid, number, run.job.monitor_resources, lambda: held.state is HeldState.LIVE)
            case Adopted() as adopted if adopted.pid:
                run.monitored = self._sampler.watch(
                    run.id, adopted.pid, None, run.job.monitor_resources, lambda: not adopted.over)
            case _:
                pass  # nothing of it that could be looked at

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
        if run.monitored is not None:
            self._sampler.forget(run.id)
        held = run.held
        if run.limits is not None and run.swept and isinstance(held, Held) and held.supervisor is not None:
            self._controllers.clean(held.supervisor.number)

    def close(self) -> None:
        self._sampler.close()
        self._controllers.close()

"""What is left of a run of an earlier daemon: stopped, recorded, and not gone. It keeps its place here, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from sexton.execution import processes
from sexton.execution.birth import kernel
from sexton.execution.messages import Emptied
from sexton.model.clock import Clock
from sexton.model.job import ConcurrencyPolicy, JobSpec, WhenUnconfirmed
from sexton.model.run import Gone, GoneState, Outcome, Phase, RunRecord, Survivor, Witness
from sexton.run.live import Run
from sexton.store.port import JobHistory


class Remnant(Run):
    """A recorded run of which processes are alive that somebody meant to end. It was not started here and cannot be
    stopped here any more: it is watched, and can be abandoned."""

    def __init__(self, job: JobSpec, record: RunRecord, clock: Clock) -> None:
        super().__init__(job, record.launch, clock)
        self._written = record
        self.phase = Phase.RECORDED
        self.stop = record.stop
        self.unconfirmed = True
        for event in (self.intended, self.ended, self.recorded):
            event.set()
        self.emptied = Emptied(clock.monotonic(), False)
        self.left = record.gone.survivors if record.gone is not None else ()

    def look(self) -> None:
        """Whether anything of it is alive now; if not, its place is free."""
        self.left = self.survivors()
        if not self.left:
            self.learn(Emptied(self.clock.monotonic(), True))

    def survivors(self) -> tuple[Survivor, ...]:
        """Those that are alive still."""
        return tuple(survivor for survivor in self.left if is_alive(survivor))

    @property
    def pid(self) -> int | None:
        return self._written.pid if any(one.pid == self._written.pid for one in self.left) else None

    @property
    def proven_gone(self) -> bool:
        return self.emptied is not None and self.emptied.cgroup_empty is True

    def gone(self) -> Gone | None:
        if self.proven_gone:
            return Gone(state=GoneState.PROVEN, witnesses=(Witness.CRASH_SWEEP,))
        return Gone(state=GoneState.SURVIVORS, survivors=self.left)

    def record(self, phase: Phase | None = None) -> RunRecord:
        return replace(self._written, phase=phase or self._written.phase, stop=self.stop, gone=self.gone(),
                       abandoned=self.abandoned)


def is_alive(survivor: Survivor) -> bool:
    """Whether the process, and not a stranger with its pid, is there and is no zombie."""
    ticks = processes.start_ticks(survivor.pid)
    return ticks is not None and survivor.started_ticks in (None, ticks) and kernel.is_alive(survivor.pid)


def find_remnants(
    histories: Mapping[str, JobHistory], jobs: Iterable[JobSpec], boot_id: str, clock: Clock,
) -> list[Remnant]:
    """Of the jobs that keep places (whenUnconfirmed: hold, and a policy, a bound or a pool that looks at them): the
    recorded runs of this boot that were meant to be ended and were not seen gone. Of some of them nothing is alive any
    more: to be amended."""
    found = []
    for job in jobs:
        unbounded = job.concurrency_policy is ConcurrencyPolicy.ALLOW and job.max_instances is None
        if job.when_unconfirmed is WhenUnconfirmed.RELEASE or (unbounded and job.pool is None):
            continue
        for record in histories[job.name].runs if job.name in histories else ():
            if _may_live(record, boot_id):
                remnant = Remnant(job, record, clock)
                remnant.look()
                found.append(remnant)
    return found


def _may_live(record: RunRecord, boot_id: str) -> bool:
    meant_to_end = record.stop is not None or record.outcome is Outcome.UNKNOWN
    unproven = record.gone is not None and record.gone.state is not GoneState.PROVEN
    named = record.gone is not None and bool(record.gone.survivors)  # of the others nobody can ever tell
    return meant_to_end and unproven and named and not record.abandoned and record.launch.boot_id == boot_id

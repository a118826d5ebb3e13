"""What runs here, by id and by job: every run that is not yet recorded, or that is and keeps its place."""

from __future__ import annotations

from collections.abc import Iterator

from sexton.run.live import Run


class Registry:
    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._jobs: dict[str, dict[str, Run]] = {}

    def add(self, run: Run) -> None:
        self._runs[run.id] = run
        self._jobs.setdefault(run.job.name, {})[run.id] = run

    def remove(self, run: Run) -> None:
        self._runs.pop(run.id, None)
        of_job = self._jobs.get(run.job.name)
        if of_job is not None:
            of_job.pop(run.id, None)
            if not of_job:
                del self._jobs[run.job.name]

    def get(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def of(self, job: str) -> list[Run]:
        """All of the job, oldest first."""
        return list(self._jobs.get(job, {}).values())

    def running(self, job: str) -> list[Run]:
        """Those of them that count for the concurrency policy."""
        return [run for run in self._jobs.get(job, {}).values() if run.counts_as_running]

    def unconfirmed(self, job: str) -> list[Run]:
        """The job's runs that were stopped, are not proven gone, and keep their place."""
        return [run for run in self._jobs.get(job, {}).values() if run.unconfirmed]

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs.values()))

    def __len__(self) -> int:
        return len(self._runs)

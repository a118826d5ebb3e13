"""The ladders of attempts: one for each job at most, begun by a scheduled launch, climbed by failures.

A later scheduled launch ends it, and so do a success, a cancel and a Replace. A launch that the overlap policy refuses
leaves it as it is. What waits for its time is in the store; it is settled there before the retry is launched, so that
a crash loses an attempt rather than start one twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import assert_never

import msgspec

from sexton.admission.decide import Refusal, Refuse
from sexton.model.clock import Clock
from sexton.model.errors import StoreError
from sexton.model.job import JobSpec
from sexton.model.retry import PendingRetry, RetryState
from sexton.model.run import Launch, Outcome, RunRecord, Trigger
from sexton.outcome.retry import FOREVER, Fate, another, delay_before, failed_of
from sexton.run.identity import definition_of
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.store.port import JobState

logger = logging.getLogger("sexton.retry")

KEY = "retry"
WRITE_SECONDS = 2.0
"""How long a retry waits for a store that hangs before it is launched all the same (degrade) or put off."""
WRITE_AGAIN_SECONDS = 5.0
AGAIN_SECONDS = 1.0
UNANSWERED_SECONDS = 10.0
"""After a store that did not say whether the job's slot is free."""


class Ladder:
    """The attempts for one occurrence of one job."""

    __slots__ = ("began", "launch", "pending", "retries", "timer")

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.began = launch.created_at
        self.retries = 0
        self.pending: PendingRetry | None = None
        self.timer: asyncio.TimerHandle | None = None


def _concerns(ladder: Ladder, launch: Launch) -> bool:
    """Of an Allow job older runs may end after a newer occurrence has begun its own ladder: not its concern."""
    return launch.trigger is Trigger.MANUAL or launch.scheduled_for == ladder.launch.scheduled_for


class Retries:
    def __init__(
        self, launcher: Launcher, state: JobState, clock: Clock, job_named: Callable[[str], JobSpec | None],
        *, durable: bool, fail_closed: bool, seconds_paused: Callable[[str], float] = lambda job: 0.0,
    ) -> None:
        self._launcher = launcher
        self._state = state
        self._clock = clock
        self._job_named = job_named
        self._durable = durable
        self._fail_closed = fail_closed
        self._seconds_paused = seconds_paused
        self._ladders: dict[str, Ladder] = {}
        self._loop = asyncio.get_running_loop()
        self._writes: dict[str, asyncio.Task[None]] = {}
        self._unwritten: dict[str, RetryState] = {}
        """What the store should say of a job and does not yet, as far as we know."""
        self.count: dict[str, int] = {}
        """Retries launched, by job."""

    def pending(self, job: str) -> PendingRetry | None:
        ladder = self._ladders.get(job)
        return ladder.pending if ladder is not None else None

    def look(self, job: str) -> None:
        """A pause of the job was ended, or ends at another time now: a retry that waits for that waits anew."""
        ladder = self._ladders.get(job)
        if ladder is None or ladder.pending is None or self._launcher.shutting_down:
            return
        if ladder.timer is not None:
            ladder.timer.cancel()
        self._wait_for(job, ladder, ladder.pending)

    def _wait_for(self, job: str, ladder: Ladder, pending: PendingRetry) -> float:
        """Make it due at its instant, or now if that has passed. Returns in how many seconds."""
        left = max(0.0, (pending.not_before - self._clock.now()).total_seconds())
        ladder.timer = self._loop.call_later(left, self._due, job, ladder)
        return left

    # ---------------------------------------------------------------- what happens to runs

    def launched(self, run: Run) -> None:
        """A run was let in. A scheduled one begins a new ladder; one that was started by hand climbs the old one. An
        attempt of an earlier daemon, which has outlived it, brings its ladder along."""
        policy, name = run.job.retry, run.job.name
        match run.launch.trigger:
            case Trigger.RETRY:
                if name in self._ladders or policy is None:
                    return
            case Trigger.MANUAL:
                if name in self._ladders or policy is None or not policy.manual:
                    return
            case Trigger.SCHEDULE | Trigger.REBOOT:
                self._end(name, "superseded")
                if policy is None:
                    return
            case Trigger.CATCHUP:
                return  # what is made up for has no ladder
            case _:
                assert_never(run.launch.trigger)
        self._ladders[name] = Ladder(run.launch)
        self._ladders[name].retries = run.launch.attempt - 1

    def recorded(self, run: Run, record: RunRecord) -> Fate:
        """Decide what follows, and arrange for it."""
        name = run.job.name
        failed = failed_of(record)
        ladder = self._ladders.get(name)
        if failed is None:
            if ladder is not None and self._is_its_end(ladder, record):
                self._end(name, record.outcome.value if record.outcome is not None else "ended")
            return Fate.FINE
        if ladder is None or not _concerns(ladder, run.launch):
            return Fate.FINAL
        if self._launcher.shutting_down and not self._durable:
            return Fate.FINAL  # else it failed by itself, and the next daemon goes on with it
        if ladder.pending is not None:
            return Fate.RETRY  # beside another that has failed already: the retry that waits is for both
        policy = run.job.retry
        elapsed = (self._clock.now() - ladder.began).total_seconds()
        delay = delay_before(policy, ladder.retries + 1, random.random()) if policy is not None else 0.0
        if policy is None or not another(policy, failed, ladder.retries, delay, elapsed):
            self._end(name, "exhausted")
            return Fate.FINAL
        self._arm(run.job, ladder, delay, record.launch.id)
        return Fate.RETRY

    def refused(self, run: Run) -> None:
        """The cluster did not let an attempt in. Where its store does not answer it is tried again; where another node
        has the slot it is lost, as one that the local policy refuses."""
        ladder = self._ladders.get(run.job.name)
        if ladder is None or run.launch.trigger is not Trigger.RETRY or run.refusal is None:
            return
        if run.refusal.refusal is Refusal.SLOT_UNKNOWN:
            ladder.retries -= 1
            self._arm(run.job, ladder, UNANSWERED_SECONDS, run.id)
        else:
            logger.warning("Job %s: retry #%d is lost: %s", run.job.name, ladder.retries, run.refusal.message)

    def _is_its_end(self, ladder: Ladder, record: RunRecord) -> bool:
        """A run that was replaced has a successor, which has begun a ladder of its own if it was due to."""
        if record.outcome is Outcome.SKIPPED and record.launch.trigger is Trigger.MANUAL:
            return False  # it was never launched
        at_the_end = record.outcome is Outcome.CANCELLED and self._launcher.shutting_down
        return _concerns(ladder, record.launch) and not at_the_end

    def _arm(self, job: JobSpec, ladder: Ladder, delay: float, after: str) -> None:
        ladder.retries += 1
        if ladder.timer is not None:
            ladder.timer.cancel()
        ladder.pending = PendingRetry(
            attempt=ladder.retries + 1, not_before=self._clock.now() + timedelta(seconds=delay), delay=delay,
            occurrence=ladder.launch.scheduled_for, began_at=ladder.began, after=after, definition=definition_of(job),
        )
        most = "" if job.retry is None or job.retry.maximum_retries == FOREVER else f" of {job.retry.maximum_retries}"
        logger.info("Job %s: retry #%d%s in %.3g seconds (run %s failed)", job.name, ladder.retries, most, delay, after)
        self._write(job.name, RetryState(pending=ladder.pending))
        ladder.timer = self._loop.call_later(delay, self._due, job.name, ladder)

    def _end(self, job: str, why: str) -> None:
        ladder = self._ladders.pop(job, None)
        if ladder is None:
            return
        if ladder.timer is not None:
            ladder.timer.cancel()
        if ladder.pending is not None:
            logger.info("Job %s: the pending retry #%d is given up: %s", job, ladder.retries, why)
            ladder.pending = None
        if ladder.retries:
            self._write(job, RetryState(settled=why))

    # ---------------------------------------------------------------- launching

    def _due(self, job: str, ladder: Ladder) -> None:
        self._launcher.background.begin(self._retry(job, ladder))

    async def _retry(self, job: str, ladder: Ladder) -> None:
        """Settle, then launch: a crash in between loses the attempt, and never starts it twice."""
        pending = ladder.pending
        if (paused := self._seconds_paused(job)) > 0:
            ladder.timer = self._loop.call_later(max(paused, AGAIN_SECONDS), self._due, job, ladder)
            return
        if pending is None or self._ladders.get(job) is not ladder or self._launcher.shutting_down:
            return
        spec = self._job_named(job)
        if spec is None or not spec.enabled or spec.retry is None:
            self._end(job, "the job is not there any more, is disabled, or has no retries now")
            return
        if self._durable and not await self._settle(job, f"launching attempt {pending.attempt}"):
            ladder.timer = self._loop.call_later(AGAIN_SECONDS, self._due, job, ladder)
            return
        if self._ladders.get(job) is not ladder or ladder.pending is not pending:
            return  # ended meanwhile
        ladder.pending = None
        await self._launcher.facilities.supervisors.settle()
        answer = self._launcher.launch(
            spec, Trigger.RETRY, scheduled_for=pending.occurrence, attempt=pending.attempt)
        if not isinstance(answer, Refuse):
            self.count[job] = self.count.get(job, 0) + 1
        elif answer.refusal is Refusal.SHUTTING_DOWN:
            self._write(job, RetryState(pending=pending))  # the end began while it was settled: the next daemon's
        else:
            logger.warning("Job %s: retry #%d is lost: %s", job, ladder.retries, answer.message)

    async def _settle(self, job: str, why: str) -> bool:
        """Whether the retry may be launched."""
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._write(job, RetryState(settled=why))
            return True
        except (StoreError, TimeoutError) as failure:
            logger.error("Job %s: a retry cannot be settled in the store (%s); %s", job, failure or "no answer",
                         "it is put off" if self._fail_closed else "it is launched all the same")
            if self._fail_closed:
                self._unwritten.pop(job, None)  # it waits still
        return not self._fail_closed

    # ---------------------------------------------------------------- the store

    def _write(self, job: str, state: RetryState) -> asyncio.Future[None]:
        """In the order of the calls. Nobody need wait for it; a failure is logged."""
        if not self._durable:
            done: asyncio.Future[None] = self._loop.create_future()
            done.set_result(None)
            return done
        self._unwritten[job] = state
        task = self._loop.create_task(self._put(job, state, self._writes.get(job)))
        self._writes[job] = task
        task.add_done_callback(lambda done: self._written(job, state, done))
        return task

    async def _put(self, job: str, state: RetryState, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        await self._state.put_state(job, KEY, msgspec.json.encode(state).decode())

    def _written(self, job: str, state: RetryState, task: asyncio.Task[None]) -> None:
        if self._writes.get(job) is task:
            del self._writes[job]
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._launcher.facilities.counters.store_failures += 1
            logger.error("Job %s: the state of its retries could not be written: %s", job, failure)
        elif not task.cancelled():
            if self._unwritten.get(job) is state:
                del self._unwritten[job]
            return
        if self._unwritten.get(job) is state:  # or a later daemon would make a retry that was made, or lose one
            self._loop.call_later(WRITE_AGAIN_SECONDS, self._write_again, job, state)

    def _write_again(self, job: str, state: RetryState) -> None:
        if self._unwritten.get(job) is state and job not in self._writes:
            self._write(job, state)

    async def take_up(self, jobs: Mapping[str, JobSpec]) -> None:
        """At the start: arm what an earlier daemon has left pending. A changed job begins anew."""
        for name, text in (await self._kept()).items():
            spec, pending = jobs.get(name), _pending_in(name, text)
            if pending is None:
                continue
            if spec is None or spec.retry is None or not spec.enabled or pending.definition != definition_of(spec):
                logger.warning("Job %s: the retry that was pending is given up: the job was %s", name,
                               "removed" if spec is None else "changed")
                self._write(name, RetryState(settled="job-changed"))
                continue
            ladder = Ladder(Launch(
                id=pending.after, job=name, trigger=Trigger.SCHEDULE, node=self._launcher.node,
                scheduled_for=pending.occurrence, created_at=pending.began_at))
            ladder.retries, ladder.pending = pending.attempt - 1, pending
            self._ladders[name] = ladder
            left = self._wait_for(name, ladder, pending)
            logger.info("Job %s: retry #%d, pending since before the restart, in %.3g seconds", name, ladder.retries,
                        left)

    async def _kept(self) -> Mapping[str, str]:
        if not self._durable:
            return {}
        try:
            return await self._state.states(KEY)
        except StoreError as failure:
            logger.error("whether retries were pending cannot be read: %s", failure)
            return {}

    async def close(self) -> None:
        """Timers end, what is pending stays in the store for the next daemon."""
        for ladder in self._ladders.values():
            if ladder.timer is not None:
                ladder.timer.cancel()
        for job, state in list(self._unwritten.items()):
            self._write_again(job, state)
        if self._writes:
            await asyncio.wait(list(self._writes.values()), timeout=WRITE_SECONDS)


def _pending_in(job: str, text: str) -> PendingRetry | None:
    try:
        return msgspec.json.decode(text, type=RetryState).pending
    except msgspec.MsgspecError as failure:
        logger.error("Job %s: whether a retry was pending cannot be read: %s", job, failure)
        return None

"""Making up for occurrences that nobody fired (`onMissed`): because no daemon was there, or the machine slept.

Up to which instant occurrences were decided is kept in the store, each minute and at the end. What is owed after that
is made up for one run at a time, beside the schedule, which goes on. What is left to do is in the store, too: written
before each launch, so that a crash in the middle goes on where it was, and repeats only the run that it interrupted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from sexton.admission.decide import Refuse
from sexton.daemon.jitter import share
from sexton.daemon.jobs import JobEntry, Jobs
from sexton.daemon.pauses import Pauses
from sexton.daemon.timetable import occurrences_for
from sexton.model.clock import Clock
from sexton.model.errors import StoreError
from sexton.model.job import JobSpec, OnMissed, RunOn
from sexton.model.run import Launch, Outcome, RunRecord, Trigger
from sexton.run.entrance import may_come_later
from sexton.run.launch import Launcher
from sexton.schedule.agenda import Skipped
from sexton.schedule.missed import Owed, owed_since
from sexton.store.port import JobHistory, JobState

if TYPE_CHECKING:
    from sexton.daemon.onefire import OneFire

logger = logging.getLogger("sexton.catchup")

DECIDED, OWED = "decided-until", "catchup"
NO_JOB = ""
"""Under which the store keeps what concerns all jobs; no job has this name."""
NOTE_SECONDS = 60.0
READ_AGAIN_SECONDS = 5.0
"""After which a store that could not tell what was missed is asked again."""
CLUSTER_LOOK_SECONDS = 5.0
"""How long until a missed run is tried again whose slot another node has."""


class CatchUp:
    def __init__(
        self, jobs: Jobs, launcher: Launcher, pauses: Pauses, state: JobState, clock: Clock, *, durable: bool,
    ) -> None:
        self._jobs = jobs
        self._launcher = launcher
        self._pauses = pauses
        self._state = state
        self._clock = clock
        self._durable = durable
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._owed: dict[str, list[datetime]] = {}
        """By job: what is still to be made up for."""
        self._taken_over: dict[str, list[Launch]] = {}
        self._reading: asyncio.Task[None] | None = None
        """While it is not known yet what was missed before the start."""
        self._until = clock.now()
        self.one_fire: OneFire | None = None
        self.launched = 0
        self.given_up = 0

    # ---------------------------------------------------------------- what is owed

    async def start(
        self, histories: Mapping[str, JobHistory], interrupted: Iterable[RunRecord], until: datetime,
        taken_over: Iterable[Launch] = (),
    ) -> None:
        """At the start of the daemon: find what was missed since the last one, and begin. After `until` the schedule
        fires by itself: that instant must be the agenda's, or what lies in between would be fired twice. `taken_over`
        has outlived the last daemon; it may be recorded by now, after `histories` were read."""
        self._until = until
        for launch in taken_over:
            self._taken_over.setdefault(launch.job, []).append(launch)
        interrupted = list(interrupted)
        if not self._durable or await self._find_owed(histories, interrupted):
            return
        self._reading = asyncio.get_running_loop().create_task(self._read_again(histories, interrupted))

    async def _read_again(self, histories: Mapping[str, JobHistory], interrupted: Sequence[RunRecord]) -> None:
        """A store that cannot be read now costs time, not runs. Until it can, nothing is noted as decided."""
        while True:
            await asyncio.sleep(READ_AGAIN_SECONDS)
            if await self._find_owed(histories, interrupted):
                self._reading = None
                return

    async def _find_owed(self, histories: Mapping[str, JobHistory], interrupted: Sequence[RunRecord]) -> bool:
        """Whether the store has told what is needed."""
        wanted = [entry for entry in self._jobs if entry.spec.on_missed is not OnMissed.SKIP and entry.spec.enabled]
        if not wanted:
            return True
        try:
            left = await self._state.states(OWED)
            told = await self._state.get_state(NO_JOB, DECIDED)
        except StoreError as failure:
            self._launcher.facilities.counters.store_failures += 1
            logger.error("what was missed cannot be read, and is looked for again in %g seconds: %s",
                         READ_AGAIN_SECONDS, failure)
            return False
        broken: dict[str, list[datetime]] = {}
        for record in interrupted:
            if record.launch.scheduled_for is not None:
                broken.setdefault(record.launch.job, []).append(record.launch.scheduled_for)
        decided = datetime.fromisoformat(told) if told else None
        for entry in wanted:
            name = entry.spec.name
            history = histories.get(name, JobHistory())
            owed = self._missed(entry.spec, history, decided, broken.get(name, []))
            noted = set(_decoded(name, left.get(name))) - self._made_up_for(name, history)
            self._begin(entry, sorted({*owed.occurrences, *self._owed.get(name, ()), *noted}), owed)
        return True

    def _made_up_for(self, name: str, history: JobHistory) -> set[datetime | None]:
        """Occurrences that a crash has left noted as owed, although their runs have ended, or live on."""
        ended = [run.launch for run in history.runs if run.outcome not in (Outcome.UNKNOWN, Outcome.SKIPPED)]
        return {launch.scheduled_for for launch in (*ended, *self._here(name))}

    def _here(self, name: str) -> list[Launch]:
        """What goes on of an earlier daemon, waits on, or has ended since we began."""
        live = [run.launch for run in self._launcher.facilities.registry.of(name)]
        return [*self._taken_over.get(name, ()), *live]

    def _missed(
        self, spec: JobSpec, history: JobHistory, decided: datetime | None, interrupted: list[datetime],
    ) -> Owed:
        """A job that never ran owes nothing."""
        schedule = occurrences_for(spec)
        done = [run for run in history.runs if run.outcome is not Outcome.UNKNOWN]
        ended = [run.finished_at for run in done if run.finished_at is not None]
        if schedule is None or not (ended or interrupted):
            return Owed()
        here = self._here(spec.name)
        by_schedule = [launch.scheduled_for for launch in (*(run.launch for run in history.runs), *here)
                       if launch.trigger is Trigger.SCHEDULE and launch.scheduled_for is not None
                       and launch.scheduled_for <= self._until]  # a later one is the agenda's: it decides nothing here
        since = decided or max(ended, default=min(interrupted, default=self._clock.now()))
        since = max([since, *by_schedule])  # the schedule goes forward: all before the last that it fired was decided
        begun = (*(run.launch for run in done), *here)
        fired = [launch.scheduled_for for launch in begun if launch.scheduled_for is not None]
        return owed_since(
            schedule, since, self._until, spec.on_missed, spec.starting_deadline,
            self._pauses.last(spec.name), interrupted, fired,
        )

    def fell_behind(self, skipped: Skipped) -> bool:
        """A pass came too late for these (a suspended machine, a clock that was set): whether they are made up for."""
        entry = self._jobs.get(skipped.job)
        if entry is None or entry.spec.on_missed is OnMissed.SKIP:
            return False
        schedule = occurrences_for(entry.spec)
        if schedule is None:
            return False
        owed = owed_since(
            schedule, skipped.first - timedelta(seconds=1), skipped.last, entry.spec.on_missed,
            entry.spec.starting_deadline, self._pauses.last(skipped.job),
        )
        self._begin(entry, sorted({*self._owed.get(skipped.job, ()), *owed.occurrences}), owed)
        return True

    # ---------------------------------------------------------------- making up for it

    def _begin(self, entry: JobEntry, occurrences: list[datetime], owed: Owed) -> None:
        name = entry.spec.name
        if owed.given_up:
            self.given_up += owed.given_up
            count = f"{owed.given_up}" if owed.exact else f"at least {owed.given_up}"
            reason = "missed, and too old or too many to make up for"
            logger.warning("Job %s: %s occurrence(s) are given up: %s", name, count, reason)
            entry.skip(self._clock.now(), reason, None, owed.given_up)
        if not occurrences:
            return
        logger.info("Job %s: %d missed occurrence(s) are made up for, from %s to %s (onMissed %s)", name,
                    len(occurrences), occurrences[0].isoformat(), occurrences[-1].isoformat(),
                    entry.spec.on_missed.value)
        self._owed[name] = occurrences
        if name not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._make_up(name))
            self._tasks[name] = task
            task.add_done_callback(lambda _: self._tasks.pop(name, None))
        else:
            self._launcher.background.begin(self._note(name))  # the task that is at work may not come to it for long

    async def _make_up(self, name: str) -> None:
        """One run at a time: the next one when the job is idle. First it is noted: a crash while we wait (for the
        jitter, the end of a pause, a run) must not lose what the watermark has passed."""
        await self._note(name)
        entry = self._jobs.get(name)
        if entry is not None and entry.spec.catchup_jitter:
            await asyncio.sleep(share(name) * entry.spec.catchup_jitter)
        while not self._launcher.shutting_down:
            if not self._owed.get(name):
                self._owed.pop(name, None)
                await self._note(name)
                if not self._owed.get(name):  # more may have been missed meanwhile
                    return
            await self._idle(name)
            entry = self._jobs.get(name)
            if entry is None or not entry.spec.enabled or entry.spec.on_missed is OnMissed.SKIP:
                logger.warning("Job %s: what was missed is given up: it is not there any more, or disabled", name)
                self._owed.pop(name)
            elif self._pauses.of(name) is not None:
                await self._pauses.end_or_change(name)
            elif self._owed.get(name) and not self._launcher.shutting_down:
                await self._one(entry, self._owed[name][0])

    async def _one(self, entry: JobEntry, occurrence: datetime) -> None:
        """It is owed until the ledger knows of its run: a crash before that makes up for it again, and one after it
        finds the run, done or interrupted."""
        name = entry.spec.name
        one_fire = self.one_fire if entry.spec.run_on is RunOn.ONE_NODE else None
        if one_fire is not None and not await one_fire.is_ours(entry, occurrence):
            await self._no_longer_owed(name, occurrence)
            return
        answer = self._launcher.launch(entry.spec, Trigger.CATCHUP, scheduled_for=occurrence)
        if isinstance(answer, Refuse):
            entry.skip(self._clock.now(), answer.message, occurrence)
            logger.warning("Job %s: the missed run of %s is skipped: %s", name, occurrence.isoformat(),
                           answer.message)
            await self._no_longer_owed(name, occurrence)
            return
        await answer.intended.wait()
        if not may_come_later(answer.refusal):
            await self._no_longer_owed(name, occurrence)
        await answer.recorded.wait()
        if not may_come_later(answer.refusal):
            self.launched += 1
        elif not self._launcher.shutting_down:
            owed = self._owed.setdefault(name, [])
            if occurrence not in owed:  # another node's run passes, a store too
                owed.insert(0, occurrence)
            await asyncio.sleep(CLUSTER_LOOK_SECONDS)

    async def _no_longer_owed(self, name: str, occurrence: datetime) -> None:
        self._owed[name] = [other for other in self._owed.get(name, []) if other != occurrence]
        await self._note(name)

    async def _idle(self, name: str) -> None:
        for run in self._launcher.facilities.registry.of(name):
            await run.freed.wait()

    # ---------------------------------------------------------------- the store

    async def _note(self, name: str) -> None:
        if not self._durable:
            return
        try:
            await self._state.put_state(name, OWED, msgspec.json.encode(self._owed.get(name, [])).decode())
        except StoreError as failure:
            self._launcher.facilities.counters.store_failures += 1
            logger.error("Job %s: what is left to make up for cannot be noted: %s", name, failure)

    async def keep_noting(self) -> None:
        """Each minute: up to here every occurrence was decided by a living daemon."""
        while True:
            await self.note_decided()
            await asyncio.sleep(NOTE_SECONDS)

    async def note_decided(self) -> None:
        """Only where somebody will ask for it."""
        if not self._durable or self._reading is not None:
            return
        if all(entry.spec.on_missed is OnMissed.SKIP for entry in self._jobs):
            return
        try:
            await self._state.put_state(NO_JOB, DECIDED, self._clock.now().isoformat())
        except StoreError as failure:
            self._launcher.facilities.counters.store_failures += 1
            logger.error("up to when occurrences were decided cannot be noted: %s", failure)

    def close(self) -> None:
        """What is left to do is in the store."""
        for task in self._tasks.values():
            task.cancel()
        if self._reading is not None:
            self._reading.cancel()


def _decoded(job: str, text: str | None) -> list[datetime]:
    try:
        return msgspec.json.decode(text, type=list[datetime]) if text else []
    except msgspec.MsgspecError as failure:
        logger.error("Job %s: what was left to make up for cannot be read: %s", job, failure)
        return []

"""Which jobs are paused: bounded in time, durable where there is a store, with who and why."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

import msgspec

from sexton.model.clock import Clock
from sexton.model.errors import StoreError
from sexton.model.pause import Pause
from sexton.store.port import JobState

logger = logging.getLogger("sexton.schedule")

KEY = "pause"
LOOK_SECONDS = 60.0
"""The wall clock may be set while the end of a pause is waited for."""


class Told(Pause, frozen=True, kw_only=True):
    """As the store keeps it."""

    told_at: datetime | None = None
    """When somebody said so; the earliest versions did not keep that."""


def is_newer(text: str, than: str) -> bool:
    """Of two that stores keep for a job: whether the first was said later. One that cannot be read is the older."""
    return _said_at(text) > _said_at(than)


def _said_at(text: str) -> datetime:
    try:
        told = msgspec.json.decode(text, type=Told)
    except msgspec.MsgspecError:
        return datetime.min.replace(tzinfo=UTC)
    return told.told_at or told.since


class Pauses:
    def __init__(self, state: JobState, clock: Clock, *, durable: bool) -> None:
        self._state = state
        self._clock = clock
        self._durable = durable
        self._pauses: dict[str, Pause] = {}
        self._changed = asyncio.Event()

    def of(self, job: str) -> Pause | None:
        """The pause that holds now; None for a job that is not paused."""
        pause = self._pauses.get(job)
        return pause if pause is not None and self._clock.now() < pause.until else None

    def last(self, job: str) -> Pause | None:
        """The latest one, also when it is over: occurrences within it are not owed."""
        return self._pauses.get(job)

    def seconds_left(self, job: str) -> float:
        """0 for a job that is not paused."""
        pause = self.of(job)
        return 0.0 if pause is None else (pause.until - self._clock.now()).total_seconds()

    async def end_or_change(self, job: str) -> None:
        """Until the pause of the job may be over: its time has come, or somebody has paused or resumed a job."""
        try:
            async with asyncio.timeout(min(LOOK_SECONDS, self.seconds_left(job))):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def pause(self, job: str, until: datetime, note: str | None, by: str | None) -> Pause:
        """Hold the job's schedule until then. Raises StoreError when that could not be made durable; then nothing has
        changed."""
        before = self.of(job)
        pause = Pause(since=before.since if before else self._clock.now(), until=until, note=note, by=by)
        await self._put(job, pause)
        self._pauses[job] = pause
        self._tell()
        logger.info("Job %s: paused until %s%s%s", job, until.isoformat(timespec="seconds"), f" by {by}" if by else "",
                    f": {note}" if note else "")
        return pause

    async def resume(self, job: str, by: str | None) -> None:
        """End the pause. Raises StoreError."""
        pause = self.of(job)
        if pause is None:
            return
        ended = msgspec.structs.replace(pause, until=self._clock.now())
        await self._put(job, ended)
        self._pauses[job] = ended
        self._tell()
        logger.info("Job %s: resumed%s", job, f" by {by}" if by else "")

    async def _put(self, job: str, pause: Pause) -> None:
        if self._durable:
            told = Told(since=pause.since, until=pause.until, note=pause.note, by=pause.by, told_at=self._clock.now())
            await self._state.put_state(job, KEY, msgspec.json.encode(told).decode())

    async def recall(self) -> None:
        """What an earlier daemon was told."""
        if not self._durable:
            return
        try:
            told = await self._state.states(KEY)
        except StoreError as failure:
            logger.error("which jobs are paused cannot be read: %s", failure)
            return
        for job, text in told.items():
            try:
                self._pauses[job] = msgspec.json.decode(text, type=Pause)
            except msgspec.MsgspecError as failure:
                logger.error("Job %s: whether it is paused cannot be read: %s", job, failure)

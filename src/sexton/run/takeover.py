"""Finding the runs that outlived the daemon before us (`onDaemonLoss: keep`); `adoption` lives on with them.

What may be found: a supervisor at its socket; the story that it left in a file, of a run that ended while nobody was
there; a supervisor that we cannot talk to, whose run is then watched and left alone; or nothing, and then the run is
interrupted like any other (`recovery`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from sexton.execution import processes
from sexton.execution.adopted import Adopted, Meeting, approach
from sexton.execution.birth import kernel
from sexton.execution.keeping import KeptLog, KeptRuns, read_terms
from sexton.execution.story import Story, StoryError, read_story
from sexton.model.errors import StoreError
from sexton.model.run import Launch, Outcome, Phase, RunRecord
from sexton.store.port import Ledger

logger = logging.getLogger("sexton.recovery")

REAPPEAR_SECONDS = 3.0
"""A supervisor whose socket was deleted makes another within a second."""
REAPPEAR_LOOK_SECONDS = 0.1


class Found(msgspec.Struct, frozen=True):
    """One kept run: the supervisor at its socket or the file with its story, or the pid of one that does not talk."""

    launch: Launch
    record: RunRecord | None
    story: Story | None = None
    meeting: Meeting | None = None
    file: Path | None = None
    silent_pid: int = 0
    why: str = ""
    try_again: bool = False
    """It may answer later."""


async def find_kept(
    ledger: Ledger, kept: KeptRuns, is_ours: Callable[[RunRecord], bool] = lambda run: True,
) -> list[Found]:
    """All kept runs of this node that are not recorded. What is left of recorded ones is cleared away."""
    unfinished = {record.launch.id: record for record in await ledger.unfinished() if is_ours(record)}
    try:
        names = await asyncio.to_thread(kept.names)
    except OSError as failure:
        logger.error("runs that outlive the daemon cannot be found or kept in %s: %s", kept.directory, failure)
        return []
    names |= {run_id for run_id, record in unfinished.items() if record.launch.keep}
    answers = await asyncio.gather(*(_find(ledger, kept, run_id, unfinished.get(run_id)) for run_id in sorted(names)))
    return [found for found in answers if found is not None]


async def _find(ledger: Ledger, kept: KeptRuns, run_id: str, record: RunRecord | None) -> Found | None:
    try:
        record = record or await ledger.get(run_id)
    except StoreError as failure:
        logger.error("run %s: the ledger does not say whether it is recorded: %s", run_id, failure)
        return None
    found = await asyncio.to_thread(look, kept, run_id, record)
    if found is None:
        kept.clear(run_id)
        return None
    settled = record is not None and record.phase is Phase.RECORDED
    if settled and record is not None and record.outcome is Outcome.UNKNOWN and found.meeting is not None:
        return found  # another node has settled it while nobody was here; it lives, and its own record will say more
    if settled:  # the daemon died before it could say so
        _dismiss(kept, found)
        return None
    return found


def look(
    kept: KeptRuns, run_id: str, record: RunRecord | None, patience: float = REAPPEAR_SECONDS,
) -> Found | None:
    """Blocking, bounded. The file comes after the socket: a supervisor that we met may have left it in between."""
    limit = time.monotonic() + patience
    while True:
        meeting = approach(kept.directory, run_id)
        if meeting is not None:
            return _understand(meeting.told, record, meeting=meeting)
        path = kept.story_path(run_id)
        try:
            return _understand(path.read_bytes(), record, file=path)
        except FileNotFoundError:
            pass
        except OSError as failure:
            logger.error("run %s: %s cannot be read: %s", run_id, path, failure)
        keeper = _keeper_of(record)
        if not keeper or record is None:
            return None
        if time.monotonic() >= limit:
            why = "its supervisor is not at its socket"
            return Found(record.launch, record, silent_pid=keeper, why=why, try_again=True)
        time.sleep(REAPPEAR_LOOK_SECONDS)


def _keeper_of(record: RunRecord | None) -> int:
    """The living supervisor of a run whose own process is still there; 0 for none."""
    if record is None or record.pid is None or record.launch.boot_id != processes.boot_id():
        return 0
    if not processes.started_then(record.pid, record.pid_started_ticks):
        return 0
    parent = kernel.parent_of(record.pid)
    return parent if processes.is_keeper(parent) else 0


def _understand(
    told: bytes, record: RunRecord | None, *, meeting: Meeting | None = None, file: Path | None = None,
) -> Found | None:
    """What was said. Of a supervisor that cannot be understood we hang up, so that it goes on alone."""
    try:
        if not told:
            raise StoryError("it does not answer")
        story = read_story(told)
        launch = record.launch if record is not None else read_terms(story.terms).launch
        return Found(launch, record, story, meeting, file)
    except (StoryError, msgspec.MsgspecError) as failure:
        why = str(failure)
    if meeting is not None:
        meeting.connection.close()
    if record is None:
        logger.error("a run that no ledger knows was kept, and cannot be understood: %s", why)
        return None
    pid = meeting.pid if meeting is not None else 0
    if file is not None:
        file.replace(file.with_suffix(".unread"))
        logger.error("run %s: what its supervisor has left cannot be understood (%s); it is kept as %s",
                     record.launch.id, why, file.with_suffix(".unread"))
        return None
    return Found(record.launch, record, silent_pid=pid, why=why, try_again=not told)


def _dismiss(kept: KeptRuns, found: Found) -> None:
    if found.meeting is not None and found.story is not None:
        Adopted(found.meeting, found.story, KeptLog(found.launch.id), lambda _: None).forget()
    kept.clear(found.launch.id)

"""Living on with a run that outlived the daemon before us: what was found of it becomes a run like any other."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from sexton.execution.adopted import Adopted, Told, Watched, alone_in
from sexton.execution.capture import Capture
from sexton.execution.keeping import STREAMS, KeptLog, KeptRuns, read_terms
from sexton.execution.messages import Started, SupervisorLost, Swept
from sexton.execution.story import Story
from sexton.model.clock import Clock, Monotonic
from sexton.model.job import JobSpec, Place
from sexton.model.run import Phase, Stop, StopCause, Survivor, Witness
from sexton.run.launch import Launcher
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.run.takeover import Found, look

logger = logging.getLogger("sexton.recovery")

WATCH_SECONDS = 1.0


def take_over(found: list[Found], launcher: Launcher, kept: KeptRuns, jobs: dict[str, JobSpec]) -> None:
    """Register the runs, before anything is launched, and let them live. `jobs` are those of the configuration."""
    for one in found:
        run = _run_of(one, launcher.facilities.clock, jobs)
        if one.story is not None:
            for message in one.story.messages(partial(alone_in, one.story), _shift(one, launcher)):
                run.learn(message)
            run.stop = _stop_of(run, one.story, _shift(one, launcher)) or run.stop
            _take_hold(run, one, launcher, kept)
        else:
            _watch(run, one)
            launcher.background.begin(_until_it_can_be_heard(run, one, launcher, kept))
        launcher.go_on(run)


def _run_of(found: Found, clock: Clock, jobs: dict[str, JobSpec]) -> Run:
    job, limits = jobs.get(found.launch.job), None
    if found.story is not None:
        try:
            terms = read_terms(found.story.terms)
            job, limits = terms.job, terms.limits
        except msgspec.MsgspecError as failure:
            logger.error("run %s: its terms cannot be read (%s); those of the configuration hold", found.launch.id,
                         failure)
    if job is None:
        job = JobSpec(name=found.launch.job, command="-", schedule="@yearly", place=Place("", 0, 0),
                      capture_stderr=False)
    run = Run(job, found.launch, clock)
    run.limits = limits
    run.admitted_at = found.record.admitted_at if found.record is not None else None
    run.advance(Phase.STARTING)
    run.advance(Phase.RUNNING)
    return run


def _take_hold(run: Run, found: Found, launcher: Launcher, kept: KeptRuns) -> None:
    """Everything but what the run has to learn by message."""
    story = found.story
    assert story is not None
    run.adopted = max(1, story.adopted + (found.meeting is None))
    run.deadline_passed = story.timeout is not None or (run.stop is not None and run.stop.cause is StopCause.TIMEOUT)
    if story.failed is not None:
        run.fail_reason = f"could not be started: {os.strerror(story.failed[0])}"
    if story.ended is not None:
        run.ended_unseen = Monotonic(story.ended / 1e9 + _shift(found, launcher))
    log = KeptLog(run.id)
    log.dropped, log.touched = story.dropped, any(count for count, _, _ in story.output.values())
    if run.job.capture_stdout or run.job.capture_stderr:
        run.capture = Capture(run.job, run.mailbox.post, launcher.facilities.mirror, log)
    if found.meeting is not None:
        held = Adopted(found.meeting, story, log, run.mailbox.post)
        run.held = held
        if run.capture is not None:
            log.came_before = run.capture.recall
            held.attach(run.capture.open())
        if story.ended is None:
            launcher.facilities.confining.watch(run)
        what = "has ended" if story.ended is not None else "goes on"
        logger.warning("Job %s: run %s (pid %s) is taken over from an earlier daemon; it %s", run.job.name, run.id,
                       story.started[0] if story.started else None, what)
        return
    here = found.launch.boot_id == launcher.boot_id
    left = tuple(Survivor(pid=pid, reason="left behind") for pid in story.left) if here else ()
    run.held = Told(kept.story_path(run.id), left)
    if not here and story.empty is None:
        run.mailbox.post(Swept(run.clock.monotonic(), Witness.CRASH_SWEEP))  # the machine was started anew since
    log.mark_whole()
    for number, (count, _, truncated) in story.output.items():
        if run.capture is not None and number in STREAMS:
            run.capture.recall(STREAMS[number], count, truncated=truncated)
    logger.warning("Job %s: run %s has ended while no daemon was there; its supervisor has left word", run.job.name,
                   run.id)


def _shift(found: Found, launcher: Launcher) -> float:
    """What makes monotonic seconds of another boot into such of ours, by the wall clock; 0 within one boot."""
    if found.launch.boot_id == launcher.boot_id or found.story is None:
        return 0.0
    monotonic, wall = found.story.clock
    clock = launcher.facilities.clock
    return clock.monotonic() - (clock.now().timestamp() - wall / 1e9) - monotonic / 1e9


def _stop_of(run: Run, story: Story, shift: float) -> Stop | None:
    """Why and how far it is being stopped: by an earlier daemon, or by its supervisor at the deadline."""
    changes: dict[str, Any] = {}
    if story.signalled is not None:
        changes["signalled_at"] = run.wall(Monotonic(story.signalled[0] / 1e9 + shift))
    if story.forced is not None:
        changes["forced_at"] = run.wall(Monotonic(story.forced / 1e9 + shift))
    if story.timeout is not None:
        reason = f"executionTimeout of {run.job.execution_timeout or 0:g} seconds, enforced while no daemon was there"
        at = run.wall(Monotonic(story.timeout / 1e9 + shift))
        return Stop(cause=StopCause.TIMEOUT, reason=reason, requested_at=at, **changes)
    if not story.note:
        return None
    try:
        return replace(msgspec.json.decode(story.note, type=Stop), **changes)
    except msgspec.MsgspecError as failure:
        logger.error("run %s: why it is being stopped cannot be read: %s", run.id, failure)
        return Stop(cause=StopCause.CANCEL, reason="asked for by an earlier daemon", requested_at=run.clock.now())


# ---------------------------------------------------------------- those that do not talk


def _watch(run: Run, found: Found) -> None:
    record = found.record
    assert record is not None
    began = record.started_at or record.launch.created_at
    at = Monotonic(run.clock.monotonic() - max(0.0, (run.clock.now() - began).total_seconds()))
    run.learn(Started(record.pid or 0, at, record.containment))  # 0: nobody has told
    run.deadline = None  # we could not enforce it; its supervisor does
    run.adopted = record.adopted + 1
    run.held = Watched(run.id, found.silent_pid, found.why)
    run.lost_because = f"its supervisor could not be talked to ({found.why}), and its end was not told"
    logger.error("Job %s: run %s (pid %s) lives on from an earlier daemon, and cannot be talked to: %s. It counts as "
                 "running, and is left alone until it ends", run.job.name, run.id, run.pid, found.why)


async def _until_it_can_be_heard(run: Run, found: Found, launcher: Launcher, kept: KeptRuns) -> None:
    """A supervisor that was frozen may talk later, and one that ends leaves word: then the run is ours after all."""
    watched = run.held
    assert isinstance(watched, Watched)
    while not run.freed.is_set():
        there = watched.there
        if found.try_again or not there:
            again = await asyncio.to_thread(look, kept, run.id, found.record, 0.0)
            if again is not None and again.story is not None:
                _hear_it_out(run, again, launcher, kept)
                return
        if not there:
            at = run.clock.monotonic()
            run.mailbox.post(SupervisorLost(at))
            run.mailbox.post(Swept(at, None))
            return
        await asyncio.sleep(WATCH_SECONDS)


def _hear_it_out(run: Run, found: Found, launcher: Launcher, kept: KeptRuns) -> None:
    """What it tells goes by the mailbox: the run has one writer."""
    assert found.story is not None
    shift = _shift(found, launcher)
    _take_hold(run, found, launcher, kept)
    stop = _stop_of(run, found.story, shift)
    run.lost_because = None
    for message in found.story.messages(partial(alone_in, found.story), shift):
        run.mailbox.post(message)
    if stop is not None:
        run.mailbox.post(StopRequested(stop.cause, stop.reason, stop.requested_by))
    if run.job.execution_timeout is not None and found.story.started is not None and stop is None:
        due = found.story.started[1] / 1e9 + run.job.execution_timeout
        asyncio.get_running_loop().call_at(due, _deadline, run)


def _deadline(run: Run) -> None:
    """Of a run that was watched without one."""
    if run.stop is None and run.counts_as_running:
        run.deadline_passed = True
        run.mailbox.post(StopRequested(
            StopCause.TIMEOUT, reason=f"executionTimeout of {run.job.execution_timeout:g} seconds"))

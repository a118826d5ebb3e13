"""The life of one run, top to bottom. Read this file first.

    claim its slot in the cluster -> write the intent -> wait for slots of its pool, then for those it replaces -> start
    -> watch (exit, end of output, deadline, stop requests)
    -> if it must stop: graceful step, bounded wait, forced step, proof -> ended: counts for no policy any more
    -> wait, bounded, for output that somebody else holds -> verdict -> record
    -> if it was stopped and is not proven gone: keep its place until it is, or until somebody abandons it

Everything that happens to the run arrives as a message in its mailbox, and only this coroutine takes messages out: the
run has one writer. Nobody cancels the task; stopping is a message, too. `docs/journey.md` has the picture.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from sexton.execution.capture import Capture
from sexton.execution.keeping import KeptLog
from sexton.execution.limits import LimitsRefused
from sexton.execution.messages import StartFailed
from sexton.execution.plan import plan
from sexton.execution.request import LIMITS_STAGE
from sexton.execution.runlog import RunLog
from sexton.execution.stop import CONFIRM_SECONDS, SIGNAL_ANSWER_SECONDS, bring_down
from sexton.model.clock import Clock, Monotonic
from sexton.model.errors import SpawnError
from sexton.model.job import EndsWhen, Leftovers, WhenUnconfirmed
from sexton.model.run import GoneState, Outcome, Phase, StopCause
from sexton.model.verification import Checked, Verification
from sexton.outcome.verification import COMMAND_FAILED, STOPPED
from sexton.run.check import check_of
from sexton.run.drain import drain_held_output
from sexton.run.entrance import enter, turned_away
from sexton.run.facilities import Facilities
from sexton.run.live import Run
from sexton.run.mailbox import StopRequested
from sexton.run.recording import amend, record, verdict_of
from sexton.run.subject import Subject
from sexton.run.unconfirmed import keep_place
from sexton.run.unlocking import unlock_secrets

logger = logging.getLogger("sexton.run")

LONGEST_WORD = 4096
"""Characters of a reason that a supervisor is given to keep."""
LEFTOVER_LOOK_SECONDS = 0.1
"""How long the last processes of a run that ended by itself may trail its own process before they count as left
behind."""


async def conduct(run: Run, daemon: Facilities) -> None:
    """Live through one run. Never raises: a bug becomes an `internal error` record, and the processes are ended."""
    try:
        # one that is adopted has been started by another daemon
        if not run.adopted and await enter(run, daemon, _until):
            await _start(run, daemon)
        if turned_away(run):
            _turn_away(run, daemon)
            return
        if run.started is not None:
            await _watch(run)
            await _end_leftovers(run)
            await _verify(run, daemon)
            if run.stop is not None:
                _leave_word(run)
                await bring_down(Subject(run, _until))
        _end(run, daemon)
        await _look_for_leftovers(run)
        _tell_unconfirmed(run, daemon)
        await drain_held_output(run, _until)
        if run.check is not None:
            await drain_held_output(run.check, _until)
        await _look_again(run)
    except Exception:
        daemon.counters.internal_errors += 1
        logger.exception("Job %s: internal error in run %s", run.job.name, run.id)
        await _abort(run, daemon)
    await record(run, daemon)
    if run.unconfirmed:
        await outlast(run, daemon)


def _turn_away(run: Run, daemon: Facilities) -> None:
    """As if it had never been launched, but for those who have asked."""
    run.phase = Phase.RECORDED
    daemon.registry.remove(run)
    for event in (run.intended, run.ended, run.freed, run.recorded):
        event.set()
    daemon.on_refused(run)


async def outlast(run: Run, daemon: Facilities) -> None:
    """Keep the place of a run that is not proven gone, until it is or is abandoned."""
    if run.check is not None and run.check.unconfirmed:
        await keep_place(run.check, _until)
        run.abandoned = run.check.abandoned
        if run.proven_gone or run.abandoned is not None:
            run.free()
    run.mailbox.instead = None
    await keep_place(run, _until)
    await amend(run, daemon)


async def _until(run: Run, condition: Callable[[], bool], limit: Monotonic | None = None) -> bool:
    """Take messages until the condition holds (True) or the monotonic `limit` has passed (False)."""
    while not condition():
        message = await run.mailbox.take(limit)
        if message is None:
            return False
        run.learn(message)
    return True


async def _start(run: Run, daemon: Facilities) -> None:
    """From the intent to the process, or to the reason why there is none."""
    if run.gate is None:
        _tell_start(run)
    run.advance(Phase.STARTING)
    await _until(run, lambda: run.stop is not None or not run.mailbox.waiting)
    if run.stop is not None:
        return
    try:
        if run.job.secrets:
            await unlock_secrets(run, daemon.vault)
        _submit(run, daemon)
    except (SpawnError, OSError) as failure:
        run.fail_reason = str(failure) if isinstance(failure, LimitsRefused) else f"could not be started: {failure}"
        run.learn(_not_started(failure, daemon.clock))
        return
    held = run.held
    assert held is not None
    await _until(run, lambda: run.start_known or run.stop is not None)
    if run.gate is not None:
        _tell_start(run)  # not before its instant
    if not run.start_known and not held.withdraw():
        held.hear()
        await _stop_a_silent_start(run)
    if run.start_failed is not None:
        why = f"{run.start_failed.what}: {os.strerror(run.start_failed.errno)}"
        refused = run.start_failed.what is LIMITS_STAGE
        run.fail_reason = run.refuse_limits(why) if refused else f"could not be started: {why}"
    elif run.started is None and run.lost:
        await _until(run, lambda: run.swept)  # it may have started the process: not over before nothing can be left
    elif run.started is not None:
        run.advance(Phase.RUNNING)
        if run.is_check:
            return
        daemon.on_started(run)
        daemon.confining.watch(run)
        if daemon.ledger.capabilities.durable and not run.mailbox.waiting:
            daemon.ledger.note(run.record())  # of a run that is over already the record says it all


def _tell_start(run: Run) -> None:
    logger.info("Verifying job %s (run %s)" if run.is_check else "Starting job %s (run %s)", run.job.name, run.id)


async def _stop_a_silent_start(run: Run) -> None:
    """The run is to stop, and its supervisor has not said yet whether it has started. That takes no time, unless the
    supervisor was stopped or frozen, by a job that meant to: then it is ended, and with it whatever it has started."""
    held = run.held
    assert held is not None
    held.rouse()
    limit = Monotonic(run.clock.monotonic() + SIGNAL_ANSWER_SECONDS)
    if not await _until(run, lambda: run.start_known, limit):
        run.mark_forced()
        held.end_supervisor()
        await _until(run, lambda: run.start_known)


def _submit(run: Run, daemon: Facilities) -> None:
    scheduled = run.launch.scheduled_for
    confined = daemon.confining.confine(run)
    what = plan(run.job, run.id, scheduled.isoformat() if scheduled else None, run.launch.node, confined,
                run.launch.attempt, run.unlocked.variables if run.unlocked is not None else None)
    masks = run.unlocked.masks if run.unlocked is not None else None
    keeping = None
    if daemon.kept is not None and run.launch.keep:
        keeping = daemon.kept.keeping(run.job, run.launch, run.limits, masks.forms if masks is not None else [])
    log: RunLog | KeptLog | None = keeping.log if keeping is not None else None
    if keeping is None and daemon.output_files is not None and (run.job.capture_stdout or run.job.capture_stderr):
        log = daemon.output_files.start(run.id)
    fds: list[tuple[int, int]] = []
    if run.job.capture_stdout or run.job.capture_stderr:
        run.capture = Capture(run.job, run.mailbox.post, daemon.mirror, log, masks if keeping is None else None)
        fds = run.capture.open()
    if what.stdin is not None:
        try:
            fds.append((_memory_file(what.stdin), 0))
        except OSError:
            for fd, _ in fds:
                os.close(fd)
            raise
    run.held = daemon.supervisors.submit(what, fds, run.mailbox.post, run.gate, keeping)


def _memory_file(text: bytes) -> int:
    fd = os.memfd_create("sexton-stdin", os.MFD_CLOEXEC)
    view = memoryview(text)
    while view:
        view = view[os.write(fd, view):]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _not_started(failure: Exception, clock: Clock) -> StartFailed:
    return StartFailed(getattr(failure, "errno", None) or 0, str(failure), clock.monotonic())


async def _watch(run: Run) -> None:
    """Until the run has ended by itself, somebody wants it stopped, or its deadline passes."""
    def own_process_ended_first() -> bool:
        if run.exited is not None and run.phase is Phase.RUNNING and not run.finished_by_itself:
            run.advance(Phase.DRAINING)
        return run.finished_by_itself or run.stop is not None

    if not await _until(run, own_process_ended_first, run.deadline):
        if run.held is not None:
            run.held.hear()
        await _until(run, own_process_ended_first, run.deadline)
        if run.capture is not None and run.exited is not None and run.exited.at <= (run.deadline or 0.0):
            run.capture.catch_up()
        if await _until(run, own_process_ended_first, run.deadline):
            return  # before its deadline: the news was under way, or we were held up
        bound = "verify.timeout" if run.is_check else "executionTimeout"
        logger.info("Job %s exceeded its %s of %g seconds, cancelling it...", run.job.name, bound,
                    run.job.execution_timeout)
        run.deadline_passed = True
        run.learn(StopRequested(StopCause.TIMEOUT, reason=f"{bound} of {run.job.execution_timeout:g} seconds"))


def _leave_word(run: Run) -> None:
    """A run that outlives us is brought down by its supervisor if we die now; whoever records it must know why."""
    if run.launch.keep and run.held is not None and run.stop is not None:
        short = replace(run.stop, reason=(run.stop.reason or "")[:LONGEST_WORD] or None,
                        requested_by=(run.stop.requested_by or "")[:LONGEST_WORD] or None)
        run.held.note_stop(msgspec.json.encode(short))


async def _verify(run: Run, daemon: Facilities) -> None:
    """Check what a run that ended well has done. It runs as long, and to stop it is to stop the check."""
    if run.job.verify is None or run.is_check:
        return
    if run.stop is not None or verdict_of(run).outcome is not Outcome.SUCCESS:
        why = STOPPED if run.stop is not None else COMMAND_FAILED
        run.unchecked = Verification(outcome=Checked.SKIPPED, fail_reason=why)
        return
    run.advance(Phase.VERIFYING)
    run.check = check = check_of(run)
    run.mailbox.instead = check.mailbox
    await _start(check, daemon)
    run.check_known.set()
    if check.started is not None:
        await _watch(check)
        if check.stop is not None:
            await bring_down(Subject(check, _until))
    _end(check, daemon)
    await _look_for_leftovers(check)
    if check.stop is not None and check.stop.cause not in (StopCause.TIMEOUT, StopCause.LIMITS):
        run.stop = check.stop  # its output is waited for when the run has ended
    else:
        await drain_held_output(check, _until)


def _end(run: Run, daemon: Facilities) -> None:
    """The instant at which the run has ended: from here on it counts for no policy, and replacements may start."""
    at = _end_instant(run) if run.ended_mono is None else run.ended_mono
    run.ended_mono = at
    run.ended_at = run.wall(at)
    run.advance(Phase.ENDED)
    if run.stop is not None and run.proven_gone:
        run.stop = replace(run.stop, confirmed_at=run.ended_at)
    unproven = _meant_to_end(run) and not run.proven_gone and run.job.when_unconfirmed is WhenUnconfirmed.HOLD
    if unproven or (run.check is not None and run.check.unconfirmed):
        run.unconfirmed = True
    else:
        run.freed.set()
    run.check_known.set()
    run.ended.set()


def _meant_to_end(run: Run) -> bool:
    return run.stop is not None or run.job.leftovers is Leftovers.KILL


def _end_instant(run: Run) -> Monotonic:
    if run.ended_unseen is not None:
        return run.ended_unseen
    if run.check is not None:
        return run.clock.monotonic()
    by_exit = run.capture is None or run.job.ends_when is EndsWhen.EXIT
    if run.stop is None and run.exited is not None and by_exit:
        return run.exited.at
    return run.clock.monotonic()


async def _end_leftovers(run: Run) -> None:
    """leftovers: kill. What a run that ended by itself left behind is ended before its place goes to another."""
    if run.stop is not None or run.job.leftovers is not Leftovers.KILL or run.held is None or run.proven_gone:
        return
    run.ended_mono = _end_instant(run)
    limit = Monotonic(run.clock.monotonic() + LEFTOVER_LOOK_SECONDS)
    if await _until(run, lambda: run.emptied is not None or run.swept or run.stop is not None, limit):
        return
    left = run.survivors()
    logger.warning("Job %s: run %s has ended and left %d process(es) behind; they are ended (leftovers: kill): %s",
                   run.job.name, run.id, len(left), ", ".join(str(process.pid) for process in left))
    run.held.kill()
    limit = Monotonic(run.clock.monotonic() + CONFIRM_SECONDS)
    await _until(run, lambda: run.emptied is not None or run.swept or run.kill_refused is not None, limit)
    run.left = run.survivors()


async def _look_for_leftovers(run: Run) -> None:
    """A run that ended by itself may have left processes behind: they are kept, and named in the record."""
    if run.started is None or run.held is None or run.proven_gone or run.emptied is not None:
        return
    if run.stop is None and not run.unconfirmed:
        limit = Monotonic(run.clock.monotonic() + LEFTOVER_LOOK_SECONDS)
        if await _until(run, lambda: run.emptied is not None or run.swept, limit):
            return
        run.held.release()
    run.left = run.survivors()
    if run.stop is None and not run.left:  # the last of it ended just now: its supervisor is about to say so
        limit = Monotonic(run.clock.monotonic() + LEFTOVER_LOOK_SECONDS)
        await _until(run, lambda: run.emptied is not None or run.swept, limit)
    if run.stop is None and run.left and run.job.leftovers is Leftovers.REPORT:
        logger.warning("Job %s: run %s has ended and left %d process(es) behind: %s", run.job.name, run.id,
                       len(run.left), ", ".join(str(process.pid) for process in run.left))


def _tell_unconfirmed(run: Run, daemon: Facilities) -> None:
    """The record of a run whose process outlived the forced step waits for that process, which may take for ever; who
    wants to hear of it hears now. (After a timeout the record does not wait for it.)"""
    if run.stop is None or run.stop.cause is StopCause.TIMEOUT or run.started is None:
        return
    if run.process_gone or run.proven_gone or run.lost:
        return
    verdict = verdict_of(run)
    run.told_unconfirmed = True
    daemon.on_unconfirmed(run, replace(run.record(), outcome=verdict.outcome, fail_reason=verdict.fail_reason))


async def _look_again(run: Run) -> None:
    """A process that outlived the forced step may have ended by itself meanwhile: then the record carries the proof."""
    if run.stop is None or run.proven_gone or not run.process_gone:
        return
    limit = Monotonic(run.clock.monotonic() + LEFTOVER_LOOK_SECONDS)
    await _until(run, lambda: run.proven_gone, limit)
    run.left = run.survivors()
    if (gone := run.gone()) is not None and gone.state is GoneState.PROVEN:
        at = run.emptied.at if run.emptied is not None else run.clock.monotonic()
        run.stop = replace(run.stop, confirmed_at=run.wall(at))


async def _abort(run: Run, daemon: Facilities) -> None:
    """After a bug of ours nothing of the run may stay: end it without ceremony."""
    run.fail_reason = "internal error (see the daemon's log)"
    if run.held is not None and not run.held.withdraw():
        run.held.kill()
        limit = Monotonic(daemon.clock.monotonic() + 5.0)
        await _until(run, lambda: run.proven_gone or run.start_failed is not None, limit)
    for stream in run.capture.open_streams if run.capture else []:
        assert run.capture is not None
        run.capture.close(stream)
    if run.phase is not Phase.ENDED:
        run.phase = Phase.ENDED
        run.ended_mono = daemon.clock.monotonic()
        run.ended_at = daemon.clock.now()
    run.ended.set()
    if not run.unconfirmed:
        run.freed.set()

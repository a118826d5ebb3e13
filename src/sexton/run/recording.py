"""The end of a run's story: the verdict, the whole output in its file, the record in the ledger."""

from __future__ import annotations

import asyncio
import logging

from sexton.execution.messages import Stream
from sexton.model.errors import StoreError
from sexton.model.run import Outcome, Phase, RunRecord
from sexton.model.verification import Checked, Verification
from sexton.outcome.verdict import Evidence, Verdict, judge
from sexton.outcome.verification import COMMAND_FAILED, NOT_STARTED
from sexton.run.facilities import Facilities
from sexton.run.live import Run

logger = logging.getLogger("sexton.run")

LOST = "its supervisor was killed, and with it the knowledge of how it ended"


async def record(run: Run, daemon: Facilities) -> None:
    """Verdict and record. The run leaves the registry when the ledger has it, or cannot take it now; one that keeps its
    place stays there."""
    made: RunRecord | None = None
    try:
        daemon.confining.let_go(run)
        _decide(run)
        if run.capture is not None and run.capture.log is not None and run.capture.log.touched:
            await _finish_log(run)
        made = run.record(Phase.RECORDED)  # the run itself says so only when the ledger has it
        await daemon.ledger.record(made)
        _forget(run)
    except StoreError as failure:
        daemon.counters.store_failures += 1
        if made is not None:
            daemon.unwritten.add(made, daemon.ledger, lambda: _forget(run))
        logger.error("Job %s: the record of run %s could not be written (%s); it is tried again until it can be",
                     run.job.name, run.id, failure)
    except Exception:
        daemon.counters.internal_errors += 1
        logger.exception("Job %s: internal error while recording run %s", run.job.name, run.id)
    finally:
        run.phase = Phase.RECORDED
        if not run.unconfirmed:
            daemon.registry.remove(run)
        run.intended.set()
        run.recorded.set()
        _tell(run, made or run.record(), daemon)


def _tell(run: Run, made: RunRecord, daemon: Facilities) -> None:
    """A bug in what follows a run (history, reports, retries) is counted: the place of the run is free all the same."""
    try:
        daemon.on_recorded(run, made)
    except Exception:
        daemon.counters.internal_errors += 1
        logger.exception("Job %s: internal error after run %s was recorded", run.job.name, run.id)


async def amend(run: Run, daemon: Facilities) -> None:
    """The record says from now on how it ended with the place that was kept."""
    made = run.record()
    try:
        await daemon.ledger.record(made)
        _forget(run)
    except StoreError as failure:
        daemon.counters.store_failures += 1
        daemon.unwritten.add(made, daemon.ledger, lambda: _forget(run))
        logger.error("Job %s: the record of run %s could not be amended (%s); it is tried again until it can be",
                     run.job.name, run.id, failure)
    finally:
        daemon.registry.remove(run)
        daemon.on_amended(run, made)


def _forget(run: Run) -> None:
    """Whoever has kept the run for a later daemon need not keep it longer. (One that keeps its place is still held.)"""
    if run.launch.keep and run.held is not None and not run.unconfirmed:
        run.held.forget()


def verdict_of(run: Run) -> Verdict:
    """What the run means, as far as it has come."""
    capture, verification = run.capture, run.verification()
    lost = run.lost_because or LOST if run.lost else None
    refuted = None
    if verification is not None and verification.outcome is Checked.FAILURE:
        refuted = verification.fail_reason
    return judge(
        Evidence(
            exit_code=run.exit_code, stop=run.stop, skipped=run.expired, start_failure=run.fail_reason, lost=lost,
            wrote_stdout=capture is not None and capture.wrote(Stream.STDOUT),
            wrote_stderr=capture is not None and capture.wrote(Stream.STDERR),
            execution_timeout=run.job.execution_timeout, refuted=refuted,
        ),
        run.job.fails_when,
    )


def _decide(run: Run) -> None:
    if run.job.verify is not None and run.check is None and run.unchecked is None:
        why = NOT_STARTED if run.started is None else COMMAND_FAILED
        run.unchecked = Verification(outcome=Checked.SKIPPED, fail_reason=why)
    verdict = verdict_of(run)
    run.outcome, run.fail_reason = verdict.outcome, verdict.fail_reason
    if verdict.outcome is Outcome.REPLACED:
        logger.info("Job %s was replaced by a newer instance (run %s)", run.job.name, run.id)
    bad = verdict.outcome in (Outcome.FAILURE, Outcome.UNKNOWN)
    logger.log(
        logging.WARNING if bad or verdict.outcome is Outcome.SKIPPED else logging.INFO,
        "Job %s exit code %s; outcome: %s; fail_reason: %s (run %s)", run.job.name, run.exit_code,
        verdict.outcome.value, verdict.fail_reason, run.id,
    )


async def _finish_log(run: Run) -> None:
    assert run.capture is not None and run.capture.log is not None
    loop = asyncio.get_running_loop()
    whole = asyncio.Event()
    run.capture.log.finish(lambda: _set_from_thread(loop, whole))
    await whole.wait()


def _set_from_thread(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    loop.call_soon_threadsafe(event.set)

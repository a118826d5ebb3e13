"""Output that somebody holds after the run has ended: how long it is waited for, and what each bound records.

The bounds are the binding page's ("Cancellation and killTimeout"): 30 seconds, whatever killTimeout is. They apply
only to runs that we stopped; a run that ends by itself has ended when its output closes, and has no bound but its
deadline.
"""

from __future__ import annotations

import logging
from functools import partial
from math import ceil

from sexton.execution.capture import Capture
from sexton.execution.messages import Stream
from sexton.model.clock import Monotonic
from sexton.model.run import StopCause
from sexton.run.live import Run, Until

logger = logging.getLogger("sexton.run")

HELD_OUTPUT_SECONDS = 30.0
FIRST_LOOK_SECONDS = 0.25
"""After the sequence, when a process has outlived the forced step; further looks follow every HELD_OUTPUT_SECONDS."""


async def drain_held_output(run: Run, until: Until) -> None:
    """Wait for the captured streams of a stopped run within the bounds, then close our ends."""
    if run.stop is None or run.ended_mono is None or run.started is None:
        if run.capture is not None:
            _close(run, run.capture.open_streams)
        return
    if run.stop.cause is StopCause.TIMEOUT:
        await _stream_by_stream(run, until)
        return
    if run.deadline is not None and run.exited is not None and run.exited.at > run.deadline:
        _deadline_passed(run)  # it passed while the run was being brought down for another cause
    if not await _own_process(run, until):
        await _stream_by_stream(run, until)
        return
    await _both_streams(run, until)


async def _stream_by_stream(run: Run, until: Until) -> None:
    """After a timeout: each captured stream has its own bound, stderr first."""
    for stream in (Stream.STDERR, Stream.STDOUT):
        capture = run.capture
        if capture is None or stream not in capture.open_streams:
            continue
        limit = Monotonic(run.clock.monotonic() + HELD_OUTPUT_SECONDS)
        if not await until(run, partial(_closed, capture, stream), limit):
            logger.warning(
                "job %s: %s did not reach end-of-file within %.1f seconds of the job being killed",
                run.job.name, f"verify.{stream.value}" if run.is_check else stream.value, HELD_OUTPUT_SECONDS,
            )
            _close(run, [stream])


def _closed(capture: Capture, stream: Stream) -> bool:
    return stream not in capture.open_streams


async def _own_process(run: Run, until: Until) -> bool:
    """A process that outlived the forced step: its run is recorded with its own exit code when it exits.
    False when the deadline has passed first (exit code -100, then bounds as after a timeout)."""
    if run.process_gone or run.lost:  # without its supervisor nobody will ever tell
        return True
    if await until(run, lambda: run.process_gone, run.deadline):
        return True
    _deadline_passed(run)
    return False


async def _both_streams(run: Run, until: Until) -> None:
    """After a cancel, a Replace or a shutdown: one bound covers both streams."""
    assert run.ended_mono is not None
    gone_at = run.exited.at if run.exited is not None else run.ended_mono
    limit = Monotonic(_counted_from(run.ended_mono, gone_at) + HELD_OUTPUT_SECONDS)
    while not run.output_closed:
        first = limit
        if run.deadline is not None and not run.deadline_passed:
            first = min(limit, run.deadline)
        if await until(run, lambda: run.output_closed, first):
            return
        if run.deadline is not None and not run.deadline_passed and run.clock.monotonic() >= run.deadline:
            _deadline_passed(run)
        if run.clock.monotonic() >= limit:
            break
    if run.capture is not None and run.capture.open_streams:
        logger.warning(
            "job %s: output did not reach end-of-file within %.1f seconds of the job being killed",
            run.job.name, HELD_OUTPUT_SECONDS,
        )
        _close(run, run.capture.open_streams)


def _counted_from(ended: Monotonic, gone_at: Monotonic) -> float:
    """The end of the sequence, or the look that first finds a process gone that had outlived it."""
    if gone_at <= ended:
        return ended
    first = ended + FIRST_LOOK_SECONDS
    return first + max(0, ceil((gone_at - first) / HELD_OUTPUT_SECONDS)) * HELD_OUTPUT_SECONDS


def _deadline_passed(run: Run) -> None:
    """The deadline of a run that is being stopped for another cause: it marks the exit code and sends no signal."""
    run.deadline_passed = True
    logger.info(
        "Job %s exceeded its executionTimeout of %g seconds, cancelling it...", run.job.name,
        run.job.execution_timeout,
    )


def _close(run: Run, streams: list[Stream]) -> None:
    for stream in streams:
        assert run.capture is not None
        run.capture.close(stream)

"""A run's end in words: what stopped it, what was done, and what is proven."""

from __future__ import annotations

import signal
from typing import assert_never

from sexton.cli.answers import RunAnswer
from sexton.cli.terminal import Cell, Tone, tone_of
from sexton.cli.times import instant, span
from sexton.model.run import (
    Abandoned,
    Exit,
    Gone,
    GoneState,
    Outcome,
    OutputFacts,
    Phase,
    Stop,
    StopCause,
    StreamSize,
    Survivor,
    Witness,
)

_WITNESSES = {
    Witness.SUPERVISOR: "its supervisor has no child left",
    Witness.CGROUP: "its cgroup is empty",
    Witness.SWEEP: "the second subreaper ended all that was left",
    Witness.NEVER_STARTED: "no process was ever made",
    Witness.CRASH_SWEEP: "a later daemon looked for it and found nothing",
}


def state_of(run: RunAnswer) -> Cell:
    """The outcome, or the phase while there is none."""
    return Cell(run.outcome.value if run.outcome else run.phase.value, tone_of(run.outcome))


def is_recorded(run: RunAnswer) -> bool:
    return run.phase is Phase.RECORDED


def has_ended(run: RunAnswer) -> bool:
    return run.phase in (Phase.ENDED, Phase.RECORDED)


def is_proven_gone(run: RunAnswer) -> bool:
    return run.gone is not None and run.gone.state is GoneState.PROVEN


def ending(run: RunAnswer) -> str:
    """One sentence: the outcome, after how long, why."""
    word = run.outcome.value if run.outcome else run.phase.value
    reason = f": {run.fail_reason}" if run.fail_reason else ""
    took = f" after {span(run.duration)}" if run.duration is not None else ""
    return f"{word}{took}{reason}"


def proof(run: RunAnswer) -> Cell:
    """What is known of the processes: the sentence a person wants after a stop."""
    stopped, gone = run.stop is not None, run.gone
    if gone is None:
        return Cell("not known yet" if run.outcome is None else "not recorded", Tone.FAINT)
    match gone.state:
        case GoneState.PROVEN:
            why = "; ".join(_WITNESSES[witness] for witness in gone.witnesses)
            return Cell("proven: nothing of the run is left" + (f" ({why})" if why else ""), Tone.GOOD)
        case GoneState.SURVIVORS:
            count = f"{len(gone.survivors)} process{'' if len(gone.survivors) == 1 else 'es'}"
            if stopped:
                return Cell(f"COULD NOT BE TERMINATED: {count} outlived the forced step", Tone.BAD)
            return Cell(f"it ended by itself and left {count} behind; they were not touched", Tone.WARN)
        case GoneState.UNKNOWN:
            return Cell("NOT PROVEN: nobody could testify that nothing is left", Tone.BAD)
        case _:
            assert_never(gone.state)


def cause(stop: Stop) -> str:
    """Why we ended it."""
    match stop.cause:
        case StopCause.TIMEOUT:
            word = "timed out"
        case StopCause.CANCEL:
            word = "cancelled"
        case StopCause.LOST_LEASE:
            return "stopped because its slot in the cluster could not be kept"
        case StopCause.REPLACED:
            word = "replaced by a newer run"
        case StopCause.SHUTDOWN:
            word = "ended because the daemon was shut down"
        case StopCause.LIMITS:
            word = "ended at its limit"
        case _:
            assert_never(stop.cause)
    by = f" by {stop.requested_by}" if stop.requested_by else ""
    return f"{word}{by}" + (f": {stop.reason}" if stop.reason else "")


def stop_facts(stop: Stop) -> list[tuple[str, Cell]]:
    """The steps of a stop, each with the time since it was asked for."""
    steps = [
        ("  signalled", stop.signalled_at, "not sent"),
        ("  forced", stop.forced_at, "not taken"),
        ("  confirmed", stop.confirmed_at, "not confirmed"),
    ]
    rows = [
        ("stop", Cell(cause(stop), Tone.WARN)),
        ("  requested", Cell(instant(stop.requested_at, precise=True))),
    ]
    for name, at, missing in steps:
        if at is None:
            rows.append((name, Cell(missing, Tone.FAINT)))
        else:
            after = span((at - stop.requested_at).total_seconds())
            rows.append((name, Cell(f"{instant(at, precise=True)} (after {after})")))
    return rows


def gone_facts(run: RunAnswer) -> list[tuple[str, Cell]]:
    survivors = run.gone.survivors if isinstance(run.gone, Gone) else ()
    return [("gone", proof(run)), *(("  survivor", Cell(told_of(each), Tone.BAD)) for each in survivors),
            *([("abandoned", Cell(_given_up(run.abandoned), Tone.WARN))] if run.abandoned else ())]


def _given_up(abandoned: Abandoned) -> str:
    by = f" by {abandoned.requested_by}" if abandoned.requested_by else ""
    return f"{instant(abandoned.at, precise=True)}{by}" + (f": {abandoned.reason}" if abandoned.reason else "")


def told_of(process: Survivor) -> str:
    """A process that is left, with what tells why."""
    told = [f"pid {process.pid}"]
    if process.uid is not None:
        told.append(f"uid {process.uid}")
    if process.state:
        told.append(f"state {process.state}" + (f" in {process.wchan}" if process.wchan else ""))
    return ", ".join(told) + (f": {process.reason}" if process.reason else "")


def exit_of(found: Exit) -> str:
    """What the kernel said of the job's own process."""
    if found.signal is None:
        return f"code {found.code}"
    try:
        name = signal.Signals(found.signal).name
    except ValueError:
        name = "unnamed"
    return f"killed by signal {found.signal} ({name})"


def output_of(output: OutputFacts) -> str:
    """How much was written, and what of it is not kept."""
    told = []
    for name, stream in (("stdout", output.stdout), ("stderr", output.stderr)):
        told.append(f"{name} {_stream(stream)}")
    if output.log_dropped_bytes:
        told.append(f"{output.log_dropped_bytes} bytes from the middle were not kept")
    return "; ".join(told)


def _stream(stream: StreamSize | None) -> str:
    if stream is None:
        return "not captured"
    cut = ", closed by us before its end" if stream.truncated else ""
    return f"{stream.bytes} bytes{cut}" if stream.bytes else f"empty{cut}"


def succeeded(run: RunAnswer) -> bool:
    return run.outcome is Outcome.SUCCESS

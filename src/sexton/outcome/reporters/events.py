"""Which events the record of a run is. Pure."""

from __future__ import annotations

from sexton.model.report import ReportEvent
from sexton.model.run import GoneState, Outcome, RunRecord, StopCause


def events_of(record: RunRecord, *, permanent: bool) -> tuple[ReportEvent, ...]:
    """Decide what is to be told of a recorded run. `permanent` says that no further attempt follows a failure.

    A run whose end was not seen counts as a failure. Replaced, cancelled and skipped ones are no news, unless something
    of them may be left.
    """
    events: list[ReportEvent] = []
    timed_out = record.stop is not None and record.stop.cause is StopCause.TIMEOUT
    if record.outcome in (Outcome.FAILURE, Outcome.UNKNOWN):
        events.append(ReportEvent.FAILURE)
        if timed_out:
            events.append(ReportEvent.TIMEOUT)
        if permanent:
            events.append(ReportEvent.PERMANENT_FAILURE)
    elif record.outcome is Outcome.SUCCESS:
        events.append(ReportEvent.SUCCESS)
        if timed_out:  # which `failsWhen.timeout: false` makes no failure
            events.append(ReportEvent.TIMEOUT)
    if record.stop is not None and (record.gone is None or record.gone.state is not GoneState.PROVEN):
        events.append(ReportEvent.UNCONFIRMED)
    return tuple(events)

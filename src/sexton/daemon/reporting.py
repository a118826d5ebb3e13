"""From the record of a run to parcels in the outbox: what is done on the event loop is a look and an append."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from sexton.daemon.jobs import JobEntry
from sexton.execution.capture import Capture
from sexton.execution.messages import Stream
from sexton.execution.secrets import Vault
from sexton.model.job import JobSpec
from sexton.model.report import Report, ReportEvent
from sexton.model.run import Launch, Outcome, Phase, RunRecord, Trigger
from sexton.model.secret import SecretSource
from sexton.model.sla import Breach
from sexton.outcome.reporters.attempt import Attempt
from sexton.outcome.reporters.events import events_of
from sexton.outcome.reporters.facts import Facts, Output, cut_middle
from sexton.outcome.reporters.outbox import Channel, Outbox, Parcel
from sexton.outcome.reporters.templates import Page
from sexton.run.live import Run

logger = logging.getLogger("sexton.report")

FLUSH_SECONDS = 10.0
"""What is queued when the daemon ends may still be delivered for so long; a second SIGTERM ends that."""
FEW_LINES = 20
FEW_CHARACTERS = 8 * 1024
"""Output in a report that waits while there is no room for more of it."""


class Reporting:
    """Told of each recorded run."""

    def __init__(self, job_named: Callable[[str], JobSpec | None], vault: Vault, node: str) -> None:
        self.outbox = Outbox()
        self._job_named = job_named
        self._vault = vault
        self._node = node

    @staticmethod
    def get_ready() -> None:
        """Load the reporters once the API answers: they are no part of the way there, nor of a run's."""
        from sexton.outcome.reporters import mail, sentry, shell, webhook  # noqa: F401

    def on_recorded(self, run: Run, record: RunRecord, *, permanent: bool) -> None:
        """Queue what the job wants told of it. Returns at once, and never raises. `permanent`: it is a failure, and no
        attempt follows."""
        events = events_of(record, permanent=permanent)
        self._tell(run, record, [event for event in events
                                 if event is not ReportEvent.UNCONFIRMED or not run.told_unconfirmed])

    def on_unconfirmed(self, run: Run, record: RunRecord) -> None:
        """As `on_recorded`, of a run whose record may be long in coming: its process cannot be ended."""
        self._tell(run, record, [ReportEvent.UNCONFIRMED], at_work=True)

    def _tell(
        self, run: Run, record: RunRecord, events: Sequence[ReportEvent], *, at_work: bool = False,
    ) -> None:
        reports = run.job.reports
        if run.adopted and (job := self._job_named(run.job.name)) is not None:
            reports = job.reports  # what a supervisor keeps for a later daemon holds no secrets, and reports may
        if reports is None:
            return
        try:
            wanted = [(event, report) for event in events if (report := reports.of(event)) is not None]
            if wanted:
                output, weight = self._output(run.capture, at_work=at_work)
                redact = run.unlocked.masks.text if run.unlocked is not None else _as_it_is
                for event, report in wanted:
                    facts = Facts(event=event, job=run.job, record=record, output=output, redact=redact)
                    self._offer(event, report, facts, weight)
        except Exception:
            logger.exception("Job %s: internal error in the reports of run %s", run.job.name, run.id)

    def _output(self, capture: Capture | None, *, at_work: bool) -> tuple[Callable[[], Output], int]:
        """Of one that is still `at_work` a thread could not read what grows: the last lines, now."""
        if capture is None:
            return Output, 0
        weight = capture.kept_bytes
        if not at_work and self.outbox.has_room_for(weight):
            return _Once(partial(_saved, capture)), weight
        lines = [(stream, line[:FEW_CHARACTERS]) for stream, line in capture.lines(FEW_LINES)]
        few = _output_of(lines, FEW_CHARACTERS, truncated=True)
        return lambda: few, 2 * FEW_CHARACTERS

    def _offer(self, event: ReportEvent, report: Report, facts: Facts, weight: int) -> None:
        for parcel in parcels_of(event, report, facts, weight):
            self.outbox.offer(parcel)

    def on_breach(self, entry: JobEntry, breach: Breach) -> None:
        """Queue what the job wants told of a promise that has just been broken. Never raises."""
        reports = entry.spec.reports
        if reports is not None and (report := reports.of(ReportEvent.LATE)) is not None:
            try:
                self._offer(ReportEvent.LATE, report, self._late(entry, breach), 0)
            except Exception:
                logger.exception("Job %s: internal error in a report of its promise", entry.spec.name)

    def _late(self, entry: JobEntry, breach: Breach) -> Facts:
        job = entry.spec
        successes = [run.finished_at for run in entry.recent if run.outcome is Outcome.SUCCESS and run.finished_at]
        launch = Launch(id="-", job=job.name, trigger=Trigger.SCHEDULE, node=self._node, created_at=breach.since)
        return Facts(
            event=ReportEvent.LATE, job=job, record=RunRecord(launch=launch, phase=Phase.CLAIMED), output=Output,
            breach=breach, last_success_at=max(successes, default=None),
            redact=partial(self._vault.text_of, job.name, job.secrets),
        )

    async def flush(self, at_once: asyncio.Event) -> None:
        """Give the queue its time at the end of the daemon; at once when somebody asks for that."""
        close = partial(self.outbox.close, FLUSH_SECONDS, at_once.is_set)
        await asyncio.get_running_loop().run_in_executor(None, close)


def _as_it_is(text: str) -> str:
    return text


def parcels_of(event: ReportEvent, report: Report, facts: Facts, weight: int = 0) -> Iterator[Parcel]:
    """One parcel for each destination of a report."""
    from sexton.outcome.reporters import mail, sentry, shell, webhook  # loaded by `get_ready`

    page = Page(facts)

    def parcel(channel: Channel, to: str, seconds: float, send: Callable[[Attempt], None], *,
               whole: bool = False, attempts: int = 3, secrets: tuple[SecretSource | None, ...] = ()) -> Parcel:
        return Parcel(
            channel=channel, destination=to, job=facts.job.name, run_id=facts.record.launch.id, event=event.value,
            seconds=seconds, whole=whole, attempts=attempts, weight=weight, send=send,
            redact=lambda text: _without(facts.redact(text), secrets),
        )

    if (by_mail := report.mail) is not None:
        yield parcel(Channel.MAIL, mail.destination_of(by_mail), mail.SECONDS, partial(mail.deliver, by_mail, page),
                     whole=True, secrets=(by_mail.password,))
    if (hook := report.webhook) is not None:
        yield parcel(Channel.WEBHOOK, webhook.destination_of(hook), hook.timeout, partial(webhook.deliver, hook, page),
                     secrets=(hook.url,))
    if (events := report.sentry) is not None:
        yield parcel(Channel.SENTRY, sentry.destination_of(events), sentry.SECONDS,
                     partial(sentry.deliver, events, page), secrets=(events.dsn,))
    if (command := report.shell) is not None:
        # once: a command that has failed may have done its work all the same
        yield parcel(Channel.SHELL, shell.destination_of(facts), command.timeout,
                     partial(shell.deliver, command, facts), attempts=1)


def _without(text: str, secrets: tuple[SecretSource | None, ...]) -> str:
    """Errors of a destination may quote what they were given."""
    for secret in secrets:
        if secret is not None and secret.value:
            text = text.replace(secret.value, "***")
    return text


class _Once:
    """Makes the output when it is first asked for, once for all destinations of all events of the run."""

    def __init__(self, make: Callable[[], Output]) -> None:
        self._make: Callable[[], Output] | None = make
        self._made = Output()
        self._lock = threading.Lock()

    def __call__(self) -> Output:
        with self._lock:
            if self._make is not None:
                self._made, self._make = self._make(), None
            return self._made


def _saved(capture: Capture) -> Output:
    return _output_of(capture.saved(), None, truncated=capture.dropped_from_memory)


def _output_of(lines: list[tuple[Stream, str]], limit: int | None, *, truncated: bool) -> Output:
    def text(stream: Stream) -> tuple[str, bool]:
        whole = "\n".join(line for source, line in lines if source is stream)
        return cut_middle(whole) if limit is None else cut_middle(whole, limit)

    stdout, stdout_cut = text(Stream.STDOUT)
    stderr, stderr_cut = text(Stream.STDERR)
    return Output(stdout, stderr, truncated or stdout_cut, truncated or stderr_cut)

"""What is told of a run, and in which words."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from sexton.model.job import JobSpec, Place
from sexton.model.report import MailReport, ReportEvent, SentryReport
from sexton.model.run import Gone, GoneState, Launch, Outcome, Phase, RunRecord, Stop, StopCause, Trigger
from sexton.model.secret import SecretSource
from sexton.model.templates import VARIABLES
from sexton.outcome.reporters.attempt import NotDelivered
from sexton.outcome.reporters.events import events_of
from sexton.outcome.reporters.facts import Facts, Output, cut_middle, variables
from sexton.outcome.reporters.mail import message_of
from sexton.outcome.reporters.sentry import event_of, parse_dsn
from sexton.outcome.reporters.shell import MAX_STREAM_BYTES, environment_of, variables_of
from sexton.outcome.reporters.templates import Page, TemplateTrouble
from sexton.outcome.reporters.webhook import usual_body

AT = datetime(2026, 5, 1, tzinfo=UTC)
JOB = JobSpec(name="tä'g", command="true", schedule="@daily", place=Place("f", 1, 1))
PROVEN, LEFT = Gone(state=GoneState.PROVEN), Gone(state=GoneState.SURVIVORS)
F, P, S, T, U = (ReportEvent.FAILURE, ReportEvent.PERMANENT_FAILURE, ReportEvent.SUCCESS, ReportEvent.TIMEOUT,
                 ReportEvent.UNCONFIRMED)


def record(outcome: Outcome, cause: StopCause | None = None, gone: Gone = PROVEN) -> RunRecord:
    launch = Launch(id="id", job=JOB.name, trigger=Trigger.MANUAL, node="n", created_at=AT)
    stop = Stop(cause=cause, requested_at=AT) if cause is not None else None
    return RunRecord(launch=launch, phase=Phase.RECORDED, outcome=outcome, stop=stop, gone=gone, exit_code=1)


def facts(outcome: Outcome = Outcome.FAILURE, event: ReportEvent = F, output: Output | None = None) -> Facts:
    return Facts(event=event, job=JOB, record=record(outcome), output=lambda: output or Output())


@pytest.mark.parametrize(("made", "permanent", "events"), [
    (record(Outcome.SUCCESS), False, (S,)),
    (record(Outcome.FAILURE), False, (F,)),
    (record(Outcome.FAILURE), True, (F, P)),
    (record(Outcome.UNKNOWN), True, (F, P)),
    (record(Outcome.FAILURE, StopCause.TIMEOUT), True, (F, T, P)),
    (record(Outcome.FAILURE, StopCause.LIMITS), False, (F,)),
    (record(Outcome.FAILURE, StopCause.TIMEOUT, LEFT), False, (F, T, U)),
    (record(Outcome.CANCELLED, StopCause.CANCEL), False, ()),
    (record(Outcome.REPLACED, StopCause.REPLACED), False, ()),
    (record(Outcome.CANCELLED, StopCause.SHUTDOWN), False, ()),
    (record(Outcome.CANCELLED, StopCause.CANCEL, LEFT), False, (U,)),
    (record(Outcome.REPLACED, StopCause.REPLACED, Gone(state=GoneState.UNKNOWN)), False, (U,)),
    (record(Outcome.SUCCESS, None, LEFT), False, (S,)),
    (record(Outcome.SKIPPED), False, ()),
])
def test_events(made: RunRecord, permanent: bool, events: tuple[ReportEvent, ...]) -> None:
    """Which events a record is, by outcome, cause of the stop and evidence."""
    assert events_of(made, permanent=permanent) == events


def test_every_variable_is_there() -> None:
    """A template may name exactly what a report has."""
    assert set(variables(facts(), {})) == VARIABLES


def test_templates_fail_by_themselves() -> None:
    """One that cannot be filled in is a failure of the report; a harmless one with an unknown name is empty."""
    page = Page(facts(), {})
    assert page.fill("{{ nothing }}x") == "x"
    for bad in ("{{ 1/0 }}", "{{ run.launch.a.b.c }}", "{{ ''.__class__.__mro__ }}"):
        with pytest.raises(TemplateTrouble):
            page.fill(bad)


def test_html_is_escaped() -> None:
    """What a run writes is no markup in a mail of HTML."""
    page = Page(facts(output=Output(stdout="<script>")), {})
    assert page.body("{{ stdout }}", html=True) == "&lt;script&gt;"
    assert page.body("{{ stdout }}") == "<script>"
    assert "&lt;script&gt;" in page.body(None, html=True)


@pytest.mark.parametrize("subject", [
    "a\nBcc: c@example.org", "{{ 'a\\r\\nBcc: c@example.org' }}", "ü" * 500, "\x1b[1m"])
def test_headers_of_a_mail(subject: str) -> None:
    """No line end and no control character gets into a header, and none is too long."""
    settings = MailReport(sender="Ö <a@example.org>", to="b@example.org, c@example.org", smtp_host="h", subject=subject)
    raw = bytes(message_of(settings, Page(facts(), {})))
    head = raw.partition(b"\r\n\r\n")[0]
    assert b"\nBcc:" not in head and b"\x1b" not in head
    assert all(len(line) <= 998 and line.isascii() for line in head.split(b"\r\n"))


@pytest.mark.parametrize("to", ["", "   ", "a@b@c"])
def test_addresses_that_are_none(to: str) -> None:
    """Are a failure that names them."""
    with pytest.raises(NotDelivered):
        message_of(MailReport(sender="a@example.org", to=to, smtp_host="h"), Page(facts(), {}))


def test_texts_are_bounded() -> None:
    """The middle of a long output goes; a shell report gets its end; a webhook stays below what Slack takes."""
    long = Output(stdout="a" * 300_000 + "end", stderr="e")
    text, cut = cut_middle(long.stdout)
    assert cut and text.endswith("end") and len(text) < 270_000
    named = variables_of(facts(output=long))
    assert named["STDOUT"].endswith("end") and len(named["STDOUT"]) <= MAX_STREAM_BYTES
    assert (named["STDOUT_TRUNCATED"], named["STDERR_TRUNCATED"]) == ("1", "0")
    assert len(json.loads(usual_body(Page(facts(output=long), {})))["text"]) < 40_000
    event = event_of(SentryReport(dsn=SecretSource(value="x"), max_string_length=50), Page(facts(output=long), {}))
    assert len(event["logentry"]["formatted"]) == 50


def test_a_command_knows_the_facts_by_three_names() -> None:
    """What was written for yacron or cronstable finds what it knows under the name that it had there."""
    found = environment_of(facts(output=Output(stdout="o", stderr="e")))
    for prefix in ("SEXTON_", "CRONSTABLE_", "YACRON_"):
        assert (found[prefix + "STDOUT"], found[prefix + "STDERR"]) == ("o", "e")
        assert {prefix + "RETCODE", prefix + "FAIL_REASON", prefix + "JOB_NAME"} <= set(found)


def test_a_local_user() -> None:
    """Needs no domain."""
    message = message_of(MailReport(sender="cron", to="root", smtp_host="h"), Page(facts(), {}))
    assert message["To"] == "root"


@pytest.mark.parametrize(("text", "endpoint"), [
    ("https://key@sentry.example.org/7", "https://sentry.example.org/api/7/envelope/"),
    ("http://key:old@h:9000/a/b/7", "http://h:9000/a/b/api/7/envelope/"),
])
def test_dsn(text: str, endpoint: str) -> None:
    """Where the envelope goes."""
    assert parse_dsn(text) == (endpoint, "key")


@pytest.mark.parametrize("text", ["", "key", "https://sentry.example.org/7", "https://key@h/", "ftp://key@h/7", "https://k@[/7"])
def test_dsn_that_is_none(text: str) -> None:
    """Is refused without being quoted."""
    with pytest.raises(NotDelivered) as refused:
        parse_dsn(text)
    assert not text or text not in str(refused.value)

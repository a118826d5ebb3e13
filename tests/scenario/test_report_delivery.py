"""Reports as they arrive: a real daemon, a real SMTP server, a real HTTP server, real commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from rig import NEVER, Rig, always, living, new_tag, until
from sentry_sdk.envelope import Envelope
from sentry_sdk.utils import Dsn
from sinks import HookSink, MailSink, SilentServer


@pytest.fixture
def silent() -> Iterator[SilentServer]:
    server = SilentServer()
    yield server
    server.close()


def job(command: str, **options: Any) -> dict[str, Any]:
    return {"name": "j", "command": command, "schedule": NEVER, **options}


def mail_to(sink: MailSink | SilentServer, **more: Any) -> dict[str, Any]:
    return {"mail": {"from": "sexton@example.org", "to": "ops@example.org", "smtpHost": "127.0.0.1",
                     "smtpPort": sink.port, **more}}


def health(rig: Rig) -> Any:
    return rig.http("GET", "/health")[1]["reports"]


def test_a_failure_is_mailed(rig: Rig, mails: MailSink) -> None:
    """The usual mail names job, reason, run and output; a success of the same job sends none."""
    rig.start([job("echo broken >&2; exit 3", onFailure={"report": mail_to(mails)})])
    run = rig.fire()
    until(lambda: mails.messages, what="a mail")
    (message,) = mails.messages
    assert message["Subject"] == "Cron job 'j' failed"
    text = message.get_content()
    assert "command exited with code 3" in text
    assert run in text
    assert "broken" in text
    assert message["Date"] and message["Message-ID"] and message["Auto-Submitted"] == "auto-generated"
    until(lambda: health(rig)["channels"]["mail"]["delivered"] == 1)


def test_each_event_has_its_report(rig: Rig, hooks: HookSink, tmp_path: Path) -> None:
    """onFailure and onPermanentFailure for a failure, onTimeout besides for a timeout, onSuccess for a success."""
    marks = tmp_path / "marks"
    told = {
        name: {"report": {"shell": {"command": f'echo {name} $SEXTON_EVENT $CRONSTABLE_FAILED >> "{marks}"'}}}
        for name in ("onFailure", "onPermanentFailure", "onSuccess", "onTimeout")
    }
    rig.start([job("true", **told) | {"name": "good"}, job("exit 1", **told) | {"name": "bad"},
               job("sleep 60", executionTimeout=0.2, killTimeout=1, **told) | {"name": "slow"}])

    def lines() -> list[str]:
        return sorted(marks.read_text().splitlines()) if marks.exists() else []

    rig.fire("good")
    until(lambda: lines() == ["onSuccess success 0"])
    rig.fire("bad")
    failed = ["onFailure failure 1", "onPermanentFailure permanent failure 1"]
    until(lambda: lines() == [*failed, "onSuccess success 0"])
    rig.fire("slow")
    until(lambda: lines() == sorted([*failed, *failed, "onTimeout timeout 1", "onSuccess success 0"]))


def test_a_cancelled_run_is_not_reported(rig: Rig, hooks: HookSink) -> None:
    """Whoever cancels a run knows of it; the same holds for one that is replaced."""
    told = {"report": {"webhook": {"url": {"value": hooks.url("ok")}}}}
    rig.start([job("sleep 60", onFailure=told, onPermanentFailure=told, onSuccess=told, concurrencyPolicy="Replace")])
    first = rig.fire()
    rig.running(first)
    second = rig.fire()
    assert rig.recorded(first)["outcome"] == "replaced"
    rig.running(second)
    rig.http("POST", f"/runs/{second}/cancel")
    assert rig.recorded(second)["outcome"] == "cancelled"
    always(lambda: not hooks.requests, 0.3)
    assert health(rig)["waiting"] == health(rig)["in_flight"] == 0


def test_the_usual_webhook(rig: Rig, hooks: HookSink) -> None:
    """Without a body of its own a webhook gets what Slack takes."""
    rig.start([job("echo out; echo err >&2; exit 1", captureStdout=True,
                   onFailure={"report": {"webhook": {"url": {"value": hooks.url("ok")}, "headers": {"X-A": "b"}}}})])
    rig.fire()
    until(lambda: hooks.requests, what="a request")
    ((asked, headers, body),) = hooks.requests
    assert asked == "POST ok"
    assert headers["Content-Type"] == "application/json"
    assert headers["X-A"] == "b"
    text = json.loads(body)["text"]
    assert text.startswith("Cron job 'j' failed\n")
    assert "out" in text and "err" in text


def test_templates_have_the_variables(rig: Rig, hooks: HookSink) -> None:
    """The reference daemon's variables, and run, stop and gone."""
    body = (
        '{"n": {{ name|tojson }}, "s": {{ success|tojson }}, "code": {{ exit_code }}, "err": {{ stderr|tojson }}, '
        '"cmd": {{ command|tojson }}, "v": {{ environment.OWN|tojson }}, "id": {{ run_id|tojson }}, '
        '"cause": {{ stop.cause|tojson }}, "gone": {{ gone.state|tojson }}, "trigger": {{ run.launch.trigger|tojson }}}'
    )
    rig.start([job("echo e >&2; sleep 60", executionTimeout=0.3, environment=[{"key": "OWN", "value": "x"}],
                   onTimeout={"report": {"webhook": {"url": hooks.url("ok"), "body": body}}})])
    run = rig.fire()
    until(lambda: hooks.requests, what="a request")
    assert json.loads(hooks.requests[0][2]) == {
        "n": "j", "s": False, "code": -100, "err": "e", "cmd": "echo e >&2; sleep 60", "v": "x", "id": run,
        "cause": "timeout", "gone": "proven", "trigger": "manual",
    }


def test_a_command_gets_the_facts(rig: Rig, tmp_path: Path) -> None:
    """The environment of a shell report has the reference daemon's names, under each prefix."""
    to = tmp_path / "env"
    rig.start([job("echo out; echo err >&2; exit 4", captureStdout=True,
                   onFailure={"report": {"shell": {"command": f"env > {to}.new; mv {to}.new {to}"}}})])
    run = rig.fire()
    until(to.exists, what="the environment")
    found = dict(line.split("=", 1) for line in to.read_text().splitlines() if "=" in line)
    for prefix in ("CRONSTABLE_", "SEXTON_", "YACRON_"):
        assert found[prefix + "FAIL_REASON"] == "command exited with code 4"
        assert found[prefix + "RETCODE"] == "4"
        assert found[prefix + "STDOUT"] == "out"
        assert found[prefix + "STDERR"] == "err"
        assert found[prefix + "STDERR_TRUNCATED"] == "0"
        assert found[prefix + "RUN_ID"] == run
        assert found[prefix + "JOB_SCHEDULE"] == NEVER


def test_99_nobody_waits_for_a_report_that_hangs(rig: Rig, silent: SilentServer) -> None:
    """99: A mail server that never speaks and a command without end hold neither run nor slot, add no sockets, and the
    daemon ends in its time."""
    tag = new_tag()
    rig.start([job("exit 1", concurrencyPolicy="Forbid",
                   onFailure={"report": {**mail_to(silent), "shell": {"command": f"exec sleep {tag}"}}})])
    for _ in range(8):
        assert rig.recorded(rig.fire(), 3.0)["outcome"] == "failure"
    until(lambda: silent.connections and living(tag), what="a delivery under way")
    assert health(rig)["waiting"] + health(rig)["in_flight"] == 16
    assert silent.still_open() == 1
    assert len(living(tag)) == 1
    assert rig.stop() == 0
    until(lambda: not living(tag), 1.0, "the command is gone with the daemon")
    rig.logged("report(s) are dropped")


def test_a_hanging_command_is_killed_whole(rig: Rig) -> None:
    """At its timeout a shell report's whole process group is killed, and the failure is told once."""
    tag = new_tag()
    command = {"command": f"sleep {tag} & sleep {tag}", "timeout": 0.5}
    rig.start([job("exit 1", onFailure={"report": {"shell": command}})])
    rig.fire()
    until(lambda: len(living(tag)) >= 2, what="the command")
    rig.logged("could not be reported", "not within 0.5 seconds")
    until(lambda: not living(tag), 2.0, "the group is gone")
    assert health(rig)["channels"]["shell"]["failed"] == 1
    assert rig.log().count("could not be reported") == 1


@pytest.mark.parametrize(("mode", "attempts", "words"), [
    ("reset", 3, "in the exchange with"), ("500", 3, "500"), ("404", 1, "404"), ("hang", 1, "not within"),
    ("drip", 1, "not within"), ("302", 1, "redirect"), ("loop", 4, "more than 3 redirects"),
    ("elsewhere", 1, "another host"),
])
def test_a_webhook_that_does_not_take_it(rig: Rig, hooks: HookSink, mode: str, attempts: int, words: str) -> None:
    """What the other side did not take is tried again, briefly; then the failure is logged, counted and shown; the
    address, which may be a secret, is not."""
    rig.start([job("exit 1", onFailure={"report": {"webhook": {"url": hooks.url(mode) + "?token=t0ps3cret",
                                                               "timeout": 0.7}}})])
    rig.fire()
    rig.logged("could not be reported", words, seconds=12.0)
    assert len(hooks.requests) == attempts
    shown = health(rig)
    assert shown["channels"]["webhook"]["failed"] == 1
    assert words in shown["last_failure"]["message"]
    assert shown["failing"] == [f"webhook 127.0.0.1:{hooks.port}"]
    assert "t0ps3cret" not in rig.log() + json.dumps(shown)


def test_a_webhook_that_takes_it_later(rig: Rig, hooks: HookSink) -> None:
    """A 503 is followed by another attempt, and a redirect that keeps the request is followed."""
    told = {mode: {"report": {"webhook": {"url": hooks.url(mode)}}} for mode in ("503-then-ok", "307")}
    rig.start([job("exit 1", onFailure=told["503-then-ok"], onPermanentFailure=told["307"])])
    rig.fire()
    until(lambda: health(rig)["channels"]["webhook"] == {"delivered": 2, "failed": 0, "dropped": 0, "retried": 1})
    assert sorted(asked for asked, _, _ in hooks.requests) == [
        "POST 307", "POST 503-then-ok", "POST 503-then-ok", "POST ok"]


def test_101_any_output_is_a_sound_mail(rig: Rig, mails: MailSink, hooks: HookSink) -> None:
    """101: Bytes that are no text, a line with a lone dot, megabytes of output and a name beyond ASCII give one
    conforming message of bounded size to every recipient, and a webhook valid JSON."""
    command = r"printf 'gr\303\274n \377 \000 .\r\n.\r\n'; yes x | head -c 3000000; exit 1"
    report = {**mail_to(mails, to="b@example.org, c@example.org"), "webhook": {"url": hooks.url("ok")}}
    rig.start([job(command, captureStdout=True, onFailure={"report": report}) | {"name": "täglich"}])
    rig.fire("t%C3%A4glich")
    until(lambda: mails.messages and hooks.requests, what="both reports")
    (message,) = mails.messages
    assert mails.recipients == [["b@example.org", "c@example.org"]]
    assert message["Subject"] == "Cron job 'täglich' failed"
    assert not message.defects
    assert all(len(line) <= 998 and line.isascii() for line in mails.lines)
    text = message.get_content()
    text = text.replace("\r\n", "\n")
    assert "grün \ufffd \ufffd ." in text
    assert text.index("\n.\n") < text.index("x\nx\n")
    assert "characters left out" in text or "lines discarded" in text
    assert len(b"\r\n".join(mails.lines)) < 2_000_000
    assert "täglich" in json.loads(hooks.requests[0][2])["text"]


def test_a_broken_promise_is_told_once(rig: Rig, hooks: HookSink) -> None:
    """onLate with what was promised and what is seen; the run itself fails nothing."""
    body = ('{"check": {{ sla_check|tojson }}, "t": {{ threshold_seconds }}, "s": {{ observed_seconds }}, '
            '"r": "{{ stdout }}"}')
    rig.start([job("sleep 30", sla={"maxRuntimeSeconds": 0.5},
                   onLate={"report": {"webhook": {"url": hooks.url("ok"), "body": body}}})])
    run = rig.fire()
    until(lambda: hooks.requests, 15.0, "a request")
    told = json.loads(hooks.requests[0][2])
    assert (told["check"], told["t"], told["r"]) == ("maxRuntime", 0.5, "") and told["s"] > 0.5
    rig.http("POST", f"/runs/{run}/cancel", {"force": True})
    rig.recorded(run)
    assert len(hooks.requests) == 1


def test_an_event_for_sentry(rig: Rig, hooks: HookSink) -> None:
    """The envelope is one that Sentry's own library reads, at the place that it derives from the DSN; texts are cut."""
    dsn = f"http://k3y@127.0.0.1:{hooks.port}/sub/42"
    rig.environment["DSN"] = dsn
    rig.start([job("echo " + "x" * 500 + " >&2; exit 1", onFailure={"report": {"sentry": {
        "dsn": {"fromEnvVar": "DSN"}, "maxStringLength": 100, "environment": "test", "level": "warning",
        "extra": {"code": "{{ exit_code }}"}}}})])
    run = rig.fire()
    until(lambda: hooks.requests, what="an event")
    ((asked, headers, body),) = hooks.requests
    assert asked == "POST " + urlsplit(Dsn(dsn).to_auth().get_api_url()).path.lstrip("/")
    assert "sentry_key=k3y" in headers["X-Sentry-Auth"]
    (item,) = Envelope.deserialize(body).items
    event = item.get_event()
    assert event is not None
    assert event["level"] == "warning" and event["environment"] == "test"
    assert event["fingerprint"][0] == "sexton" and event["fingerprint"][2] == "j"
    assert event["extra"]["run"] == run and event["extra"]["code"] == "1"
    assert len(event["logentry"]["formatted"]) == 100


def test_unread_reports_do_not_delay_the_end(rig: Rig, hooks: HookSink) -> None:
    """What is queued at SIGTERM is still delivered, also of a run that fails while the daemon waits for it."""
    rig.start([job("sleep 1; exit 1", onFailure={"report": {"webhook": {"url": hooks.url("ok")}}})])
    rig.running(rig.fire())
    assert rig.process is not None
    rig.process.terminate()
    assert rig.wait(20) == 0
    assert len(hooks.requests) == 1

"""onUnconfirmed, as it arrives: a run that was stopped and could not be terminated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from page_kit import at
from refused_kit import needs_root, refused
from rig import Rig, alive, always, until
from sinks import HookSink, MailSink

pytestmark = needs_root

BODY = (
    '{"job": {{ name|tojson }}, "run": {{ run_id|tojson }}, "cause": {{ stop.cause|tojson }}, '
    '"confirmed": {{ stop.confirmed_at|tojson }}, "gone": {{ gone.state|tojson }}, '
    '"left": {{ gone.survivors|map(attribute="pid")|list|tojson }}}'
)


def told(hooks: HookSink, **events: str) -> dict[str, Any]:
    return {event: {"report": {"webhook": {"url": hooks.url(mode), "body": BODY}}} for event, mode in events.items()}


def asked(hooks: HookSink, mode: str) -> list[Any]:
    return [json.loads(body) for path, _, body in hooks.requests if path == f"POST {mode}"]


@pytest.mark.parametrize("cause", ["timeout", "cancel"])
def test_one_that_could_not_be_terminated_is_told_of(
    weak: Rig, hooks: HookSink, mails: MailSink, cause: str,
) -> None:
    """Once, with the process that is left, for a timeout (besides the failure) and for a cancel (which is told of by
    nothing else); when the process has gone by itself nothing follows."""
    options: dict[str, Any] = told(hooks, onFailure="failure", onUnconfirmed="unconfirmed")
    options["onUnconfirmed"]["report"]["mail"] = {
        "from": "sexton@example.org", "to": "ops@example.org", "smtpHost": "127.0.0.1", "smtpPort": mails.port}
    if cause == "timeout":
        options["executionTimeout"] = 0.5
    weak.start([refused("j", 6.0, killTimeout=0.2, **options)])
    run = weak.fire()
    pid = weak.running(run)
    if cause == "cancel":
        assert weak.http("POST", f"/runs/{run}/cancel?wait=30")[0] == 200
    (found,) = until(lambda: asked(hooks, "unconfirmed"), 20, "the report")
    assert (found["job"], found["run"], found["cause"]) == ("j", run, cause)
    assert found["confirmed"] is None and found["gone"] == "survivors" and pid in found["left"]
    (message,) = until(lambda: mails.messages, 10, "the mail")
    assert message["Subject"] == "Cron job 'j' could not be terminated" and str(pid) in message.get_content()
    until(lambda: not alive(pid), 10, "the process ends by itself")
    until(lambda: weak.run(run)["gone"]["state"] == "proven", 10, "it is seen")
    assert at(weak.run(run)["stop"]["confirmed_at"]) > at(weak.run(run)["finished_at"])
    always(lambda: len(asked(hooks, "unconfirmed")) == len(mails.messages) == 1, 0.3)
    assert len(asked(hooks, "failure")) == (1 if cause == "timeout" else 0)


def test_one_that_was_terminated_is_not(weak: Rig, hooks: HookSink) -> None:
    """A process that may be signalled and is gone is nothing of that kind."""
    weak.start([{"name": "j", "command": "exec sleep 600", "schedule": "0 0 1 1 *", "executionTimeout": 0.3,
                 "killTimeout": 0.2, **told(hooks, onTimeout="timeout", onUnconfirmed="unconfirmed")}])
    assert weak.recorded(weak.fire())["gone"]["state"] == "proven"
    until(lambda: asked(hooks, "timeout"), 10, "the report of the timeout")
    always(lambda: not asked(hooks, "unconfirmed"), 0.3)

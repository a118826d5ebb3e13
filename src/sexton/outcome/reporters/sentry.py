"""A report as one event in an envelope, as Sentry's ingestion takes it. Their library would keep a queue, threads and
hooks of its own; here a delivery is seen to arrive, bounded and counted like any other."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from sexton import __version__
from sexton.model.report import SentryReport
from sexton.model.secret import SecretSource
from sexton.outcome.reporters.attempt import Attempt, NotDelivered
from sexton.outcome.reporters.facts import command_text
from sexton.outcome.reporters.network import USER_AGENT, request
from sexton.outcome.reporters.secrets import look_up
from sexton.outcome.reporters.templates import Page

SECONDS = 10.0
"""For one exchange."""


BY_DEFAULT = SentryReport(dsn=SecretSource()).fingerprint
LATE = ("sexton", "sla", "{{ name }}")
"""The usual fingerprint of a broken promise."""


class Dsn(NamedTuple):
    endpoint: str
    key: str


def parse_dsn(text: str) -> Dsn:
    """`https://KEY@HOST[:PORT]/[PATH/]PROJECT`. Raises NotDelivered, without quoting it: the key is in it."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise NotDelivered("dsn: not an address") from None
    path, _, project = parts.path.rpartition("/")
    if parts.scheme not in ("http", "https") or not host or not parts.username or not project:
        raise NotDelivered("dsn: expected https://KEY@HOST/PROJECT")
    where = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    return Dsn(f"{parts.scheme}://{where}{path}/api/{project}/envelope/", parts.username)


def event_of(settings: SentryReport, page: Page) -> dict[str, Any]:
    """The event, with every text cut at `maxStringLength` and without secrets. Raises TemplateTrouble."""
    facts, limit = page.facts, settings.max_string_length
    record = facts.record

    def cut(text: str) -> str:
        text = facts.redact(text)
        return text if len(text) <= limit else text[: limit - 3] + "..."

    message = page.body(settings.body) if settings.body is not None else f"{page.subject()}\n\n{page.body()}"
    own = {
        "run": record.launch.id, "exit_code": record.exit_code, "fail_reason": record.fail_reason,
        "command": command_text(facts.job.command), "outcome": record.outcome.value if record.outcome else None,
        "stop_cause": record.stop.cause.value if record.stop else None,
        "gone": record.gone.state.value if record.gone else None,
    }
    prints = settings.fingerprint
    if facts.breach is not None and prints == BY_DEFAULT:
        prints = LATE
    extra = {name: page.fill(text) for name, text in settings.extra}
    event: dict[str, Any] = {
        "event_id": uuid.uuid4().hex,
        "timestamp": datetime.now(UTC).isoformat(),
        "platform": "other",
        "level": settings.level,
        "logger": "sexton",
        "server_name": record.launch.node,
        "release": f"sexton@{__version__}",
        "logentry": {"formatted": cut(message)},
        "fingerprint": [cut(page.fill(text)) for text in prints],
        "tags": {"job": cut(facts.job.name), "event": facts.event.value},
        "extra": {
            name: cut(value) if isinstance(value, str) else value for name, value in {**own, **extra}.items()
        },
    }
    if settings.environment:
        event["environment"] = settings.environment
    return event


def envelope_of(event: dict[str, Any]) -> bytes:
    payload = json.dumps(event).encode()
    header = {"event_id": event["event_id"], "sent_at": event["timestamp"]}
    item = {"type": "event", "content_type": "application/json", "length": len(payload)}
    return b"\n".join((json.dumps(header).encode(), json.dumps(item).encode(), payload, b""))


def deliver(settings: SentryReport, page: Page, attempt: Attempt) -> None:
    """Raises NotDelivered, OutOfTime, TemplateTrouble."""
    dsn = parse_dsn(look_up(settings.dsn, "dsn"))
    headers = {
        "Content-Type": "application/x-sentry-envelope",
        "X-Sentry-Auth": f"Sentry sentry_version=7, sentry_client={USER_AGENT}, sentry_key={dsn.key}",
    }
    body = envelope_of(event_of(settings, page))
    request(dsn.endpoint, attempt, method="POST", headers=headers, body=body)


def destination_of(settings: SentryReport) -> str:
    """A name for the place: host and port, never the key."""
    if settings.dsn.value is None:
        return f"sentry from {settings.dsn.from_file or settings.dsn.from_env_var}"
    try:
        return f"sentry {urlsplit(settings.dsn.value).netloc.rpartition('@')[2]}"
    except ValueError:
        return "sentry"

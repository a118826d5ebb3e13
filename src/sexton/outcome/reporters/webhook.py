"""A report as one HTTP request."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from sexton.model.report import WebhookReport
from sexton.outcome.reporters.attempt import Attempt, NotDelivered
from sexton.outcome.reporters.network import request
from sexton.outcome.reporters.secrets import look_up
from sexton.outcome.reporters.templates import Page

MAX_TEXT_CHARACTERS = 30_000
"""Of the usual body: Slack cuts a message at 40,000."""


def usual_body(page: Page) -> str:
    """`{"text": "<subject>\\n\\n<body>"}`."""
    text = f"{page.subject()}\n\n{page.body()}"
    if len(text) > MAX_TEXT_CHARACTERS:
        text = text[:MAX_TEXT_CHARACTERS] + "\n[.... cut ....]"
    return json.dumps({"text": text})


def deliver(settings: WebhookReport, page: Page, attempt: Attempt) -> None:
    """Raises NotDelivered, OutOfTime, TemplateTrouble."""
    url = look_up(settings.url, "url")
    if not url.isprintable() or " " in url:
        raise NotDelivered("its address contains a space or a control character")
    headers = {"Content-Type": settings.content_type, **dict(settings.headers)}
    body = usual_body(page) if settings.body is None else page.body(settings.body)
    request(url, attempt, method=settings.method, headers=headers, body=body.encode("utf-8", "replace"))


def destination_of(settings: WebhookReport) -> str:
    """A name for the place: host and port, never path or query."""
    if settings.url.value is None:
        return f"webhook from {settings.url.from_file or settings.url.from_env_var}"
    try:
        return f"webhook {urlsplit(settings.url.value).netloc.rpartition('@')[2]}"
    except ValueError:
        return "webhook"

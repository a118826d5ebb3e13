"""Whom to tell of a run, and how: the `report` blocks of a job. Names and defaults are those of the reference daemon.

Texts may be Jinja2 templates. A destination of which a needed part is null is switched off.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from sexton.model.secret import SecretSource


class MailReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One mail by SMTP."""

    sender: str
    to: str
    """One or more addresses, separated by commas."""
    smtp_host: str
    smtp_port: int = 25
    tls: bool = False
    """TLS from the first byte."""
    starttls: bool = False
    validate_certs: bool = True
    html: bool = False
    subject: str | None = None
    """A template; None is the usual subject."""
    body: str | None = None
    username: str | None = None
    password: SecretSource | None = None


class WebhookReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One HTTP request. The address may carry a token: it is treated as a secret."""

    url: SecretSource
    method: str = "POST"
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    """A template; None is `{"text": ...}`, which Slack and those that imitate it take."""
    timeout: float = 10.0
    """Seconds for the whole exchange."""


class ShellReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One command, with the facts in its environment."""

    command: str | tuple[str, ...]
    shell: str = "/bin/sh"
    timeout: float = 60.0
    """Seconds; then its process group is killed."""


class SentryReport(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """One event for Sentry."""

    dsn: SecretSource
    fingerprint: tuple[str, ...] = ("sexton", "{{ environment.HOSTNAME }}", "{{ name }}")
    level: str = "error"
    extra: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    environment: str | None = None
    max_string_length: int = 8192


class Report(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """The destinations of one event. All that are set are told."""

    mail: MailReport | None = None
    webhook: WebhookReport | None = None
    shell: ShellReport | None = None
    sentry: SentryReport | None = None

    def __bool__(self) -> bool:
        return any((self.mail, self.webhook, self.shell, self.sentry))


class ReportEvent(Enum):
    """What is reported of a run."""

    FAILURE = "failure"
    """Of each attempt."""
    PERMANENT_FAILURE = "permanent failure"
    """No further attempt follows."""
    SUCCESS = "success"
    TIMEOUT = "timeout"
    """It was ended by its executionTimeout; told besides the failure."""
    UNCONFIRMED = "unconfirmed"
    """It was stopped, and something of it may be left, whatever the outcome."""
    LATE = "late"
    """A breach of its `sla`."""


class Reports(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """What a job wants told, by event."""

    on_failure: Report | None = None
    on_permanent_failure: Report | None = None
    on_success: Report | None = None
    on_timeout: Report | None = None
    on_unconfirmed: Report | None = None
    on_late: Report | None = None

    def of(self, event: ReportEvent) -> Report | None:
        report: Report | None = getattr(self, FIELDS[event])
        return report


FIELDS = {
    ReportEvent.FAILURE: "on_failure",
    ReportEvent.PERMANENT_FAILURE: "on_permanent_failure",
    ReportEvent.SUCCESS: "on_success",
    ReportEvent.TIMEOUT: "on_timeout",
    ReportEvent.UNCONFIRMED: "on_unconfirmed",
    ReportEvent.LATE: "on_late",
}

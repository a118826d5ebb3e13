"""The `report` blocks: which options exist and what they accept. Tables, as in `schema`."""

from __future__ import annotations

import re

from sexton.config.option import Kind, Option, Section, seconds, table

MAIL = Section(
    here="in `mail`",
    where="in `report.mail`",
    options=table(
        Option(name="from", field="sender", kind=Kind.TEXT, nullable=True, bare=True),
        Option(name="to", field="to", kind=Kind.TEXT, nullable=True, bare=True),
        Option(name="smtpHost", field="smtp_host", kind=Kind.TEXT, nullable=True),
        Option(name="smtpPort", field="smtp_port", kind=Kind.INTEGER, minimum=1, maximum=65535),
        Option(name="tls", field="tls", kind=Kind.BOOLEAN),
        Option(name="starttls", field="starttls", kind=Kind.BOOLEAN),
        Option(name="validate_certs", field="validate_certs", kind=Kind.BOOLEAN),
        Option(name="html", field="html", kind=Kind.BOOLEAN),
        Option(name="subject", field="subject", kind=Kind.TEMPLATE, nullable=True),
        Option(name="body", field="body", kind=Kind.TEMPLATE, nullable=True),
        Option(name="username", field="username", kind=Kind.TEXT, nullable=True),
        Option(name="password", field="password", kind=Kind.SECRET, nullable=True),
    ),
)

WEBHOOK = Section(
    here="in `webhook`",
    where="in `report.webhook`",
    options=table(
        Option(name="url", field="url", kind=Kind.SECRET, nullable=True),
        Option(name="method", field="method", kind=Kind.TEXT),
        Option(name="contentType", field="content_type", kind=Kind.TEXT),
        Option(name="headers", field="headers", kind=Kind.HEADERS),
        Option(name="body", field="body", kind=Kind.TEMPLATE, nullable=True),
        seconds("timeout", "timeout", above=0.0, maximum=3600.0),
    ),
)

SHELL = Section(
    here="in `shell`",
    where="in `report.shell`",
    options=table(
        Option(name="command", field="command", kind=Kind.COMMAND, interpolate=False, nullable=True),
        Option(name="shell", field="shell", kind=Kind.TEXT, interpolate=False),
        seconds("timeout", "timeout", above=0.0, maximum=3600.0),
    ),
)

SENTRY = Section(
    here="in `sentry`",
    where="in `report.sentry`",
    options=table(
        Option(name="dsn", field="dsn", kind=Kind.SECRET, nullable=True),
        Option(name="fingerprint", field="fingerprint", kind=Kind.TEMPLATE_LIST),
        Option(name="level", field="level", kind=Kind.TEXT, nullable=True),
        Option(name="extra", field="extra", kind=Kind.TEXT_MAP),
        Option(name="body", field="body", kind=Kind.TEMPLATE, nullable=True),
        Option(name="environment", field="environment", kind=Kind.TEXT, nullable=True),
        Option(name="maxStringLength", field="max_string_length", kind=Kind.INTEGER, minimum=16, maximum=1_000_000),
    ),
)

REPORT = Section(
    here="in `report`",
    where="in `report`",
    options=table(
        Option(name="mail", field="mail", kind=Kind.MAP, inside=MAIL),
        Option(name="webhook", field="webhook", kind=Kind.MAP, inside=WEBHOOK),
        Option(name="shell", field="shell", kind=Kind.MAP, inside=SHELL),
        Option(name="sentry", field="sentry", kind=Kind.MAP, inside=SENTRY),
    ),
    ignored=frozenset({"push", "eventlog"}),
)

SECRET = Section(
    here="in a secret",
    where="where a secret is named, in `password`, `url`, `dsn` or an entry of `secrets`",
    options=table(
        Option(name="value", field="value", kind=Kind.SECRET_VALUE, nullable=True),
        Option(name="fromFile", field="from_file", kind=Kind.DIRECTORY, nullable=True),
        Option(name="fromEnvVar", field="from_env_var", kind=Kind.TEXT, nullable=True, bare=True),
    ),
)

SECRETS = Section(
    here="in an entry of `secrets`",
    where="in an entry of `secrets`",
    options=table(Option(name="name", field="name", kind=Kind.TEXT), *SECRET.options.values()),
)

_REPORT = Option(name="report", field="report", kind=Kind.MAP, inside=REPORT)
ON_FAILURE = Section(
    here="in `onFailure`",
    where="in `onFailure`",
    options=table(Option(name="retry", field="retry", kind=Kind.RETRY), _REPORT),
)


def _on(name: str) -> Section:
    return Section(here=f"in `{name}`", where=f"in `{name}`", options=table(_REPORT))


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda found: "_" + found.group().lower(), name)


STATSD = Section(
    here="in `statsd`",
    where="in `statsd`",
    options=table(
        Option(name="prefix", field="prefix", kind=Kind.TEXT),
        Option(name="host", field="host", kind=Kind.TEXT),
        Option(name="port", field="port", kind=Kind.INTEGER, minimum=1, maximum=65535),
    ),
)

REACTIONS = ("onFailure", "onPermanentFailure", "onSuccess", "onTimeout", "onUnconfirmed", "onLate")
"""Options of a job that say whom to tell."""

JOB_REPORTS = tuple(
    Option(name=name, field=_snake(name), kind=Kind.MAP, inside=ON_FAILURE if name == "onFailure" else _on(name))
    for name in REACTIONS
)

REPORT_SECTIONS = (MAIL, WEBHOOK, SHELL, SENTRY, REPORT, SECRET, SECRETS, ON_FAILURE, STATSD)

"""Reading `report` blocks: nested maps that lie over those of `defaults` key by key, templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yaml import MappingNode, Node

from sexton.config.document import described
from sexton.config.mapping import fields, nearest, pairs
from sexton.config.reading import INVALID, Invalid, Reading, shown
from sexton.config.report_schema import JOB_REPORTS
from sexton.config.scalars import is_empty, is_null
from sexton.config.schema import Option
from sexton.config.templates import trouble_with
from sexton.config.values import items, scalar, words
from sexton.model.job import Place
from sexton.model.report import MailReport, Report, Reports, SentryReport, ShellReport, WebhookReport
from sexton.model.settings import Severity
from sexton.model.statsd import StatsdSettings

IGNORED = "ignored options"
"""Under this key a nested map carries the options in it that are not acted on."""

REPORT_FIELDS = tuple(option.field for option in JOB_REPORTS)

_KINDS: Mapping[str, tuple[type[Any], tuple[tuple[str, str], ...]]] = {
    "mail": (MailReport, (("sender", "from"), ("to", "to"), ("smtp_host", "smtpHost"))),
    "webhook": (WebhookReport, (("url", "url"),)),
    "shell": (ShellReport, (("command", "command"),)),
    "sentry": (SentryReport, (("dsn", "dsn"),)),
}
"""Of each destination: its type, and the parts without which it is none."""


def nested(reading: Reading, option: Option, node: Node) -> Any:
    """The options that are set in a map; null and nothing keep those of `defaults`."""
    if is_null(node) or is_empty(node):
        return {}
    if not isinstance(node, MappingNode):
        assert option.inside is not None
        known = ", ".join(option.inside.known())
        reading.error(node, f"`{option.name}`: expected a map, got {described(node)}", f"it takes {known}")
        return INVALID
    assert option.inside is not None
    values, _, ignored = fields(reading, node, option.inside)
    found = [f"{option.name}.{key}" for key in ignored]
    for value in values.values():
        if isinstance(value, dict):
            found += [f"{option.name}.{key}" for key in value.get(IGNORED, ())]
    if found:
        values[IGNORED] = tuple(found)
    return values


def merged_maps(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Put one nested map over another: maps merge by key, everything else replaces."""
    values = {**base, **over}
    for key in base.keys() & over.keys():
        if isinstance(base[key], dict) and isinstance(over[key], dict):
            values[key] = merged_maps(base[key], over[key])
        elif key in ("headers", "extra"):
            values[key] = tuple({**dict(base[key]), **dict(over[key])}.items())
    if IGNORED in base and IGNORED in over:
        values[IGNORED] = tuple(dict.fromkeys((*base[IGNORED], *over[IGNORED])))
    return values


def reports_of(reading: Reading, values: dict[str, Any], place: Place) -> tuple[Reports | None, tuple[str, ...]]:
    """Take the report options out of a job's values: what the job wants told, and what of it is not acted on."""
    found: dict[str, Report] = {}
    ignored: list[str] = []
    for option in JOB_REPORTS:
        block = values.pop(option.field, None)
        if block is None:
            continue
        ignored += block.get(IGNORED, ())
        report = _report(reading, block.get("report") or {}, option.name, place)
        if report:
            found[option.field] = report
            if option.name == "onLate" and values.get("sla") is None:
                reading.report(Severity.WARNING, place, "`onLate` tells nothing: the job has no `sla`",
                               "write for example `sla: {maxTimeSinceSuccessSeconds: 90000}`")
    return (Reports(**found) if found else None), tuple(ignored)


def _report(reading: Reading, block: Mapping[str, Any], event: str, place: Place) -> Report:
    made: dict[str, Any] = {}
    for name, (kind, needed) in _KINDS.items():
        parts = block.get(name)
        if not parts or not _complete(reading, parts, needed, f"{event}.report.{name}", place):
            continue
        known = {key: value for key, value in parts.items() if value is not None and key != IGNORED}
        made[name] = kind(**known)
        if kind is MailReport and made[name].tls and made[name].starttls:
            reading.report(Severity.ERROR, place, f"`{event}.report.mail` has both `tls` and `starttls`",
                           "tls begins with TLS (port 465), starttls turns to it (port 587): keep one")
    return Report(**made)


def _complete(
    reading: Reading, parts: Mapping[str, Any], needed: tuple[tuple[str, str], ...], where: str, place: Place,
) -> bool:
    """Whether a destination is one. A needed part that is null switches it off; one that is missing is an error, but
    for `smtpHost`, without which the reference daemon sends nothing and says nothing."""
    if any(field in parts and parts[field] is None for field, _ in needed):
        return False
    missing = [name for field, name in needed if field not in parts]
    if missing == ["smtpHost"]:
        reading.report(Severity.WARNING, place, f"`{where}` has no `smtpHost`: no mail is sent",
                       "give one, or write `smtpHost: null` to switch it off")
    elif missing:
        names = " and ".join(f"`{name}`" for name in missing)
        reading.report(Severity.ERROR, place, f"`{where}` has no {names}",
                       f"write `{missing[0]}: null` to switch it off")
    return not missing


def statsd_of(reading: Reading, values: Mapping[str, Any] | None, place: Place) -> StatsdSettings | None:
    """Where a job's figures go; None for nowhere."""
    if not values:
        return None
    missing = [f"`{name}`" for name in ("prefix", "host", "port") if name not in values]
    if missing:
        reading.report(Severity.ERROR, place, f"`statsd` has no {' and '.join(missing)}")
        return None
    return StatsdSettings(**values)


def template(reading: Reading, option: Option, node: Node) -> Any:
    """Text that may be a Jinja2 template: one that cannot be read is an error, an unknown variable a warning."""
    if is_null(node) or is_empty(node):
        return None
    value = scalar(reading, option, node, "text")
    if value is not INVALID:
        value = words(reading, node, str(value), option.name)
    if isinstance(value, Invalid):
        return INVALID
    return value if _check_template(reading, option, node, value) else INVALID


def _check_template(reading: Reading, option: Option, node: Node, value: str) -> bool:
    trouble = trouble_with(value)
    if trouble is None:
        return True
    if trouble.fatal:
        reading.error(node, f"`{option.name}`: line {trouble.line} of the template: {trouble.message}")
        return False
    for unknown in trouble.unknown:
        close = nearest(unknown, list(trouble.known))
        hint = f"did you mean `{close}`?" if close else None
        message = f"`{option.name}`: no report has a variable {shown(unknown)}"
        reading.report(Severity.WARNING, reading.place(node), message, hint)
    return True


def template_list(reading: Reading, option: Option, node: Node) -> Any:
    entries = items(reading, option, node, "text")
    if isinstance(entries, Invalid):
        return INVALID
    values = [template(reading, option, entry) for entry in entries]
    return INVALID if INVALID in values else tuple(str(value or "") for value in values)


def text_pairs(reading: Reading, option: Option, node: Node) -> Any:
    """Pairs of name and any text."""
    if is_null(node) or is_empty(node):
        return ()
    if not isinstance(node, MappingNode):
        reading.error(node, f"`{option.name}`: expected a map, got {described(node)}")
        return INVALID
    result = []
    for key, _, value_node in pairs(reading, node):
        value = template(reading, option, value_node)
        if value is INVALID:
            return INVALID
        result.append((key, value or ""))
    return tuple(result)

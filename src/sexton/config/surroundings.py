"""Values that depend on the machine: time zones, folders, accounts, variables from a file."""

from __future__ import annotations

import os
import string
from typing import Any

import msgspec
from yaml import MappingNode, Node

from sexton.config.document import decode, described
from sexton.config.files import read_bytes
from sexton.config.mapping import fields, nearest
from sexton.config.reading import INVALID, Invalid, Reading, Zones, shown
from sexton.config.scalars import INTEGER, is_empty, is_null
from sexton.config.schema import ENVIRONMENT_ENTRY, Option
from sexton.config.values import items, scalar, text, words
from sexton.model.job import Place
from sexton.model.secret import SecretSource
from sexton.model.settings import Severity


class EnvFile(msgspec.Struct, frozen=True):
    """Where variables are to be read from, and where the configuration says so."""

    path: str
    place: Place


def timezone(reading: Reading, option: Option, node: Node) -> Any:
    """An IANA time zone that this machine knows."""
    value = text(reading, option, node)
    if value is INVALID or value is None:
        return value
    trouble = zone_trouble(value, reading.zones)
    if trouble is None:
        return value
    message, hint = trouble
    reading.error(node, f"`timezone`: {message}", hint)
    return INVALID


def zone_trouble(zone: str, known: Zones) -> tuple[str, str | None] | None:
    """Decide whether a time zone exists here: None, or what is wrong and what may have been meant."""
    if zone not in known:
        known[zone] = None if _zone_exists(zone) else _unknown_zone(zone)
    return known[zone]


def _unknown_zone(zone: str) -> tuple[str, str | None]:
    from zoneinfo import available_timezones

    close = nearest(zone, sorted(available_timezones()))
    return f"unknown time zone {shown(zone)}", f"did you mean `{close}`?" if close else None


def _zone_exists(zone: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(zone)
    except (LookupError, ValueError, OSError):
        return False
    return True


def directory(reading: Reading, option: Option, node: Node) -> Any:
    """An absolute path; a relative one counts from the folder of the configuration file."""
    if option.nullable and (is_empty(node) or (is_null(node) and node.value != "~")):
        return None
    value = scalar(reading, option, node, "a path")
    if value is not INVALID:
        value = words(reading, node, str(value), option.name)
    if value is INVALID:
        return INVALID
    expanded = absolute(str(value), reading)
    if expanded is None or not value:
        reading.error(node, f"`{option.name}`: cannot tell which folder {shown(str(value))} is")
        return INVALID
    return expanded


def absolute(path: str, reading: Reading) -> str | None:
    """Expand `~` and make a path absolute, relative to the file that is being read. None: no such home."""
    if path == "~" or path.startswith("~/"):
        home = reading.environ.get("HOME") or os.path.expanduser("~")
        path = home + path[1:]
    elif path.startswith("~"):
        path = os.path.expanduser(path)
    if path.startswith("~"):
        return None
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(reading.path)), path))


def account(reading: Reading, option: Option, node: Node) -> Any:
    """A user or group by name, or by number."""
    value = text(reading, option, node)
    if value is INVALID or value is None:
        return value
    if INTEGER.fullmatch(value) is None:
        return value
    if 0 <= int(value) < 2**32 - 1:
        return int(value)
    reading.error(node, f"`{option.name}`: there is no id {value}")
    return INVALID


def prefix(reading: Reading, option: Option, node: Node) -> Any:
    """Text in which only {job_name} and {stream_name} stand for something; empty for no prefix."""
    value = scalar(reading, option, node, "text")
    if value is not INVALID:
        value = words(reading, node, str(value), option.name)
    if value is INVALID:
        return INVALID
    try:
        parts = list(string.Formatter().parse(str(value)))
    except ValueError as error:
        reading.error(node, f"`{option.name}`: {error}", "write `{{` for a literal brace")
        return INVALID
    for _, field, form, conversion in parts:
        if field is not None and (field not in ("job_name", "stream_name") or form or conversion):
            hint = "only {job_name} and {stream_name} are known; write `{{` for a literal brace"
            reading.error(node, f"`{option.name}`: unknown placeholder {{{field}}}", hint)
            return INVALID
    return value


def environment(reading: Reading, option: Option, node: Node) -> Any:
    """Pairs of variable and value from a list of `key` and `value`."""
    if isinstance(node, MappingNode):
        hint = "write `- key: NAME` and below it `value: ...`"
        reading.error(node, "`environment`: expected a list, got a map", hint)
        return INVALID
    entries = items(reading, option, node, "`key` and `value`")
    if isinstance(entries, Invalid):
        return INVALID
    result: dict[str, str | SecretSource] = {}
    sound = True
    for entry in entries:
        pair = _variable(reading, entry)
        if pair is None:
            sound = False
            continue
        if pair[0] in result:
            reading.warning(entry, f"`environment` sets {pair[0]} twice: the last one counts")
        result[pair[0]] = pair[1]
    return tuple(result.items()) if sound else INVALID


def _variable(reading: Reading, entry: Node) -> tuple[str, str | SecretSource] | None:
    if not isinstance(entry, MappingNode):
        hint = "write `- key: NAME` and below it `value: ...`"
        reading.error(entry, f"`environment`: expected `key` and `value`, got {described(entry)}", hint)
        return None
    before = len(reading.findings)
    values, _, _ = fields(reading, entry, ENVIRONMENT_ENTRY)
    places = [part for part in ("value", "from_file", "from_env_var") if part in values]
    missing = [part for part in ("key", "value") if part not in (*values, *(["value"] if places else []))]
    if len(reading.findings) > before:
        return None
    if len(places) > 1:
        reading.error(entry, "`environment`: an entry with more than one of `value`, `fromFile` and `fromEnvVar`")
        return None
    if missing:
        reading.error(entry, f"`environment`: an entry without `{missing[0]}`")
        return None
    if "=" in values["key"] or "\n" in values["key"]:
        reading.error(entry, f"`environment`: {shown(values['key'])} cannot be the name of a variable")
        return None
    if "value" in values:
        return values["key"], values["value"]
    return values["key"], SecretSource(**{places[0]: values[places[0]]})


def variable_value(reading: Reading, option: Option, node: Node) -> Any:
    """Any text, as it stands; also nothing."""
    if is_empty(node):
        return ""
    value = scalar(reading, option, node, "text")
    return INVALID if value is INVALID else words(reading, node, str(value), option.name)


def env_file(reading: Reading, option: Option, node: Node) -> Any:
    """The path of a file of variables; it is read when it is known which jobs use it."""
    path = directory(reading, option, node)
    return path if path is INVALID or path is None else EnvFile(path, reading.place(node))


def read_env_file(reading: Reading, file: EnvFile) -> tuple[tuple[str, str], ...]:
    """Read KEY=VALUE lines; `#` begins a comment line. What is wrong is a finding in that file."""
    reading.sources[file.path] = None
    data = read_bytes(file.path)
    if isinstance(data, str):
        reading.report(Severity.ERROR, file.place, f"`env_file`: {data}")
        return ()
    inner = reading.for_file(file.path)
    content = decode(inner, data)
    result: dict[str, str] = {}
    for number, line in enumerate((content or "").split("\n"), 1):
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        key, equals, value = entry.partition("=")
        key = key.strip()
        if not equals or not key or len(key.split()) != 1 or "\0" in entry:
            hint = "leave out `export`" if key.startswith("export ") else None
            message = f"expected KEY=VALUE, got {shown(entry)}"
            inner.report(Severity.ERROR, Place(file.path, number, 1), message, hint)
            continue
        result[key] = value.strip()
    return tuple(result.items())

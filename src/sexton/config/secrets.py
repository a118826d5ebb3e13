"""Reading where secrets are. No message shows what one is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yaml import MappingNode, Node, ScalarNode

from sexton.config.document import described
from sexton.config.interpolate import InterpolationError, interpolate
from sexton.config.mapping import fields
from sexton.config.reading import INVALID, Invalid, Reading, shown
from sexton.config.report_schema import SECRET, SECRETS
from sexton.config.scalars import is_empty, is_null
from sexton.config.schema import Option
from sexton.config.values import CONTROL_IN_TEXT, items
from sexton.model.secret import Secret, SecretSource

HINT = "write one of `value: ...`, `fromFile: PATH` and `fromEnvVar: NAME`"


def secret_value(reading: Reading, option: Option, node: Node) -> Any:
    """The secret itself, as it stands in the file."""
    if is_null(node) or is_empty(node):
        return None
    if not isinstance(node, ScalarNode):
        reading.error(node, f"`{option.name}`: expected text, got {described(node)}", HINT)
        return INVALID
    try:
        value = interpolate(node.value, reading.environ)
    except InterpolationError:
        hint = "write $$ for a dollar sign, or set the variable for the daemon"
        reading.error(node, f"`{option.name}`: a `${{...}}` in it cannot be replaced", hint)
        return INVALID
    if CONTROL_IN_TEXT.search(value):
        reading.error(node, f"`{option.name}` contains a control character")
        return INVALID
    return value


def secret(reading: Reading, option: Option, node: Node) -> Any:
    """A map with one of `value`, `fromFile`, `fromEnvVar`; plain text is the value itself. null is none."""
    if is_null(node) or is_empty(node):
        return None
    if isinstance(node, ScalarNode):
        value = secret_value(reading, option, node)
        return INVALID if value is INVALID else SecretSource(value=value)
    if not isinstance(node, MappingNode):
        reading.error(node, f"`{option.name}`: expected a map, got {described(node)}", HINT)
        return INVALID
    before = len(reading.findings)
    values, _, _ = fields(reading, node, SECRET)
    return INVALID if len(reading.findings) > before else source_of(reading, option.name, node, values)


def source_of(reading: Reading, name: str, node: Node, values: Mapping[str, Any]) -> Any:
    """The one place that is named; None when all are null."""
    found = {key: value for key, value in values.items() if value is not None}
    if not found and values:
        return None
    if len(found) != 1:
        reading.error(node, f"`{name}`: expected one place for the secret, got {len(found)}", HINT)
        return INVALID
    return SecretSource(**found)


def secrets(reading: Reading, option: Option, node: Node) -> Any:
    """A list of names, each with a place."""
    entries = items(reading, option, node, "`name` and where the secret is")
    if isinstance(entries, Invalid):
        return INVALID
    result: dict[str, Secret] = {}
    sound = True
    for entry in entries:
        made = _entry(reading, entry)
        if made is None:
            sound = False
            continue
        if made.name in result:
            reading.warning(entry, f"`secrets` names {made.name} twice: the last one counts")
        result[made.name] = made
    return tuple(result.values()) if sound else INVALID


def _entry(reading: Reading, entry: Node) -> Secret | None:
    if not isinstance(entry, MappingNode):
        reading.error(entry, f"`secrets`: expected `name` and where it is, got {described(entry)}", HINT)
        return None
    before = len(reading.findings)
    values, _, _ = fields(reading, entry, SECRETS)
    name = values.pop("name", None)
    if len(reading.findings) > before:
        return None
    if name is None:
        reading.error(entry, "`secrets`: an entry without `name`")
        return None
    if "=" in name or "\n" in name:
        reading.error(entry, f"`secrets`: {shown(name)} cannot be the name of a variable")
        return None
    source = source_of(reading, f"secrets: {name}", entry, values)
    if source is None or source is INVALID:
        if source is None:
            reading.error(entry, f"`secrets: {name}`: expected one place for the secret, got none", HINT)
        return None
    return Secret(name=name, source=source)


def merged(base: tuple[Secret, ...], over: tuple[Secret, ...]) -> tuple[Secret, ...]:
    """By name; those of `over` win."""
    return tuple({secret.name: secret for secret in (*base, *over)}.values())


def split(values: dict[str, Any]) -> None:
    """Variables of `environment` whose value is in a file or variable are secrets, beneath those of `secrets`."""
    variables = values.get("environment", ())
    found = tuple(Secret(name=key, source=value) for key, value in variables if isinstance(value, SecretSource))
    if found:
        values["environment"] = tuple(pair for pair in variables if not isinstance(pair[1], SecretSource))
        values["secrets"] = merged(found, values.get("secrets", ()))

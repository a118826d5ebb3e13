"""The value of one option, by its kind. Each reader answers with the value, or INVALID after a finding."""

from __future__ import annotations

import math
import re
from typing import Any

from yaml import MappingNode, Node, ScalarNode, SequenceNode

from sexton.config.document import described
from sexton.config.interpolate import InterpolationError, interpolate
from sexton.config.mapping import fields, nearest, pairs, section
from sexton.config.reading import INVALID, Invalid, Reading, shown
from sexton.config.scalars import BOOLEANS, INTEGER, NUMBER, is_empty, is_null
from sexton.config.schema import FAILS_WHEN, MAX_NAME_CHARACTERS, SCHEDULE, Option
from sexton.model.job import ScheduleFields

_BOOLEAN_WORDS = {"yes": "true", "on": "true", "y": "true", "1": "true"} | {
    "no": "false", "off": "false", "n": "false", "0": "false",
}  # fmt: skip
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
CONTROL_IN_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")


def scalar(reading: Reading, option: Option, node: Node, wanted: str) -> str | Invalid:
    """The text of a scalar, as it stands; lists, maps and empty values are errors."""
    if not isinstance(node, ScalarNode):
        reading.error(node, f"`{option.name}`: expected {wanted}, got {described(node)}")
        return INVALID
    if node.value == "" and not node.style:
        hint = "write `null` for none, or remove the line" if option.nullable else "give it a value"
        reading.error(node, f"`{option.name}` is empty: expected {wanted}", hint)
        return INVALID
    return str(node.value)


def is_none(option: Option, node: Node) -> bool:
    """`null` where the option knows it, and nothing at all where it takes that for null."""
    return option.nullable and (is_null(node) or (option.bare and is_empty(node)))


def words(reading: Reading, node: Node, value: str, name: str, *, replace: bool = True) -> str | Invalid:
    """Text with its `${...}` replaced and without control characters other than tab and line ends."""
    if replace and "$" in value:
        try:
            value = interpolate(value, reading.environ)
        except InterpolationError as error:
            reading.error(node, f"`{name}`: {error}", error.hint)
            return INVALID
    if CONTROL_IN_TEXT.search(value):
        reading.error(node, f"`{name}` contains a control character: {shown(value)}")
        return INVALID
    return value


def text(reading: Reading, option: Option, node: Node) -> Any:
    """Text that is not empty; null where the option knows it."""
    if is_none(option, node):
        return None
    if is_null(node):
        message = f"`{option.name}`: expected text, got null"
        reading.error(node, message, "put it in quotes if the word is meant")
        return INVALID
    value = scalar(reading, option, node, "text")
    if value is INVALID:
        return INVALID
    value = words(reading, node, str(value), option.name, replace=option.interpolate)
    if value == "":
        reading.error(node, f"`{option.name}` is empty: expected text")
        return INVALID
    return value


def boolean(reading: Reading, option: Option, node: Node) -> Any:
    """`true` or `false`, quoted or not."""
    value = scalar(reading, option, node, "true or false")
    if value is INVALID:
        return INVALID
    answer = BOOLEANS.get(str(value))
    if answer is None:
        instead = _BOOLEAN_WORDS.get(str(value).lower())
        hint = f"write `{instead}`" if instead else None
        reading.error(node, f"`{option.name}`: expected true or false, got {shown(str(value))}", hint)
        return INVALID
    return answer


def integer(reading: Reading, option: Option, node: Node) -> Any:
    """A whole number within the bounds of the option."""
    if is_none(option, node):
        return None
    wanted = f"a whole number{option.unit}"
    value = scalar(reading, option, node, wanted)
    if value is INVALID:
        return INVALID
    if INTEGER.fullmatch(str(value)) is None:
        reading.error(node, f"`{option.name}`: expected {wanted}, got {shown(str(value))}")
        return INVALID
    return _in_range(reading, option, node, int(str(value)))


def number(reading: Reading, option: Option, node: Node) -> Any:
    """A finite number within the bounds of the option."""
    if is_none(option, node):
        return None
    wanted = f"a number{option.unit}"
    value = scalar(reading, option, node, wanted)
    if value is INVALID:
        return INVALID
    if NUMBER.fullmatch(str(value)) is None or not math.isfinite(float(str(value))):
        hint = "write `null` for no limit" if option.nullable else None
        reading.error(node, f"`{option.name}`: expected {wanted}, got {shown(str(value))}", hint)
        return INVALID
    return _in_range(reading, option, node, float(str(value)))


def _in_range(reading: Reading, option: Option, node: Node, value: float) -> Any:
    bound = None
    if option.above is not None and not value > option.above:
        bound = f"must be above {option.above:g}"
    elif option.minimum is not None and not value >= option.minimum:
        bound = f"must be at least {option.minimum:g}"
    elif not abs(value) <= option.maximum:
        bound = f"must be at most {option.maximum:g}"
    if bound is None:
        return value
    reading.error(node, f"`{option.name}` {bound}, got {node.value}")
    return INVALID


def choice(reading: Reading, option: Option, node: Node) -> Any:
    """One of the words of the option, in its exact spelling."""
    assert option.choices is not None
    known = [str(member.value) for member in option.choices]
    wanted = f"one of {', '.join(known)}"
    value = scalar(reading, option, node, wanted)
    if value is INVALID:
        return INVALID
    try:
        return option.choices(value)
    except ValueError:
        close = nearest(str(value), known)
        hint = f"did you mean `{close}`?" if close else None
        reading.error(node, f"`{option.name}`: expected {wanted}, got {shown(str(value))}", hint)
        return INVALID


def name(reading: Reading, option: Option, node: Node) -> Any:
    """A job's name: one line, at most 255 characters, usable as one step of an address."""
    value = text(reading, option, node)
    if value is INVALID:
        return INVALID
    trouble = name_trouble(value)
    if trouble:
        reading.error(node, f"`{option.name}` {trouble}: {shown(value)}")
        return INVALID
    return value


def name_trouble(value: str) -> str | None:
    """Decide why a job cannot be called so; None if it can."""
    if CONTROL.search(value):
        return "contains a control character"
    if value in (".", ".."):
        return "cannot be part of an address"
    if value != value.strip():
        return "begins or ends with a space"
    if len(value) > MAX_NAME_CHARACTERS:
        return f"is longer than {MAX_NAME_CHARACTERS} characters"
    return None


def command(reading: Reading, option: Option, node: Node) -> Any:
    """Text for a shell, or a list of arguments that is executed as it stands."""
    if isinstance(node, MappingNode):
        reading.error(node, "`command`: expected text or a list, got a map", "put the command in quotes")
        return INVALID
    if not isinstance(node, SequenceNode):
        value = text(reading, option, node)
        if value is not INVALID and not value.strip():
            reading.error(node, "`command` is empty")
            return INVALID
        return value
    arguments = []
    for item in node.value:
        if not isinstance(item, ScalarNode):
            hint = "put the argument in quotes"
            reading.error(item, f"`command`: expected a text as argument, got {described(item)}", hint)
            return INVALID
        argument = words(reading, item, item.value, "command", replace=False)
        if argument is INVALID:
            return INVALID
        arguments.append(argument)
    if not arguments or not arguments[0]:
        reading.error(node, "`command` is empty: the list must begin with a program")
        return INVALID
    return tuple(arguments)


def schedule(reading: Reading, option: Option, node: Node) -> Any:
    """A cron expression, or a map with exactly one expression in each field."""
    if not isinstance(node, MappingNode):
        if isinstance(node, SequenceNode):
            message = "`schedule`: expected text or a map, got a list"
            reading.error(node, message, 'write for example "0 2 * * *"')
            return INVALID
        return text(reading, option, node)
    before = len(reading.findings)
    values, nodes, _ = fields(reading, node, SCHEDULE)
    if not nodes and len(reading.findings) == before:
        reading.error(node, "`schedule` is an empty map", "name at least one field, or write a text")
        return INVALID
    for key, value_node in nodes.items():
        value = values.get(SCHEDULE.options[key].field)
        if value is not None and len(value.split()) != 1:
            reading.error(value_node, f"`{key}`: expected one cron field without spaces, got {shown(value)}")
    return ScheduleFields(**values) if len(reading.findings) == before else INVALID


def fails_when(reading: Reading, option: Option, node: Node) -> Any:
    """The conditions that are set here; null keeps those of `defaults`."""
    found = section(reading, node, "failsWhen", FAILS_WHEN, "failsWhen: {producesStderr: false}")
    return {} if found is None else found


def items(reading: Reading, option: Option, node: Node, of: str) -> list[Node] | Invalid:
    """The entries of a list; anything else is an error."""
    if isinstance(node, SequenceNode):
        return list(node.value)
    hint = "write each entry on its own line, behind `- `"
    reading.error(node, f"`{option.name}`: expected a list of {of}, got {described(node)}", hint)
    return INVALID


def text_list(reading: Reading, option: Option, node: Node) -> Any:
    entries = items(reading, option, node, "text")
    if entries is INVALID:
        return INVALID
    values = [text(reading, option, entry) for entry in list(entries)]
    return INVALID if INVALID in values else tuple(values)


def text_map(reading: Reading, option: Option, node: Node) -> Any:
    """Pairs of name and text, in the order of the file."""
    if not isinstance(node, MappingNode):
        reading.error(node, f"`{option.name}`: expected a map, got {described(node)}")
        return INVALID
    result = []
    for key, _, value_node in pairs(reading, node):
        value = scalar(reading, option, value_node, "text")
        if value is not INVALID:
            value = words(reading, value_node, str(value), f"{option.name}.{key}")
        if value is INVALID:
            return INVALID
        result.append((key, value))
    return tuple(result)

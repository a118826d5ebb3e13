"""A YAML map -> the fields it sets, by a section's table: unknown, repeated, refused and ignored keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yaml import MappingNode, Node, ScalarNode, SequenceNode

from sexton.config.document import described
from sexton.config.reading import INVALID, Reading, shown
from sexton.config.scalars import core_scalar, is_empty, is_null
from sexton.config.schema import STRUCTURE, TOP, Section, belongs

MAX_DEPTH = 100
MAX_MERGES = 20


def pairs(reading: Reading, node: MappingNode, depth: int = 0) -> list[tuple[str, Node, Node]]:
    """The entries of a map as (key, key node, value node), `<<` merged in; a repeated key is an error."""
    entries: dict[str, tuple[str, Node, Node]] = {}
    merged: list[Node] = []
    for key_node, value in node.value:
        if type(key_node) is not ScalarNode:
            reading.error(key_node, f"expected a name as key, got {described(key_node)}")
            continue
        key = key_node.value
        if key == "<<" and not key_node.style:
            merged.append(value)
        elif key in entries:
            first = entries[key][1].start_mark.line + 1
            message = f"{shown(key)} stands here a second time, first in line {first}"
            reading.error(key_node, message, "remove one of them")
        else:
            entries[key] = (key, key_node, value)
    if merged and depth > MAX_MERGES:
        reading.error(node, "`<<` is nested too deeply")
        return list(entries.values())
    for value in merged:
        for inherited in _merge_sources(reading, value):
            for entry in pairs(reading, inherited, depth + 1):
                entries.setdefault(entry[0], entry)
    return list(entries.values())


def _merge_sources(reading: Reading, value: Node) -> Iterator[MappingNode]:
    for part in value.value if isinstance(value, SequenceNode) else [value]:
        if isinstance(part, MappingNode):
            yield part
        else:
            reading.error(part, f"`<<` expects a map or a list of maps, got {described(part)}")


Fields = tuple[dict[str, Any], dict[str, Node], list[str]]


def fields(reading: Reading, node: MappingNode, section: Section) -> Fields:
    """Read a map by a section's table: the model's fields it sets, the value node of each known key, and the
    keys that are accepted but not acted on.

    What is wrong with one entry is a finding and leaves the field out; the other entries count.
    """
    values: dict[str, Any] = {}
    nodes: dict[str, Node] = {}
    ignored: list[str] = []
    options = section.options
    readers = reading.readers
    for key, key_node, value_node in pairs(reading, node):
        option = options.get(key)
        if option is not None:
            nodes[key] = value_node
            value = readers[option.kind](reading, option, value_node)
            if value is not INVALID:
                values[option.field] = value
        elif section is TOP and key in STRUCTURE:
            nodes[key] = value_node
        elif key in section.ignored:
            plain(reading, value_node)
            reading.ignored.setdefault((section.here, key), []).append(reading.place(key_node))
            ignored.append(key)
        elif key in section.refused:
            reading.error(key_node, f"`{key}` cannot be honoured", section.refused[key])
        else:
            message = f"unknown option {shown(key)} {section.here}"
            lookup = (key, section.here)
            if lookup not in reading.suggestions:
                reading.suggestions[lookup] = suggestion(key, section)
            reading.error(key_node, message, reading.suggestions[lookup])
    return values, nodes, ignored


def suggestion(key: str, section: Section) -> str | None:
    """Decide what to say to someone who wrote a key that does not exist here."""
    if key in section.elsewhere:
        return section.elsewhere[key]
    known = [*section.known(), *(STRUCTURE if section is TOP else ())]
    folded = _folded(key)
    for candidate in known:
        if _folded(candidate) == folded:
            return f"did you mean `{candidate}`?"
    where = belongs(key, section)
    if where is not None:
        return f"`{key}` belongs {where}"
    close = nearest(key, known)
    return f"did you mean `{close}`?" if close else None


def nearest(word: str, known: list[str]) -> str | None:
    """The known word that looks most like `word`, if one does."""
    import difflib

    if len(word) > 100:
        return None
    folded = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def _folded(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def plain(reading: Reading, node: Node, depth: int = 0) -> Any:
    """Plain Python values by the core rules of YAML 1.2; repeated keys and endless nesting are errors."""
    if depth > MAX_DEPTH:
        reading.error(node, "nested too deeply")
        return None
    if isinstance(node, MappingNode):
        return {key: plain(reading, value, depth + 1) for key, _, value in pairs(reading, node)}
    if isinstance(node, SequenceNode):
        return [plain(reading, item, depth + 1) for item in node.value]
    return core_scalar(node)


def section(reading: Reading, node: Node, name: str, inside: Section, example: str, *, of: str = "") -> Any:
    """What is set in the map that stands under `name`; None where nothing stands there. Anything else is an error, with
    an example of what to write."""
    if is_null(node) or is_empty(node):
        return None
    if not isinstance(node, MappingNode):
        reading.error(node, f"`{name}`: expected a map{of}, got {described(node)}", f"write for example `{example}`")
        return INVALID
    return fields(reading, node, inside)[0]

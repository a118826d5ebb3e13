"""The sections of a file other than jobs: `web`, `state`, `logging` and the values of the top level."""

from __future__ import annotations

from typing import Any

from yaml import MappingNode, Node

from sexton.config.document import described
from sexton.config.mapping import fields, plain
from sexton.config.reading import Reading, shown
from sexton.config.schema import LOGGING, STATE, WEB, Section
from sexton.model.settings import StateSettings, Topology, WebSettings

DAY_SECONDS = 86400.0


def web(reading: Reading, node: Node) -> WebSettings | None:
    """Where the API listens."""
    values = _section(reading, node, WEB, "`web`", "listen")
    return None if values is None else WebSettings(**values)


def state(reading: Reading, node: Node) -> StateSettings | None:
    """Where records live: in a folder, or in a PostgreSQL database."""
    values = _section(reading, node, STATE, "`state`", "path", "url")
    if values is None:
        return None
    if "url" in values:
        _check_url(reading, node, values)
    grace = values.get("gc_grace_seconds", DAY_SECONDS)
    if 0 < grace < DAY_SECONDS:
        message = f"`gcGraceSeconds` must be at least {DAY_SECONDS:g}, or 0 for no clean-up, got {grace:g}"
        reading.error(_value_node(node, "gcGraceSeconds"), message)
    return StateSettings(**values)


def _check_url(reading: Reading, node: Node, values: dict[str, Any]) -> None:
    """What is in a URL is never shown: it may hold a password."""
    where = _value_node(node, "url")
    if "path" in values:
        reading.error(where, "`state` has both `path` and `url`: a store is a folder or a database", "remove one")
    if not str(values["url"]).startswith(("postgresql://", "postgres://")):
        reading.error(where, "`url` of `state` is not that of a PostgreSQL database",
                      "write for example `url: postgresql://sexton@db.example/sexton`")
    if values.get("topology") is Topology.SINGLE_NODE:
        reading.error(_value_node(node, "topology"), "`topology` single-node is for a folder: a database is shared",
                      "remove it, or write `shared`")


def _section(
    reading: Reading, node: Node, section: Section, name: str, *required: str
) -> dict[str, Any] | None:
    """Of the required options one must be there."""
    wanted = " or ".join(f"`{option}`" for option in required)
    if not isinstance(node, MappingNode):
        reading.error(node, f"{name}: expected a map with {wanted}, got {described(node)}")
        return None
    values, nodes, _ = fields(reading, node, section)
    if not any(option in nodes for option in required):
        reading.error(node, f"{name} has no {wanted}")
    return values if any(option in values for option in required) else None


def _value_node(node: Node, key: str) -> Node:
    found: Node = next((value for name, value in node.value if name.value == key), node)
    return found


def logging(reading: Reading, node: Node) -> dict[str, Any] | None:
    """`format` and `level` of the daemon's own lines, or a map for `logging.config.dictConfig`, passed on as it is."""
    if not isinstance(node, MappingNode):
        reading.error(node, f"`logging`: expected a map for Python's dictConfig, got {described(node)}", _LOGGING_HINT)
        return None
    names = {key.value for key, _ in node.value}
    if names & {"format", "level"} and "version" not in names:
        values, _, _ = fields(reading, node, LOGGING)
        return {name: value.value for name, value in values.items()}
    config: dict[str, Any] = plain(reading, node)
    if "version" not in config:
        reading.error(node, "`logging` has no `version`", "write `version: 1`, or `format: json`")
        return None
    if config["version"] not in (1, "1") or isinstance(config["version"], bool):
        shown_version = shown(str(config["version"]))
        reading.error(_value_node(node, "version"), f"`version` of `logging` must be 1, got {shown_version}")
        return None
    return {**config, "version": 1}


_LOGGING_HINT = "write for example `logging: {format: json}`"

"""Values of `web` and `state`: addresses to listen on, headers, file modes, identifiers."""

from __future__ import annotations

import re
from typing import Any

from yaml import Node

from sexton.config.reading import INVALID, Invalid, Reading, shown
from sexton.config.schema import Option
from sexton.config.values import items, scalar, text, text_map

_HTTP = re.compile(r"http://(\[[0-9A-Fa-f:.]+\]|[^/:\[\]@\s]+)(?::([0-9]{1,5}))?/?")
_LOOPBACK = re.compile(r"127(?:\.(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])){3}|localhost|\[::1\]", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_MODE = re.compile(r"(?:0o?)?[0-7]{3}")
_EXAMPLE = "write for example http://127.0.0.1:8080 or unix:///run/sexton.sock"


def listen(reading: Reading, option: Option, node: Node) -> Any:
    """Addresses as the file has them: http:// on a loopback address, or unix:// with an absolute path."""
    entries = items(reading, option, node, "addresses")
    if isinstance(entries, Invalid):
        return INVALID
    if not entries:
        reading.error(node, "`listen` is empty", _EXAMPLE)
        return INVALID
    addresses: list[str] = []
    sound = True
    for entry in entries:
        address = text(reading, option, entry)
        if address is INVALID:
            sound = False
            continue
        trouble = listen_trouble(address)
        if trouble is None and address in addresses:
            trouble = (f"{shown(address)} stands here twice", "remove one")
        if trouble is not None:
            reading.error(entry, f"`listen`: {trouble[0]}", trouble[1])
            sound = False
        addresses.append(address)
    return tuple(addresses) if sound else INVALID


def listen_trouble(address: str) -> tuple[str, str] | None:
    """Decide whether an address may be listened on: None, or what is wrong and a hint."""
    if address.startswith("unix://"):
        path = address.removeprefix("unix://")
        if path.startswith("/") and not path.endswith("/") and len(path.encode()) < 108:
            return None
        return f"{shown(address)} has no usable path", "write unix:///absolute/path, at most 107 bytes"
    if address.lower().startswith("https://"):
        return "https is not served yet", "use http:// on a loopback address, behind a proxy that speaks TLS"
    match = _HTTP.fullmatch(address)
    if match is None:
        return f"{shown(address)} is not an address to listen on", _EXAMPLE
    host, port = match.groups()
    if port is None or int(port) > 65535:
        return f"{shown(address)} needs a port from 0 to 65535", f"write for example http://{host}:8080"
    if _LOOPBACK.fullmatch(host) is None:
        return (
            f"{host} can be reached from other machines, and there is no access control yet",
            f"write http://127.0.0.1:{port}",
        )
    return None


def headers(reading: Reading, option: Option, node: Node) -> Any:
    """Pairs of header name and value for every answer."""
    values = text_map(reading, option, node)
    if values is INVALID:
        return INVALID
    for name, value in values:
        if _HEADER_NAME.fullmatch(name) is None:
            reading.error(node, f"`{option.name}`: {shown(name)} cannot be the name of a header")
            return INVALID
        if "\n" in value or "\r" in value:
            reading.error(node, f"`{option.name}`: the value of {name} has more than one line")
            return INVALID
    return values


def mode(reading: Reading, option: Option, node: Node) -> Any:
    """Permission bits, written in octal."""
    value = text(reading, option, node)
    if value is INVALID or value is None:
        return value
    if _MODE.fullmatch(value) is None:
        message = f"`{option.name}`: expected three octal digits, got {shown(value)}"
        reading.error(node, message, 'write "0660"')
        return INVALID
    return int(value.removeprefix("0o"), 8)


def identifier(reading: Reading, option: Option, node: Node) -> Any:
    """Text that can be the name of a folder. An empty one means the default."""
    if scalar(reading, option, node, "text") is INVALID:
        return INVALID
    if node.value == "":
        return "default"
    value = text(reading, option, node)
    if value is INVALID:
        return INVALID
    if "/" in value or value in (".", "..") or value.startswith("~") or "\n" in value or len(value) > 100:
        reading.error(node, f"`{option.name}`: {shown(value)} cannot be the name of a folder")
        return INVALID
    return value

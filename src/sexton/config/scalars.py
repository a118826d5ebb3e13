"""What a plain scalar means by the core rules of YAML 1.2."""

from __future__ import annotations

import math
import re
from typing import Any

from yaml import Node, ScalarNode

NULLS = frozenset({"null", "Null", "NULL", "~"})
BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and not node.style and node.value in NULLS


def is_empty(node: Node) -> bool:
    """`key:` with nothing behind it."""
    return isinstance(node, ScalarNode) and not node.style and node.value == ""


def core_scalar(node: Node) -> Any:
    """The core rules of YAML 1.2: null, true, whole numbers, numbers; all else is text."""
    value: str = node.value
    if not isinstance(node, ScalarNode) or node.style:
        return value
    if value == "" or value in NULLS:
        return None
    if value in BOOLEANS:
        return BOOLEANS[value]
    if INTEGER.fullmatch(value):
        return int(value)
    if NUMBER.fullmatch(value) and math.isfinite(float(value)):
        return float(value)
    return value

"""`resourceLimits` and `monitorResources`: sizes, `max`, and what of them a job has in the end."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from yaml import MappingNode, Node, ScalarNode

from sexton.config.document import described
from sexton.config.mapping import fields, section
from sexton.config.reading import INVALID, Invalid, Reading, shown
from sexton.config.scalars import BOOLEANS, INTEGER, NUMBER, is_empty, is_null
from sexton.config.schema import MONITORING, RESOURCE_LIMITS, Option
from sexton.config.values import scalar, words
from sexton.model.limits import Monitoring, ResourceLimits, size_text

MAX = "max"
"""No cap: how a job opts out of one in `defaults`."""

SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}) ?(?:([kmgtpe])i?b?|b)?", re.IGNORECASE)
POWERS = {unit: 1024 ** (power + 1) for power, unit in enumerate("kmgtpe")}


def limits(reading: Reading, option: Option, node: Node) -> Any:
    """The caps that are set here; null is none, whatever `defaults` say."""
    example = "resourceLimits: {memory: 512M, processes: 64}"
    return section(reading, node, "resourceLimits", RESOURCE_LIMITS, example, of=" of caps")


def limits_of(values: Mapping[str, Any]) -> ResourceLimits | None:
    """Decide what a job is held to: None when every cap is `max` or not set."""
    caps = {name: values.get(name) for name in ("cpu", "memory", "processes")}
    if not any(caps.values()):
        return None
    return ResourceLimits(**caps, required=values.get("required", False))


def monitoring(reading: Reading, option: Option, node: Node) -> Any:
    """true, false, or a map, which alone turns it on."""
    if is_null(node) or is_empty(node):
        return None
    if isinstance(node, MappingNode):
        return {"enabled": True, **fields(reading, node, MONITORING)[0]}
    if isinstance(node, ScalarNode) and node.value in BOOLEANS:
        return {"enabled": BOOLEANS[node.value]}
    found = shown(node.value) if isinstance(node, ScalarNode) else described(node)
    hint = "write `true`, `false`, or for example `{interval: 5}`"
    reading.error(node, f"`monitorResources`: expected true, false or a map, got {found}", hint)
    return INVALID


def monitoring_of(values: Mapping[str, Any]) -> Monitoring | None:
    return Monitoring(**values) if values.get("enabled", True) else None


def _text(reading: Reading, option: Option, node: Node, wanted: str) -> str | Invalid:
    value = scalar(reading, option, node, wanted)
    return value if value is INVALID else words(reading, node, str(value), option.name)


def cpus(reading: Reading, option: Option, node: Node) -> Any:
    """How many CPUs, also less than one; None for `max`."""
    wanted = "a number of CPUs such as 0.5, or `max`"
    value = _text(reading, option, node, wanted)
    if value is INVALID or value == MAX:
        return None if value == MAX else INVALID
    if NUMBER.fullmatch(str(value)) is None or not math.isfinite(float(str(value))):
        reading.error(node, f"`{option.name}`: expected {wanted}, got {shown(str(value))}", _cpu_hint(str(value)))
        return INVALID
    return _bounded(reading, option, node, float(str(value)), lambda bound: f"{bound:g}")


def _cpu_hint(value: str) -> str | None:
    if (found := re.fullmatch(r"([0-9]{1,9})(m|%)", value)) is None:
        return None
    return f"write `{int(found[1]) / (1000 if found[2] == 'm' else 100):g}`"


def size(reading: Reading, option: Option, node: Node) -> Any:
    """Bytes; None for `max`. Units are powers of 1024, however they are written."""
    wanted = "a size such as 512M or 1.5GiB, or `max`"
    value = _text(reading, option, node, wanted)
    if value is INVALID or value == MAX:
        return None if value == MAX else INVALID
    found = SIZE.fullmatch(str(value))
    if found is None:
        reading.error(node, f"`{option.name}`: expected {wanted}, got {shown(str(value))}")
        return INVALID
    whole, _, part = found[1].partition(".")
    amount = int(whole + part) * POWERS.get((found[2] or "").lower(), 1) // 10 ** len(part)
    return _bounded(reading, option, node, amount, lambda bound: "8 EiB less a byte" if bound > 2**62 else
                    size_text(int(bound)))


def count(reading: Reading, option: Option, node: Node) -> Any:
    """How many processes and threads; None for `max`."""
    wanted = "a whole number of processes, or `max`"
    value = _text(reading, option, node, wanted)
    if value is INVALID or value == MAX:
        return None if value == MAX else INVALID
    if INTEGER.fullmatch(str(value)) is None:
        reading.error(node, f"`{option.name}`: expected {wanted}, got {shown(str(value))}")
        return INVALID
    return _bounded(reading, option, node, int(str(value)), lambda bound: f"{int(bound)}")


def _bounded(reading: Reading, option: Option, node: Node, value: float, say: Any) -> Any:
    assert option.minimum is not None
    if value < option.minimum:
        hint = f"write `{MAX}` for no cap" if value == 0 else None
        reading.error(node, f"`{option.name}` must be at least {say(option.minimum)}, got {node.value}", hint)
        return INVALID
    if value > option.maximum:
        reading.error(node, f"`{option.name}` must be at most {say(option.maximum)}, got {node.value}",
                      f"write `{MAX}` for no cap")
        return INVALID
    return value

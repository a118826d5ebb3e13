"""`verify`, `sla` and `onFailure.retry`: how a result is checked, what is promised, what is tried again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yaml import MappingNode, Node

from sexton.config.document import described
from sexton.config.mapping import fields
from sexton.config.reading import INVALID, Reading
from sexton.config.scalars import is_empty, is_null
from sexton.config.schema import RETRY, SLA, VERIFY, Option
from sexton.config.values import choice, items
from sexton.model.retry import RetryPolicy
from sexton.model.sla import Sla
from sexton.model.verification import Verify


def retry(reading: Reading, option: Option, node: Node) -> Any:
    """The numbers that are set here."""
    hint = "write for example `retry: {maximumRetries: 3, initialDelay: 10, maximumDelay: 300, backoffMultiplier: 2}`"
    if is_null(node) or is_empty(node):
        return {}
    if not isinstance(node, MappingNode):
        reading.error(node, f"`retry`: expected a map, got {described(node)}", hint)
        return INVALID
    return fields(reading, node, RETRY)[0]


def retry_on(reading: Reading, option: Option, node: Node) -> Any:
    """Causes of failure, each by its word."""
    entries = items(reading, option, node, "causes")
    if entries is INVALID:
        return INVALID
    causes = [choice(reading, option, entry) for entry in list(entries)]
    return INVALID if INVALID in causes else tuple(causes)


def verify(reading: Reading, option: Option, node: Node) -> Any:
    """The check, whole: a job's takes the place of the one in `defaults`; null is none."""
    if is_null(node) or is_empty(node):
        return None
    if not isinstance(node, MappingNode):
        hint = "write for example `verify: {command: test -s /backup/today}`"
        reading.error(node, f"`verify`: expected a map, got {described(node)}", hint)
        return INVALID
    found = fields(reading, node, VERIFY)[0]
    if "command" not in found:
        reading.error(node, "`verify` has no `command`")
        return INVALID
    return Verify(**found)


def sla(reading: Reading, option: Option, node: Node) -> Any:
    """The promises that are set here; null is none."""
    if is_null(node) or is_empty(node):
        return None
    if not isinstance(node, MappingNode):
        hint = "write for example `sla: {maxTimeSinceSuccessSeconds: 90000}`"
        reading.error(node, f"`sla`: expected a map, got {described(node)}", hint)
        return INVALID
    return fields(reading, node, SLA)[0]


def promises_of(values: Mapping[str, Any]) -> Sla | None:
    """None where nothing is promised."""
    return Sla(**values) if any(value is not None for value in values.values()) else None


def policy_of(values: Mapping[str, Any]) -> RetryPolicy | None:
    """None where nothing is retried."""
    policy = RetryPolicy(**values.get("retry", {}))
    return policy if policy.maximum_retries != 0 else None

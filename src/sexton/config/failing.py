"""`verify`, `sla` and `onFailure.retry`: how a result is checked, what is promised, what is tried again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yaml import Node

from sexton.config.mapping import section
from sexton.config.reading import INVALID, Reading
from sexton.config.schema import RETRY, SLA, VERIFY, Option
from sexton.config.values import choice, items
from sexton.model.retry import RetryPolicy
from sexton.model.sla import Sla
from sexton.model.verification import Verify


def retry(reading: Reading, option: Option, node: Node) -> Any:
    """The numbers that are set here."""
    example = "retry: {maximumRetries: 3, initialDelay: 10, maximumDelay: 300, backoffMultiplier: 2}"
    found = section(reading, node, "retry", RETRY, example)
    return {} if found is None else found


def retry_on(reading: Reading, option: Option, node: Node) -> Any:
    """Causes of failure, each by its word."""
    entries = items(reading, option, node, "causes")
    if entries is INVALID:
        return INVALID
    causes = [choice(reading, option, entry) for entry in list(entries)]
    return INVALID if INVALID in causes else tuple(causes)


def verify(reading: Reading, option: Option, node: Node) -> Any:
    """The check, whole: a job's takes the place of the one in `defaults`; null is none."""
    found = section(reading, node, "verify", VERIFY, "verify: {command: test -s /backup/today}")
    if found is None or found is INVALID:
        return found
    if "command" not in found:
        reading.error(node, "`verify` has no `command`")
        return INVALID
    return Verify(**found)


def sla(reading: Reading, option: Option, node: Node) -> Any:
    """The promises that are set here; null is none."""
    return section(reading, node, "sla", SLA, "sla: {maxTimeSinceSuccessSeconds: 90000}")


def promises_of(values: Mapping[str, Any]) -> Sla | None:
    """None where nothing is promised."""
    return Sla(**values) if any(value is not None for value in values.values()) else None


def policy_of(values: Mapping[str, Any]) -> RetryPolicy | None:
    """None where nothing is retried."""
    policy = RetryPolicy(**values.get("retry", {}))
    return policy if policy.maximum_retries != 0 else None

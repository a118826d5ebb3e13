"""Job entries and `defaults` -> JobSpecs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from yaml import MappingNode, Node, SequenceNode

from sexton.config import failing, secrets
from sexton.config.caps import limits_of, monitoring_of
from sexton.config.document import described
from sexton.config.mapping import fields
from sexton.config.pools import check_use, use_of
from sexton.config.reading import Claims, Reading
from sexton.config.reports import REPORT_FIELDS, merged_maps, reports_of, statsd_of
from sexton.config.schema import DEFAULTS, JOB
from sexton.config.surroundings import EnvFile, read_env_file
from sexton.model.job import ConcurrencyPolicy, ConcurrencyScope, FailsWhen, JobSpec, Place
from sexton.model.settings import Severity


class Layer(msgspec.Struct, frozen=True):
    """What one place in the configuration sets: fields of a job, and options that are not acted on."""

    values: Mapping[str, Any] = {}
    ignored: tuple[str, ...] = ()


EMPTY = Layer()


def merged(base: Layer, over: Layer) -> Layer:
    """Put one layer over another: values replace; `failsWhen`, `resourceLimits`, `monitorResources`, `environment`,
    `secrets`, `sla`, `onFailure`, `statsd` and what stands in reports merge by key."""
    if not base.values and not base.ignored:
        return over
    values = {**base.values, **over.values}
    for field in ("fails_when", "resource_limits", "monitor_resources", "sla"):
        if base.values.get(field) is not None and over.values.get(field) is not None:
            values[field] = {**base.values[field], **over.values[field]}
    for field in (*REPORT_FIELDS, "statsd"):
        if field in base.values and field in over.values:
            values[field] = merged_maps(base.values[field], over.values[field])
    if "secrets" in base.values and "secrets" in over.values:
        values["secrets"] = secrets.merged(base.values["secrets"], over.values["secrets"])
    if "environment" in base.values and "environment" in over.values:
        values["environment"] = tuple(
            {**dict(base.values["environment"]), **dict(over.values["environment"])}.items()
        )
    ignored = over.ignored
    if base.ignored:
        ignored = tuple(sorted({*base.ignored, *over.ignored}))
    return Layer(values, ignored)


def defaults_layer(reading: Reading, node: Node) -> Layer:
    """Read a `defaults` map."""
    if not isinstance(node, MappingNode):
        reading.error(node, f"`defaults`: expected a map of job options, got {described(node)}")
        return EMPTY
    values, _, ignored = fields(reading, node, DEFAULTS)
    return Layer(values, tuple(sorted(ignored)))


class JobReader:
    """Reads the entries of `jobs` of one file, under that file's defaults."""

    def __init__(self, reading: Reading, defaults: Layer, claims: Claims) -> None:
        self._reading = reading
        self._defaults = defaults
        self._claims = claims
        self._variables: dict[EnvFile, tuple[tuple[str, str], ...]] = {}

    def jobs(self, node: Node) -> list[JobSpec]:
        """The jobs without errors; what is wrong with the others is in the findings."""
        if not isinstance(node, SequenceNode):
            hint = "write each job below `jobs:`, beginning with `- name: ...`"
            self._reading.error(node, f"`jobs`: expected a list of jobs, got {described(node)}", hint)
            return []
        specs = [self._job(entry) for entry in node.value]
        return [spec for spec in specs if spec is not None]

    def _job(self, node: Node) -> JobSpec | None:
        reading = self._reading
        if not isinstance(node, MappingNode):
            hint = "a job has at least `name`, `command` and `schedule`"
            reading.error(node, f"expected a job, a map of options, got {described(node)}", hint)
            return None
        values, nodes, ignored = fields(reading, node, JOB)
        place = reading.place(node)
        unique = "name" not in values or self._claims.claim(reading, values["name"], place)
        required = [key for key in ("name", "command", "schedule") if key not in nodes]
        if required:
            who = f"job {values['name']!r}" if "name" in values else "a job"
            missing = " and ".join(f"`{key}`" for key in required)
            reading.error(node, f"{who} has no {missing}")
        if not ("name" in values and "command" in values and "schedule" in values):
            return None
        spec = self._spec(merged(self._defaults, Layer(values, tuple(sorted(ignored)))), place)
        self._check_scope(spec, nodes)
        check_use(reading, spec, nodes)
        for severity, message, suggestion in reading.check_schedule(spec):
            reading.report(severity, reading.place(nodes["schedule"]), message, suggestion)
        return spec if unique else None

    def _spec(self, layer: Layer, place: Place) -> JobSpec:
        values = dict(layer.values)
        if "fails_when" in values:
            values["fails_when"] = FailsWhen(**values["fails_when"])
        if values.get("resource_limits") is not None:
            values["resource_limits"] = limits_of(values["resource_limits"])
        if values.get("monitor_resources") is not None:
            values["monitor_resources"] = monitoring_of(values["monitor_resources"])
        if values.get("sla") is not None:
            values["sla"] = failing.promises_of(values["sla"])
        if "on_failure" in values:
            values["retry"] = failing.policy_of(values["on_failure"])
        values["pool"] = use_of(values)
        file = values.pop("env_file", None)
        if file is not None:
            values["environment"] = tuple(
                {**dict(self._env_file(file)), **dict(values.get("environment", ()))}.items()
            )
        secrets.split(values)
        values["statsd"] = statsd_of(self._reading, values.pop("statsd", None), place)
        ignored = layer.ignored
        values["reports"], inside = reports_of(self._reading, values, place)
        if inside:
            ignored = tuple(sorted({*ignored, *inside}))
        return JobSpec(place=place, ignored_options=ignored, **values)

    def _env_file(self, file: EnvFile) -> tuple[tuple[str, str], ...]:
        if file not in self._variables:
            self._variables[file] = read_env_file(self._reading, file)
        return self._variables[file]

    def _check_scope(self, spec: JobSpec, nodes: Mapping[str, Node]) -> None:
        if spec.concurrency_scope is not ConcurrencyScope.CLUSTER:
            return
        if spec.concurrency_policy is ConcurrencyPolicy.ALLOW:
            node = nodes.get("concurrencyScope") or nodes.get("concurrencyPolicy") or nodes["name"]
            by_default = "" if "concurrencyPolicy" in nodes else " (the default)"
            self._reading.error(
                node,
                f"Job {spec.name}: concurrencyScope: cluster has no effect with concurrencyPolicy: Allow{by_default}",
                "set Forbid or Replace, or drop concurrencyScope",
            )


def warn_ignored(reading: Reading) -> None:
    """One warning for each option of this file that is accepted but not acted on."""
    for (here, key), places in sorted(reading.ignored.items()):
        count = f" ({len(places)} {'job' if len(places) == 1 else 'jobs'})" if here == JOB.here else ""
        message = f"`{key}` {here}{count} is accepted, but Sexton does not act on it yet"
        reading.report(Severity.WARNING, places[0], message)

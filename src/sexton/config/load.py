"""From a path to a checked configuration: folders, includes, what may stand only once, what must fit."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from typing import Any

from yaml import MappingNode, Node, SequenceNode

from sexton.config.crontab import crontab_jobs, readable_comments
from sexton.config.document import compose, cron_table_line, decode, described
from sexton.config.files import configuration_files, is_crontab_name, is_folder, is_yaml_name, printable, read_bytes
from sexton.config.jobs import EMPTY, JobReader, Layer, defaults_layer, merged, warn_ignored
from sexton.config.mapping import fields
from sexton.config.pools import PoolClaims
from sexton.config.readers import READERS
from sexton.config.reading import Claims, Reading, ScheduleCheck
from sexton.config.schema import ONCE, TOP
from sexton.config.sections import logging, state, web
from sexton.config.values import words
from sexton.model.job import ConcurrencyScope, JobSpec, OnDaemonLoss, OnMissed, Place, RunOn
from sexton.model.settings import Configuration, Finding, Settings, Severity, Topology

_SECTION_READERS = {"web": web, "state": state, "logging": logging}
_MAX_NAMED = 20


def load(path: str, *, environ: Mapping[str, str], check_schedule: ScheduleCheck) -> Configuration:
    """Load a file, or a folder of files, with everything they include.

    Never raises for what it finds: every problem of every file is a finding. `environ` serves `${...}` and
    `~`; `check_schedule` is asked once for each job that is otherwise complete.
    """
    collecting = gc.isenabled()
    # Composing makes many small objects that all live until the end: collecting in between only costs time.
    gc.disable()
    try:
        assembly = _Assembly(environ, check_schedule)
        assembly.add(path)
        return assembly.configuration()
    finally:
        if collecting:
            gc.enable()


class _Assembly:
    """What has been read so far."""

    def __init__(self, environ: Mapping[str, str], check_schedule: ScheduleCheck) -> None:
        self._findings: list[Finding] = []
        self._sources: dict[str, None] = {}
        self._jobs: list[JobSpec] = []
        self._claims = Claims()
        self._pools = PoolClaims()
        self._settings: dict[str, Any] = {}
        self._once: dict[str, Place] = {}
        self._done: dict[str, Layer] = {}
        """The defaults of each file that was read, by real path."""
        self._chain: list[str] = []
        self._reading = Reading(
            "",
            environ=environ,
            check_schedule=check_schedule,
            findings=self._findings,
            sources=self._sources,
            zones={},
            readers=READERS,
        )

    def add(self, path: str) -> None:
        """Read the path that was asked for: a file, or the configuration files of a folder."""
        shown_path = printable(path)
        top = self._reading.for_file(shown_path)
        if not is_folder(path):
            self._file(path, top, Place(shown_path, 1, 1))
            return
        self._sources[shown_path] = None
        files = configuration_files(path)
        if isinstance(files, str):
            top.report(Severity.ERROR, Place(shown_path, 1, 1), files)
            return
        for file in files:
            self._file(file, top, Place(printable(file), 1, 1))
        if not files:
            message = "no configuration file in this folder"
            hint = "it looks for *.yml, *.yaml, *.crontab, *.cron and crontab, not beginning with _ or ."
            top.report(Severity.WARNING, Place(shown_path, 1, 1), message, hint)

    def _file(self, path: str, asked_by: Reading, asked_at: Place) -> Layer:
        """Read one file, unless it was read before; answer with its defaults."""
        name = printable(path)
        data = read_bytes(path)
        self._sources.setdefault(name)
        if isinstance(data, str):
            asked_by.report(Severity.ERROR, asked_at, data)
            return EMPTY
        real = os.path.realpath(path)
        if real in self._chain:
            message = f"{name} includes itself, by way of {len(self._chain)} file(s)"
            asked_by.report(Severity.ERROR, asked_at, message, "remove one `include`")
            return EMPTY
        if real not in self._done:
            self._chain.append(real)
            self._done[real] = self._content(path, data)
            self._chain.pop()
        return self._done[real]

    def _content(self, path: str, data: bytes) -> Layer:
        reading = self._reading.for_file(printable(path))
        # A name that says nothing, such as that of a user's table, leaves it to the first line.
        table = is_crontab_name(path) or (
            not is_yaml_name(path) and cron_table_line(data.decode(errors="replace").removeprefix("\ufeff")) is not None
        )
        text = decode(reading, readable_comments(data) if table else data)
        if text is None:
            return EMPTY
        if table:
            self._jobs.extend(crontab_jobs(reading, text, self._claims))
            return EMPTY
        root = compose(reading, text)
        return EMPTY if root is None else self._yaml(reading, root)

    def _yaml(self, reading: Reading, root: MappingNode) -> Layer:
        values, nodes, _ = fields(reading, root, TOP)
        defaults = EMPTY
        if "include" in nodes:
            defaults = self._include(reading, nodes["include"])
        if "defaults" in nodes:
            defaults = merged(defaults, defaults_layer(reading, nodes["defaults"]))
        for key in ONCE:
            if key in nodes:
                self._section(reading, key, nodes[key], values)
        if "pools" in nodes:
            self._pools.read(reading, nodes["pools"])
        if "jobs" in nodes:
            self._jobs.extend(JobReader(reading, defaults, self._claims).jobs(nodes["jobs"]))
        warn_ignored(reading)
        return defaults

    def _section(self, reading: Reading, key: str, node: Node, values: Mapping[str, Any]) -> None:
        first = self._once.setdefault(key, reading.place(node))
        if first.file != reading.path:
            hint = "keep it in one file of the configuration"
            reading.error(node, f"`{key}` stands in two files, first in {first}", hint)
            return
        if key in _SECTION_READERS:
            value = _SECTION_READERS[key](reading, node)
            if value is not None:
                self._settings[key] = value
        elif "shutdown_timeout" in values:
            self._settings["shutdown_timeout"] = values["shutdown_timeout"]

    def _include(self, reading: Reading, node: Node) -> Layer:
        """Read the included files; their defaults, later ones over earlier ones."""
        if not isinstance(node, SequenceNode):
            reading.error(node, f"`include`: expected a list of files, got {described(node)}", "- FILE")
            return EMPTY
        layer = EMPTY
        for entry in node.value:
            if isinstance(entry, (MappingNode, SequenceNode)) or not entry.value:
                reading.error(entry, f"`include`: expected the path of a file, got {described(entry)}")
                continue
            value = words(reading, entry, entry.value, "include")
            if isinstance(value, str):
                path = os.path.normpath(os.path.join(os.path.dirname(reading.path), value))
                layer = merged(layer, self._file(path, reading, reading.place(entry)))
        return layer

    def _check_cluster(self) -> None:
        """Jobs that reach over nodes need a store that the nodes share."""
        scoped = [job for job in self._jobs if job.concurrency_scope is ConcurrencyScope.CLUSTER]
        elected = [job for job in self._jobs if job.run_on is RunOn.ONE_NODE]
        shared = "(the shared store is what coordinates the nodes)"
        self._needs_state("concurrencyScope: cluster", scoped, shared, most=len(scoped))  # the page names each of them
        self._needs_state("runOn one-node", elected, shared)
        state = self._settings.get("state")
        if state is not None and state.topology is Topology.SINGLE_NODE and (scoped or elected):
            what = "concurrencyScope cluster" if scoped else "runOn one-node"
            self._reading.report(
                Severity.WARNING, (scoped or elected)[0].place,
                f"{what}: `state` has topology single-node, so no other node can share it; job(s): "
                f"{_named(scoped or elected)}", "write `topology: shared` where several nodes use it",
            )

    def _check_durable(self) -> None:
        """What one daemon tells the next one needs a place where it is kept."""
        self._needs_state("onDaemonLoss keep", [j for j in self._jobs if j.on_daemon_loss is OnDaemonLoss.KEEP])
        for policy in (OnMissed.RUN_ONCE, OnMissed.RUN_ALL):
            self._needs_state(f"onMissed {policy.value}", [j for j in self._jobs if j.on_missed is policy])

    def _needs_state(self, what: str, jobs: list[JobSpec], why: str = "", most: int = _MAX_NAMED) -> None:
        if not jobs or "state" in self._once:
            return
        because = f" {why}" if why else ""
        names = _named(jobs, most)
        message = f"{what} requires a `state` section{because}, but none is configured; offending job(s): {names}"
        self._reading.report(Severity.ERROR, jobs[0].place, message, "add `state: {path: ...}`")

    def configuration(self) -> Configuration:
        self._check_cluster()
        self._check_durable()
        self._pools.check(self._reading, self._jobs, durable="state" in self._once)
        return Configuration(
            jobs=tuple(self._jobs),
            settings=Settings(pools=tuple(self._pools.pools.values()), **self._settings),
            findings=self._sorted_findings(),
            sources=tuple(self._sources),
        )

    def _sorted_findings(self) -> tuple[Finding, ...]:
        """Each finding once, by file in the order of reading, then by line."""
        order = {source: number for number, source in enumerate(self._sources)}

        def position(finding: Finding) -> tuple[int, int, int]:
            place = finding.place or Place("", 0, 0)
            return (order.get(place.file, -1), place.line, place.column)

        return tuple(sorted(dict.fromkeys(self._findings), key=position))


def _named(jobs: list[JobSpec], most: int = _MAX_NAMED) -> str:
    names = ", ".join(job.name for job in jobs[:most])
    return f"{names} and {len(jobs) - most} more" if len(jobs) > most else names

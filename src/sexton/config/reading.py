"""One file being read: where findings go, and how a node's place is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from sexton.config.schema import Kind, Option
from sexton.model.job import JobSpec, Place
from sexton.model.settings import Finding, Severity

if TYPE_CHECKING:
    from yaml import Node

ScheduleCheck = Callable[[JobSpec], Sequence[tuple[Severity, str, "str | None"]]]
"""What the schedule room has to say about a job's schedule: severity, message, hint."""
Read = Callable[["Reading", Option, "Node"], Any]
"""Reads one value; answers INVALID after it has reported an error."""
Zones = dict[str, "tuple[str, str | None] | None"]
"""Time zones already looked up: None for one that exists, else what is wrong and what may have been meant."""


class Reading:
    """What the readers of one file share. `findings` and `sources` are those of the whole load."""

    def __init__(
        self,
        path: str,
        *,
        environ: Mapping[str, str],
        check_schedule: ScheduleCheck,
        findings: list[Finding],
        sources: dict[str, None],
        zones: Zones,
        readers: Mapping[Kind, Read],
    ) -> None:
        self.path = path
        self.environ = environ
        self.check_schedule = check_schedule
        self.findings = findings
        self.sources = sources
        self.readers = readers
        self.zones = zones
        self.suggestions: dict[tuple[str, str], str | None] = {}
        """Looked up once for each unknown key, however many jobs repeat it."""
        self.ignored: dict[tuple[str, str], list[Place]] = {}
        """Where each option that is not acted on stands, by section and name."""

    def place(self, node: Node) -> Place:
        mark = node.start_mark
        return Place(self.path, mark.line + 1, mark.column + 1)

    def error(self, node: Node, message: str, hint: str | None = None) -> None:
        self.report(Severity.ERROR, self.place(node), message, hint)

    def warning(self, node: Node, message: str, hint: str | None = None) -> None:
        self.report(Severity.WARNING, self.place(node), message, hint)

    def report(self, severity: Severity, place: Place, message: str, hint: str | None = None) -> None:
        self.findings.append(Finding(severity=severity, message=message, place=place, hint=hint))

    def for_file(self, path: str) -> Reading:
        """The same load, another file."""
        return Reading(
            path,
            environ=self.environ,
            check_schedule=self.check_schedule,
            findings=self.findings,
            sources=self.sources,
            zones=self.zones,
            readers=self.readers,
        )


class Claims:
    """The names of jobs over all files: each may be claimed once."""

    def __init__(self) -> None:
        self._first: dict[str, Place] = {}

    def claim(self, reading: Reading, name: str, place: Place) -> bool:
        """Take a name for the job at `place`; if it is taken, an error that names both places."""
        first = self._first.setdefault(name, place)
        if first is place:
            return True
        message = f"a second job is called {name!r}, the first one stands in {first}"
        reading.report(Severity.ERROR, place, message, "give each job a name of its own")
        return False


class Invalid(Enum):
    """The answer of a reader that has reported an error."""

    INVALID = "invalid"


INVALID = Invalid.INVALID
LONGEST_SHOWN = 60


def shown(value: str) -> str:
    """A value as messages quote it: on one line and not endlessly long."""
    return repr(value if len(value) <= LONGEST_SHOWN else value[: LONGEST_SHOWN - 3] + "...")

"""All probes, one after the other. Whatever one of them runs into is a line, never an exception."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping

from sexton import __version__
from sexton.doctor import clocks, containment, jobs, limits, state, ulimits, users
from sexton.doctor.findings import Area, Diagnosis, Level, Line, sound
from sexton.doctor.home import find_home
from sexton.model.errors import StoreError
from sexton.model.run import Containment
from sexton.model.settings import Configuration
from sexton.store.mounts import file_system_at, is_shared
from sexton.store.sqlite.directory import deployment_directory


def diagnose(environ: Mapping[str, str], path: str | None, configuration: Configuration | None) -> Diagnosis:
    """Everything about this machine, and about a configuration and its jobs when one is given."""
    home = find_home(environ)
    held: list[Containment] = []

    def look_at_containment() -> list[Line]:
        facts = containment.look(home)
        held.append(containment.containment_of(facts))
        return containment.judge(facts)

    areas: list[tuple[Area, Callable[[], list[Line]]]] = [
        (Area.CONTAINMENT, look_at_containment),
        (Area.LIMITS, lambda: limits.judge(limits.look(home))),
        (Area.CLOCKS, lambda: clocks.judge(clocks.look())),
        (Area.USERS, lambda: users.judge(users.look())),
        (Area.ULIMITS, lambda: ulimits.judge(ulimits.look(home))),
    ]
    if configuration is not None and configuration.errors:
        areas.append((Area.JOBS, lambda: [_refused(path or "", len(configuration.errors))]))
    elif configuration is not None:
        areas.append((Area.STATE, lambda: _state(configuration)))
        areas.append((Area.JOBS, lambda: _jobs(configuration, environ)))
    found = tuple(line for area, look in areas for line in _guarded(area, look))
    held_by = held[0] if held else Containment.NONE
    return Diagnosis(version=__version__, containment=held_by.value, sound=sound(found), lines=found)


def _guarded(area: Area, look: Callable[[], list[Line]]) -> list[Line]:
    try:
        return look()
    except Exception as failure:  # a machine that we did not think of: the other probes still say their part
        return [Line(area, "probe", Level.MISSING, f"{type(failure).__name__}: {failure}")]


def _refused(path: str, errors: int) -> Line:
    return Line(Area.JOBS, "configuration", Level.MISSING, f"{path} has {errors} error(s)",
                f"sexton check {path} names them")


def _state(configuration: Configuration) -> list[Line]:
    settings = configuration.settings.state
    if settings is None:
        return [Line(Area.STATE, "records", Level.WEAKER, "in memory only: they end with the daemon",
                     "a `state` section with a path")]
    if settings.path is None:
        return [Line(Area.STATE, "records", Level.OK, "in a PostgreSQL database, shared by the nodes that use it")]
    try:
        directory = os.path.abspath(deployment_directory(settings.path, settings.deployment_id))
    except StoreError as refused:
        return [Line(Area.STATE, "directory", Level.MISSING, str(refused))]
    return state.judge(directory, state.look(directory), file_system_at(directory), shared=is_shared(settings))


def _jobs(configuration: Configuration, environ: Mapping[str, str]) -> list[Line]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    troubles = jobs.look(configuration.jobs)
    return jobs.judge(configuration.jobs, troubles, None if hard == resource.RLIM_INFINITY else hard,
                      find_home(environ))

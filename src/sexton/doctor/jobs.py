"""What the configured jobs need, tried as the users that they have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from sexton.doctor.child import ProbeFailed, in_child
from sexton.doctor.findings import Area, Level, Line
from sexton.doctor.home import Home
from sexton.doctor.ulimits import judge_descriptors
from sexton.execution.birth.program import locate
from sexton.execution.plan import Identity, Plan, plan
from sexton.model.errors import SpawnError
from sexton.model.job import JobSpec

SECONDS = 10.0
DAEMON_DESCRIPTORS = 64
NODE = "doctor"


class Trouble(msgspec.Struct, frozen=True):
    """Why a run of the job would not start."""

    job: str
    what: str
    place: str


def look(jobs: Iterable[JobSpec]) -> list[Trouble]:
    """Try each enabled job as far as can be done without starting it: its user exists, its folder can be entered, its
    program can be executed. Jobs of one user share a child process that has become that user."""
    troubles: list[Trouble] = []
    by_identity: dict[Identity | None, list[tuple[JobSpec, Plan]]] = {}
    for job in jobs:
        if not job.enabled:
            continue
        try:
            what = plan(job, "", None, NODE)
        except SpawnError as refused:
            troubles.append(Trouble(job.name, str(refused), str(job.place)))
            continue
        by_identity.setdefault(what.identity, []).append((job, what))
    for identity, plans in by_identity.items():
        try:
            troubles += in_child(partial(_try_as, identity, plans), list[Trouble], seconds=SECONDS)
        except ProbeFailed as failed:
            troubles += [Trouble(job.name, f"could not be tried: {failed}", str(job.place)) for job, _ in plans]
    return troubles


def _try_as(identity: Identity | None, plans: Sequence[tuple[JobSpec, Plan]]) -> list[Trouble]:
    if identity is not None:
        os.setgroups(identity.groups)
        if identity.gid is not None:
            os.setresgid(identity.gid, identity.gid, identity.gid)
        if identity.uid is not None:
            os.setresuid(identity.uid, identity.uid, identity.uid)
    home = os.open(".", os.O_PATH)
    troubles = []
    for job, what in plans:
        try:
            trouble = _try(what)
        finally:
            os.fchdir(home)
        if trouble is not None:
            troubles.append(Trouble(job.name, trouble, str(job.place)))
    return troubles


def _try(what: Plan) -> str | None:
    if what.directory is not None:
        try:
            os.chdir(what.directory)
        except OSError as refused:
            return f"workingDirectory {os.fsdecode(what.directory)} cannot be entered: {refused.strerror}"
    program = os.fsdecode(what.argv[0])
    try:
        found = locate(what.argv[0], {**os.environb, **what.environment})
    except OSError as refused:
        return f"{program} cannot be executed: {refused.strerror}"
    if os.path.isdir(found):
        return f"{program} cannot be executed: it is a directory"
    if not os.access(found, os.X_OK):
        return f"{program} cannot be executed: {'permission denied' if os.path.exists(found) else 'not found'}"
    return None


def descriptors_for(jobs: Iterable[JobSpec]) -> int:
    """What the daemon needs when one run of each enabled job goes on: a supervisor's socket, its pipes, an output
    file."""
    needed = DAEMON_DESCRIPTORS
    for job in jobs:
        if job.enabled:
            captured = job.capture_stdout + job.capture_stderr
            needed += 1 + captured + (captured > 0)
    return needed


def judge(jobs: Sequence[JobSpec], troubles: Sequence[Trouble], hard: int | None, home: Home) -> list[Line]:
    lines = [Line(Area.JOBS, trouble.job, Level.MISSING, trouble.what, f"correct {trouble.place}")
             for trouble in troubles]
    enabled = sum(job.enabled for job in jobs)
    well = enabled - len(troubles)
    if well:
        lines.append(Line(Area.JOBS, "programs", Level.OK, f"users, folders and programs of {well} job(s) are there"))
    together = judge_descriptors(hard, home, descriptors_for(jobs))
    if together.level is not Level.OK:
        lines.append(msgspec.structs.replace(together, area=Area.JOBS, name="descriptors"))
    return lines

"""From a job's definition to the request that a supervisor executes: argv, environment, identity, priority."""

from __future__ import annotations

import grp
import logging
import os
import pwd
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from sexton.model.errors import SpawnError
from sexton.model.job import JobSpec, Priority

NICE = {
    Priority.IDLE: 19,
    Priority.BELOW_NORMAL: 10,
    Priority.NORMAL: 0,
    Priority.ABOVE_NORMAL: -5,
    Priority.HIGH: -10,
}


HASTY_SECONDS = 0.5

logger = logging.getLogger("sexton.run")

NAMES = tuple(
    tuple(prefix + name for name in (b"RUN_ID", b"JOB_NAME", b"HOST", b"ATTEMPT", b"SCHEDULED_AT"))
    for prefix in (b"SEXTON_", b"CRONSTABLE_")
)


class Identity(msgspec.Struct, frozen=True):
    """Numbers to become: resolved here, so that the supervisor never asks the user database."""

    uid: int | None
    gid: int | None
    groups: tuple[int, ...]


class Plan(msgspec.Struct, frozen=True):
    argv: tuple[bytes, ...]
    environment: dict[bytes, bytes]
    directory: bytes | None
    identity: Identity | None
    nice: int
    stdin: bytes | None
    confined: tuple[Any, ...] | None = None
    """The limits and the measuring, as `birth/confine.py` takes them; None costs a run nothing."""
    hasty: bool = False
    """Its deadline is so near that its start must be known at once."""


@lru_cache(maxsize=256)
def identity_of(user: str | int | None, group: str | int | None) -> Identity | None:
    """Resolve `user` and `group`; a user brings its primary group and its supplementary groups.

    Raises SpawnError for an unknown name, and when the daemon may not switch users.
    """
    if user is None and group is None:
        return None
    if os.geteuid() != 0:
        raise SpawnError("user and group need a daemon that runs as root")
    entry: pwd.struct_passwd | None = None
    uid: int | None = None
    if user is not None:
        try:
            entry = pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
            uid = entry.pw_uid
        except KeyError:
            if isinstance(user, str):
                raise SpawnError(f"user {user!r} is not known on this machine") from None
            uid = user
    gid = entry.pw_gid if entry else None
    if group is not None:
        try:
            gid = grp.getgrnam(group).gr_gid if isinstance(group, str) else group
        except KeyError:
            raise SpawnError(f"group {group!r} is not known on this machine") from None
    if uid is not None and gid is None:
        raise SpawnError(f"user {uid} has no entry on this machine: say which group, or it would keep the daemon's")
    if entry is not None and gid is not None:
        groups = tuple(os.getgrouplist(entry.pw_name, gid))
    else:
        groups = (gid,) if gid is not None else ()
    return Identity(uid, gid, groups)


@lru_cache(maxsize=8)
def nice_of(priority: Priority) -> int:
    """The nice value; 0 leaves it as it is. A raise that this user may not make is left out, and said once."""
    nice = NICE[priority]
    if nice < 0 and os.geteuid() != 0:
        logger.warning("priority %s needs a daemon that runs as root; such jobs run at normal priority", priority.value)
        return 0
    return nice


def plan(
    job: JobSpec, run_id: str, scheduled_for: str | None, node: str, confined: tuple[Any, ...] | None = None,
    attempt: int = 1, secrets: Mapping[str, str] | None = None,
) -> Plan:
    """What to execute for one run of the job. Raises SpawnError when it cannot be worked out.

    `secrets` lie over the job's own variables. Those that name the run come last and cannot be overridden; both our own
    prefix and the reference daemon's are set, so that scripts written for it keep working.
    """
    argv = (job.shell, "-c", job.command) if isinstance(job.command, str) else job.command
    environment = {key.encode(): value.encode() for key, value in job.environment}
    if secrets:
        environment.update((os.fsencode(key), os.fsencode(value)) for key, value in secrets.items())
    ours = (run_id.encode(), job.name.encode("utf-8", "surrogateescape"), node.encode(), b"%d" % attempt,
            (scheduled_for or "").encode())
    for names in NAMES:
        environment.update(zip(names, ours, strict=True))
    return Plan(
        argv=tuple([os.fsencode(part) for part in argv]),
        environment=environment,
        directory=os.fsencode(job.working_directory) if job.working_directory else None,
        identity=identity_of(job.user, job.group),
        nice=nice_of(job.priority),
        stdin=job.stdin.encode() if job.stdin is not None else None,
        confined=confined,
        hasty=job.execution_timeout is not None and job.execution_timeout < HASTY_SECONDS,
    )

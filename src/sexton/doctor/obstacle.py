"""Why runs get no cgroup v2 of their own, and the one thing that would give them one. The daemon says it at its
start."""

from __future__ import annotations

import errno
import os
from enum import Enum
from typing import assert_never

from sexton.doctor.home import Home
from sexton.execution import cgroup


class Obstacle(Enum):
    NO_PROC = "/proc does not tell which cgroup is ours"
    NO_HIERARCHY = "no cgroup v2 hierarchy is mounted"
    OUTSIDE = "the mounted cgroup v2 hierarchy does not show our own cgroup"
    READ_ONLY = "the cgroup v2 hierarchy is mounted read-only"
    DENIED = "this user may not make cgroups"
    REFUSED = "the kernel refuses a cgroup"


def find_obstacle() -> Obstacle | None:
    """What keeps a daemon from making cgroups here; None when nothing does. Leaves nothing behind."""
    own = cgroup.own_directory()
    if own is None:
        return _why_none_is_ours()
    path = os.path.join(own, f"{cgroup.PREFIX}look-{os.getpid()}")
    try:
        os.mkdir(path)
    except OSError as refused:
        return of_errno(refused.errno)
    try:
        with open(os.path.join(path, "cgroup.procs"), "wb"):
            return None
    except OSError as refused:
        return of_errno(refused.errno)
    finally:
        os.rmdir(path)


def advice(home: Home) -> str:
    """For a daemon that has got no cgroup: why, and what to change. One line."""
    obstacle = find_obstacle() or Obstacle.REFUSED
    return f"{obstacle.value}; for a stronger level: {change_for(obstacle, home)}"


def of_errno(number: int | None) -> Obstacle:
    match number:
        case errno.EROFS:
            return Obstacle.READ_ONLY
        case errno.EACCES | errno.EPERM:
            return Obstacle.DENIED
        case _:
            return Obstacle.REFUSED


def _why_none_is_ours() -> Obstacle:
    try:
        with open("/proc/self/mountinfo") as mounts:
            mounted = any(" - cgroup2 " in line for line in mounts)
        with open("/proc/self/cgroup") as groups:
            groups.read()
    except OSError:
        return Obstacle.NO_PROC
    return Obstacle.OUTSIDE if mounted else Obstacle.NO_HIERARCHY


def change_for(obstacle: Obstacle, home: Home) -> str:
    """The one thing to change for cgroups. Pure."""
    contained = home in (Home.CONTAINER, Home.KUBERNETES)
    match obstacle:
        case Obstacle.NO_PROC:
            return "mount /proc"
        case Obstacle.NO_HIERARCHY if contained:
            return "run the container on a host with cgroup v2"
        case Obstacle.NO_HIERARCHY:
            return "boot with cgroup v2, or: mount -t cgroup2 none DIRECTORY"
        case Obstacle.OUTSIDE:
            return "start the container with --cgroupns=private"
        case Obstacle.READ_ONLY if home is Home.KUBERNETES:
            return "a runtime class whose containers may write their cgroup (containerd: cgroup_writable = true)"
        case Obstacle.READ_ONLY:
            return ("start the container with --security-opt writable-cgroups=true (Docker) or "
                    "--security-opt unmask=/sys/fs/cgroup (Podman)")
        case Obstacle.DENIED if home is Home.SYSTEMD:
            return "Delegate=yes in the unit"
        case Obstacle.DENIED if contained:
            return "let the container's user own its cgroup, or run as root in it"
        case Obstacle.DENIED:
            return "start the daemon from a unit with Delegate=yes, or give its user a cgroup directory (chown)"
        case Obstacle.REFUSED:
            return "raise cgroup.max.descendants and cgroup.max.depth above the daemon's cgroup"
        case _:
            assert_never(obstacle)

"""What could enforce limits on a run: controllers of cgroup v2, of v1, or rlimits."""

from __future__ import annotations

import os
import re
from enum import Enum

import msgspec

from sexton.doctor.findings import Area, Level, Line
from sexton.doctor.home import Home
from sexton.doctor.obstacle import Obstacle, change_for, find_obstacle
from sexton.execution import cgroup


class Means(Enum):
    """Best first."""

    CGROUP_V2 = "cgroup v2"
    CGROUP_V1 = "cgroup v1"
    RLIMIT = "rlimit"
    NOTHING = "nothing"


class LimitFacts(msgspec.Struct, frozen=True, kw_only=True):
    v2: frozenset[str]
    """Controllers that children of our own cgroup can have."""
    v1: frozenset[str]
    """Controllers in whose hierarchies we may make a group."""
    obstacle: Obstacle | None
    root: bool
    home: Home


CONTROLLERS = {"cpu": "cpu", "memory": "memory", "processes": "pids"}


def look(home: Home) -> LimitFacts:
    obstacle = find_obstacle()
    return LimitFacts(
        v2=_v2() if obstacle is None else frozenset(), v1=frozenset(filter(_usable_v1, CONTROLLERS.values())),
        obstacle=obstacle, root=os.geteuid() == 0, home=home,
    )


def _v2() -> frozenset[str]:
    own = cgroup.own_directory()
    if own is None:
        return frozenset()
    try:
        with open(os.path.join(own, "cgroup.controllers")) as file:
            offered = frozenset(file.read().split())
    except OSError:
        return frozenset()
    return offered if os.access(os.path.join(own, "cgroup.subtree_control"), os.W_OK) else frozenset()


def v1_directory(controller: str, mountinfo: str, groups: str) -> str | None:
    """Our own group in the v1 hierarchy of a controller, from the texts of /proc/self/mountinfo and /proc/self/cgroup;
    None where that is not mounted. Pure."""
    inside = next((row.split(":", 2)[2] for row in groups.splitlines()
                   if controller in row.split(":", 2)[1].split(",")), None)
    if inside is None:
        return None
    for row in mountinfo.splitlines():
        left, _, right = row.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind != "cgroup" or controller not in options.split(","):
            continue
        root, mount = left.split()[3], re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), left.split()[4])
        relative = os.path.relpath(inside, root)
        if not relative.startswith(".."):
            return os.path.normpath(os.path.join(mount, relative))
    return None


def _usable_v1(controller: str) -> bool:
    try:
        with open("/proc/self/mountinfo") as mounts, open("/proc/self/cgroup") as groups:
            own = v1_directory(controller, mounts.read(), groups.read())
        if own is None:
            return False
        path = os.path.join(own, f"{cgroup.PREFIX}doctor-{os.getpid()}")
        os.mkdir(path)
        os.rmdir(path)
    except OSError:
        return False
    return True


# -------------------------------------------------------------------- judging


def means_for(limit: str, facts: LimitFacts) -> Means:
    """The strongest that could hold `cpu`, `memory` or `processes` here."""
    controller = CONTROLLERS[limit]
    if controller in facts.v2:
        return Means.CGROUP_V2
    if controller in facts.v1:
        return Means.CGROUP_V1
    if limit == "memory" or (limit == "processes" and not facts.root):
        return Means.RLIMIT
    return Means.NOTHING


def judge(facts: LimitFacts) -> list[Line]:
    """Without means a limit is weaker, not missing: what could not be enforced is said of each run, and
    `required: true` refuses to start it."""
    return [_judge_one(limit, means_for(limit, facts), facts) for limit in CONTROLLERS]


def _judge_one(limit: str, means: Means, facts: LimitFacts) -> Line:
    match means:
        case Means.CGROUP_V2 | Means.CGROUP_V1:
            return Line(Area.LIMITS, limit, Level.OK, f"{means.value} controller: the whole run is counted")
        case Means.RLIMIT:
            found = "rlimits only: each process is counted by itself" if limit == "memory" else (
                "rlimits only: all processes of the user are counted")
        case Means.NOTHING:
            found = "cannot be enforced"
    return Line(Area.LIMITS, limit, Level.WEAKER, found, _change(facts))


def _change(facts: LimitFacts) -> str:
    if facts.obstacle is not None:
        return change_for(facts.obstacle, facts.home)
    return "give the daemon's cgroup the controllers (Delegate=yes in a unit; cgroup.subtree_control of its parent)"

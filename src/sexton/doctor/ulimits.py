"""How many descriptors and processes there are for the daemon and its runs."""

from __future__ import annotations

import os
import resource

import msgspec

from sexton.doctor.findings import Area, Level, Line
from sexton.doctor.home import Home
from sexton.doctor.limits import v1_directory
from sexton.execution import cgroup

FEWEST_DESCRIPTORS = 64
"""Below it not even the daemon and its first supervisors fit."""
FEW_DESCRIPTORS = 1024
FEWEST_PROCESSES = 16
FEW_PROCESSES = 256


class UlimitFacts(msgspec.Struct, frozen=True, kw_only=True):
    """None where there is no limit, or it does not bind this process."""

    descriptors_hard: int | None
    processes_left: int | None
    """Under RLIMIT_NPROC, for the daemon's user."""
    pids_left: int | None
    """Under the pids controllers of the cgroups that we are in."""
    home: Home


def look(home: Home) -> UlimitFacts:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UlimitFacts(
        descriptors_hard=None if hard == resource.RLIM_INFINITY else hard,
        processes_left=_processes_left(), pids_left=_pids_left(), home=home,
    )


def _processes_left() -> int | None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    uid = os.getuid()
    if limit == resource.RLIM_INFINITY or uid == 0:
        return None
    used = 0
    try:
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                    used += len(os.listdir(f"/proc/{name}/task"))
            except OSError:
                continue  # it has ended meanwhile
    except OSError:
        return limit
    return max(0, limit - used)


def _pids_left() -> int | None:
    """The tightest of our own group's and its ancestors' limits, in whichever hierarchy has the controller."""
    left: int | None = None
    for directory in filter(None, (cgroup.own_directory(), _v1_pids())):
        while directory != "/":
            room = _room(directory)
            left = room if left is None or (room is not None and room < left) else left
            directory = os.path.dirname(directory)
    return left


def _v1_pids() -> str | None:
    try:
        with open("/proc/self/mountinfo") as mounts, open("/proc/self/cgroup") as groups:
            return v1_directory("pids", mounts.read(), groups.read())
    except OSError:
        return None


def _room(directory: str) -> int | None:
    try:
        with open(f"{directory}/pids.max") as most, open(f"{directory}/pids.current") as current:
            limit = most.read().strip()
            return None if limit == "max" else max(0, int(limit) - int(current.read()))
    except (OSError, ValueError):
        return None


def judge(facts: UlimitFacts) -> list[Line]:
    return [
        judge_descriptors(facts.descriptors_hard, facts.home),
        _judge_processes("processes", "RLIMIT_NPROC", facts.processes_left, _nproc(facts.home)),
        _judge_processes("tasks", "the pids limit of the cgroup", facts.pids_left, _tasks(facts.home)),
    ]


def judge_descriptors(hard: int | None, home: Home, needed: int = FEW_DESCRIPTORS) -> Line:
    """Whether `needed` descriptors can be had; the daemon raises its soft limit to the hard one by itself."""
    change = f"LimitNOFILE={_above(needed)} in the unit" if home is Home.SYSTEMD else (
        f"raise the hard limit: ulimit -Hn {_above(needed)}")
    if hard is not None and hard < FEWEST_DESCRIPTORS:
        return Line(Area.ULIMITS, "descriptors", Level.MISSING, f"at most {hard}: too few to start runs", change)
    if hard is not None and hard < needed:
        return Line(Area.ULIMITS, "descriptors", Level.WEAKER, f"at most {hard}, and each run takes up to three: runs "
                    "beyond that fail to start", change)
    return Line(Area.ULIMITS, "descriptors", Level.OK, "no limit" if hard is None else f"up to {hard}")


def _above(needed: int) -> int:
    """A round limit: 1024, 2048, 4096, ..."""
    limit = FEW_DESCRIPTORS
    while limit < needed:
        limit *= 2
    return max(limit, 4096)


def _judge_processes(name: str, what: str, left: int | None, change: str) -> Line:
    if left is None:
        return Line(Area.ULIMITS, name, Level.OK, f"{what} does not bind the daemon")
    found = f"{what} leaves room for {left} more"
    if left < FEWEST_PROCESSES:
        return Line(Area.ULIMITS, name, Level.MISSING, f"{found}: too few to start runs", change)
    if left < FEW_PROCESSES:
        return Line(Area.ULIMITS, name, Level.WEAKER, f"{found}; runs beyond that fail to start", change)
    return Line(Area.ULIMITS, name, Level.OK, found)


def _nproc(home: Home) -> str:
    return "LimitNPROC=infinity in the unit" if home is Home.SYSTEMD else "raise it: ulimit -u"


def _tasks(home: Home) -> str:
    match home:
        case Home.SYSTEMD:
            return "TasksMax=infinity in the unit"
        case Home.KUBERNETES:
            return "raise podPidsLimit of the kubelet"
        case Home.CONTAINER:
            return "start the container with a higher --pids-limit"
        case Home.PLAIN:
            return "raise pids.max of the cgroup"

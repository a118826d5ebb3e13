"""Where on this machine a cgroup can hold a run to its limits: a directory of ours in each hierarchy that can.

Hierarchies are found from mountinfo and /proc/self/cgroup wherever they are mounted: one v2, any number of v1. Nothing
is made before the first run with limits; directories carry the daemon's identity as in `cgroup.py`.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable

import msgspec

from sexton.execution import cgroup
from sexton.execution.birth import kernel
from sexton.model.limits import Limit, Mechanism

logger = logging.getLogger("sexton.limits")

CONTROLLER = {Limit.CPU: "cpu", Limit.MEMORY: "memory", Limit.PROCESSES: "pids"}
FILES = {
    (Limit.CPU, Mechanism.CGROUP_V1): "cpu.cfs_quota_us",
    (Limit.MEMORY, Mechanism.CGROUP_V1): "memory.limit_in_bytes",
    (Limit.PROCESSES, Mechanism.CGROUP_V1): "pids.max",
}
SWEEP_SECONDS = 5.0
DAEMON_LEAF = "daemon"


class Hierarchy(msgspec.Struct, frozen=True, kw_only=True):
    """One mounted hierarchy and our own cgroup in it."""

    own: str
    controllers: frozenset[str]
    """Of a v1 hierarchy; a v2 hierarchy tells its own in `cgroup.controllers`."""
    version: int


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """A directory below which runs can be held to one or more limits."""

    base: str
    mechanism: Mechanism
    limits: frozenset[Limit]


def hierarchies(mountinfo: str, groups: str) -> list[Hierarchy]:
    """Decide which hierarchies there are, from the text of /proc/self/mountinfo and /proc/self/cgroup. Pure."""
    inside: dict[str, str] = {}
    for line in groups.splitlines():
        _, names, path = line.split(":", 2)
        inside.update(dict.fromkeys(names.split(","), path))
    found: list[Hierarchy] = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = [*right.split(" ", 2), "", ""][:3]
        if kind not in ("cgroup", "cgroup2"):
            continue
        words = set(options.split(",")) if kind == "cgroup" else {""}
        mine = sorted(words & set(inside))
        if not mine:
            continue
        fields = left.split()
        root, mount = fields[3], re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        relative = os.path.relpath(inside[mine[0]], root)
        if not relative.startswith(".."):
            own = os.path.normpath(os.path.join(mount, relative))
            found.append(Hierarchy(own=own, controllers=frozenset(mine), version=1 if kind == "cgroup" else 2))
    return found


def here() -> list[Hierarchy]:
    """Those of this process; none where /proc does not tell."""
    try:
        with open("/proc/self/mountinfo") as mounts, open("/proc/self/cgroup") as groups:
            return hierarchies(mounts.read(), groups.read())
    except (OSError, ValueError) as unknown:
        logger.debug("no cgroup hierarchy can be told: %s", unknown)
        return []


class Controllers:
    """What can be held to what here. `why` says for each limit that cannot be, why."""

    def __init__(self, v2_base: str | None, look: Callable[[], list[Hierarchy]] = here) -> None:
        """`v2_base` is the directory that supervisors are born below, if there is one."""
        self._v2_base = v2_base
        self._look = look
        self._grounds: list[Ground] | None = None
        self._made: list[str] = []
        self.why: dict[Limit, str] = {}

    def grounds(self) -> list[Ground]:
        """Found and claimed at the first call; v2 before v1, and no limit in two of them."""
        if self._grounds is None:
            self._grounds = []
            found = self._look()
            open_limits = set(Limit)
            for hierarchy in sorted(found, key=lambda each: -each.version):
                ground = self._claim_v2(hierarchy) if hierarchy.version == 2 else self._claim_v1(hierarchy, open_limits)
                if ground is not None and ground.limits:
                    self._grounds.append(ground)
                    open_limits -= ground.limits
            for limit in open_limits:
                self.why.setdefault(limit, f"no cgroup with the {CONTROLLER[limit]} controller is here")
            logger.info("resource limits: %s", ", ".join(
                f"{limit.value} by {self.mechanism(limit).value}" for limit in Limit))
        return self._grounds

    def mechanism(self, limit: Limit) -> Mechanism:
        return next((ground.mechanism for ground in self.grounds() if limit in ground.limits), Mechanism.NONE)

    def _claim_v1(self, hierarchy: Hierarchy, wanted: set[Limit]) -> Ground | None:
        limits = {limit for limit in wanted if CONTROLLER[limit] in hierarchy.controllers}
        if not limits:
            return None
        try:
            base = cgroup.claim_in(hierarchy.own)
        except OSError as refused:
            for limit in limits:
                self.why[limit] = f"the {CONTROLLER[limit]} cgroup (v1) cannot be used: {refused.strerror}"
            return None
        self._made.append(base)
        for limit in sorted(limits, key=lambda each: each.value):
            if not os.access(os.path.join(base, FILES[limit, Mechanism.CGROUP_V1]), os.W_OK):
                limits.discard(limit)
                self.why[limit] = f"the {CONTROLLER[limit]} cgroup (v1) has no file to set it by"
        return Ground(base=base, mechanism=Mechanism.CGROUP_V1, limits=frozenset(limits))

    def _claim_v2(self, hierarchy: Hierarchy) -> Ground | None:
        if self._v2_base is None:
            return None
        offered = set(_words(hierarchy.own, "cgroup.controllers"))
        limits = {limit for limit in Limit if CONTROLLER[limit] in offered}
        if not limits:
            return None
        names = [CONTROLLER[limit] for limit in limits]
        try:
            self._hand_down(hierarchy.own, names)
            _enable(self._v2_base, names)
        except OSError as refused:
            for limit in limits:
                self.why[limit] = f"the {CONTROLLER[limit]} controller (cgroup v2) cannot be handed to runs: " \
                                  f"{refused.strerror}"
            return None
        return Ground(base=self._v2_base, mechanism=Mechanism.CGROUP_V2, limits=frozenset(limits))

    def _hand_down(self, own: str, names: list[str]) -> None:
        """Let our cgroup give its controllers to those below it. A cgroup with processes of its own may not: then all
        of them go into a leaf, unless one of them is a stranger's."""
        try:
            _enable(own, names)
        except OSError:
            ours = {os.getpid(), *kernel.descendants_of(os.getpid())}
            members = [int(pid) for pid in _words(own, "cgroup.procs")]
            if any(pid not in ours for pid in members):
                raise
            leaf = os.path.join(str(self._v2_base), DAEMON_LEAF)
            os.makedirs(leaf, exist_ok=True)
            for pid in members:
                _write(os.path.join(leaf, "cgroup.procs"), str(pid))
            _enable(own, names)

    def clean(self, number: int) -> None:
        """Remove what a supervisor that was killed had made for its run; nothing is in it any more."""
        for ground in self._grounds or []:
            cgroup.remove_tree(os.path.join(ground.base, f"l{number}"))

    def close(self) -> None:
        """At the end of the daemon: remove what is empty. What runs left on purpose stays, and is swept later."""
        for base in self._made:
            cgroup.remove_tree(base)


def _words(directory: str, file: str) -> list[str]:
    try:
        with open(os.path.join(directory, file)) as text:
            return text.read().split()
    except OSError:
        return []


def _enable(directory: str, names: Iterable[str]) -> None:
    missing = set(names) - set(_words(directory, "cgroup.subtree_control"))
    if missing:
        _write(os.path.join(directory, "cgroup.subtree_control"), " ".join(f"+{name}" for name in sorted(missing)))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def sweep(found: list[Hierarchy] | None = None) -> tuple[int, list[int]]:
    """End what dead daemons left in their limit cgroups of v1 hierarchies, except what was kept on purpose; blocking,
    bounded. (Those of v2 stand below the run cgroups and are swept with them.)

    Returns how many directories were cleared, and the pids that could not be ended.
    """
    tops = [
        top for hierarchy in (here() if found is None else found) if hierarchy.version == 1
        for top in cgroup.abandoned(hierarchy.own)
    ]
    doomed = [
        path for top in tops for path in _below(top)
        if not (cgroup.kept(path) and cgroup.members(path)) and not cgroup.is_held(path)
    ]
    deadline = time.monotonic() + SWEEP_SECONDS
    while (left := [pid for path in doomed for pid in cgroup.members(path)]) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, 9)
            except OSError:
                pass  # refused or gone: the next look tells
        time.sleep(0.002)
    cleared = sum(cgroup.remove_tree(path) for path in doomed)
    for top in tops:
        cgroup.remove_tree(top)
    return cleared, left


def _below(top: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(top) if entry.is_dir()]
    except OSError:
        return []

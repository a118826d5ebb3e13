"""What the doctor makes of what it found: pure decisions, as tables."""

from __future__ import annotations

import errno
from itertools import product

import pytest
from msgspec.structs import replace

from sexton.doctor import clocks, containment, limits, state, ulimits, users
from sexton.doctor.containment import CgroupFacts, ContainmentFacts, OrphanFacts
from sexton.doctor.findings import Area, Level, Line, sound
from sexton.doctor.home import Home, find_home
from sexton.doctor.limits import Means
from sexton.doctor.obstacle import Obstacle, change_for, of_errno
from sexton.model.run import Containment
from sexton.store.mounts import file_system_of

BEST = ContainmentFacts(
    orphans=OrphanFacts(came=True, listed=True), pidfd=True, obstacle=None,
    cgroup=CgroupFacts(directory="/x", born=True, joined=True, killed=True), hidden=False, traceable=False,
    changes_user=False, root=True, home=Home.PLAIN,
)


def levels(lines: list[Line]) -> dict[str, Level]:
    return {line.name: line.level for line in lines}


def test_only_what_is_missing_is_unsound() -> None:
    """A fallback keeps the promise."""
    weaker, missing = (Line(Area.LIMITS, "cpu", level, "") for level in (Level.WEAKER, Level.MISSING))
    assert sound((weaker,)) and not sound((weaker, missing))


@pytest.mark.parametrize(("facts", "held", "line", "level"), [
    ({}, Containment.SUPERVISOR_CGROUP, "cgroup v2", Level.OK),
    ({"obstacle": Obstacle.READ_ONLY}, Containment.SUPERVISOR, "cgroup v2", Level.WEAKER),
    ({"cgroup": "it hung"}, Containment.SUPERVISOR, "cgroup v2", Level.WEAKER),
    ({"cgroup": CgroupFacts(joined=False)}, Containment.SUPERVISOR, "cgroup v2", Level.WEAKER),
    ({"cgroup": CgroupFacts(joined=True)}, Containment.SUPERVISOR_CGROUP, "cgroup v2", Level.WEAKER),
    ({"orphans": OrphanFacts(came=False, listed=True)}, Containment.NONE, "subreaper", Level.MISSING),
    ({"orphans": OrphanFacts(came=True, listed=False)}, Containment.SUPERVISOR_CGROUP, "/proc", Level.MISSING),
    ({"orphans": "no process can be made"}, Containment.NONE, "subreaper", Level.MISSING),
    ({"pidfd": "Function not implemented"}, Containment.SUPERVISOR_CGROUP, "pidfd", Level.MISSING),
    ({"hidden": True}, Containment.SUPERVISOR_CGROUP, "hidden processes", Level.WEAKER),
    ({"root": False, "traceable": True}, Containment.SUPERVISOR_CGROUP, "tracing", Level.WEAKER),
])
def test_containment(facts: dict[str, object], held: Containment, line: str, level: Level) -> None:
    """The level that a daemon would have, and the line that says why."""
    found = replace(BEST, **facts)
    assert containment.containment_of(found) is held
    assert levels(containment.judge(found))[line] is level


def test_every_weaker_containment_names_a_change() -> None:
    """Where something can be changed, it says what."""
    for obstacle, changes_user in product(Obstacle, (True, False)):
        [line] = [one for one in containment.judge(replace(BEST, obstacle=obstacle, changes_user=changes_user))
                  if one.name == "cgroup v2"]
        assert line.change and ("setuid" in line.found) is changes_user


@pytest.mark.parametrize(("obstacle", "home", "words"), [
    (Obstacle.DENIED, Home.SYSTEMD, "Delegate=yes in the unit"),
    (Obstacle.OUTSIDE, Home.CONTAINER, "--cgroupns=private"),
    (Obstacle.READ_ONLY, Home.CONTAINER, "writable-cgroups"),
    (Obstacle.READ_ONLY, Home.KUBERNETES, "cgroup_writable"),
    (Obstacle.NO_HIERARCHY, Home.PLAIN, "mount -t cgroup2"),
    (Obstacle.NO_PROC, Home.CONTAINER, "mount /proc"),
])
def test_the_change_fits_what_started_us(obstacle: Obstacle, home: Home, words: str) -> None:
    """A unit, a container and a pod are changed in different places."""
    assert words in change_for(obstacle, home)


@pytest.mark.parametrize(("number", "obstacle"), [
    (errno.EROFS, Obstacle.READ_ONLY), (errno.EACCES, Obstacle.DENIED), (errno.EPERM, Obstacle.DENIED),
    (errno.EAGAIN, Obstacle.REFUSED), (None, Obstacle.REFUSED),
])
def test_what_the_kernel_says(number: int | None, obstacle: Obstacle) -> None:
    """Each refusal has its meaning."""
    assert of_errno(number) is obstacle


@pytest.mark.parametrize(("environ", "pid", "home"), [
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, 1, Home.KUBERNETES), ({}, 1, Home.CONTAINER),
    ({"container": "podman", "INVOCATION_ID": "x"}, 7, Home.CONTAINER),
])
def test_what_started_us(environ: dict[str, str], pid: int, home: Home) -> None:
    """Found from the environment and the process number."""
    assert find_home(environ, pid=pid) is home


V1_MOUNTS = ("36 23 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
             "37 23 0:34 /kub /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
             "38 23 0:35 / /sys/fs/cgroup/two\\040words rw - cgroup cgroup rw,pids\n"
             "39 23 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw")
V1_GROUPS = "4:memory:/a/b\n3:cpu,cpuacct:/kub/pod\n2:pids:/\n0::/\n"


@pytest.mark.parametrize(("controller", "directory"), [
    ("memory", "/sys/fs/cgroup/memory/a/b"), ("cpu", "/sys/fs/cgroup/cpu,cpuacct/pod"),
    ("pids", "/sys/fs/cgroup/two words"), ("blkio", None),
])
def test_our_own_v1_group(controller: str, directory: str | None) -> None:
    """Found below whatever root the mount shows, with escapes undone."""
    assert limits.v1_directory(controller, V1_MOUNTS, V1_GROUPS) == directory
    assert limits.v1_directory("cpu", V1_MOUNTS, "3:cpu:/elsewhere\n") is None


@pytest.mark.parametrize(("v2", "v1", "root", "means"), [
    ({"cpu", "memory", "pids"}, {"cpu"}, True, (Means.CGROUP_V2,) * 3),
    (set(), {"cpu", "memory", "pids"}, True, (Means.CGROUP_V1,) * 3),
    ({"memory"}, {"cpu"}, True, (Means.CGROUP_V1, Means.CGROUP_V2, Means.NOTHING)),
    (set(), set(), False, (Means.NOTHING, Means.RLIMIT, Means.RLIMIT)),
])
def test_limits(v2: set[str], v1: set[str], root: bool, means: tuple[Means, ...]) -> None:
    """The strongest means for each limit; root is not bound by RLIMIT_NPROC. None is ever missing."""
    facts = limits.LimitFacts(v2=frozenset(v2), v1=frozenset(v1), obstacle=None, root=root, home=Home.PLAIN)
    assert tuple(limits.means_for(limit, facts) for limit in limits.CONTROLLERS) == means
    for line in limits.judge(facts):
        strong = means[list(limits.CONTROLLERS).index(line.name)] in (Means.CGROUP_V1, Means.CGROUP_V2)
        assert line.level is (Level.OK if strong else Level.WEAKER) and (line.change is None) is strong


CLOCKS = clocks.ClockFacts(year=2026, slept=0.0, backwards=False, hears_sets=True, synchronised=True, zones="/zones")


@pytest.mark.parametrize(("facts", "line", "level"), [
    ({}, "wall clock", Level.OK), ({"synchronised": None}, "wall clock", Level.OK),
    ({"synchronised": False}, "wall clock", Level.WEAKER), ({"year": 1970}, "wall clock", Level.MISSING),
    ({"backwards": True}, "monotonic clock", Level.MISSING), ({"slept": 7.0}, "monotonic clock", Level.OK),
    ({"hears_sets": False}, "clock changes", Level.WEAKER), ({"zones": None}, "time zones", Level.MISSING),
])
def test_clocks(facts: dict[str, object], line: str, level: Level) -> None:
    """What schedules and deadlines rest on."""
    assert levels(clocks.judge(replace(CLOCKS, **facts)))[line] is level


USERS = users.UserFacts(uid=0, switches=True, signals=True, raises=True, no_new_privileges=False)


@pytest.mark.parametrize(("facts", "line", "level"), [
    ({}, "user of a job", Level.OK), ({}, "signals", Level.OK),
    ({"switches": "Operation not permitted"}, "user of a job", Level.WEAKER),
    ({"signals": "Operation not permitted"}, "signals", Level.WEAKER),
    ({"uid": 7, "switches": False, "signals": False}, "signals", Level.WEAKER),
    ({"uid": 7, "switches": False, "signals": False, "no_new_privileges": True}, "signals", Level.OK),
    ({"no_new_privileges": True}, "setuid programs", Level.WEAKER), ({"raises": False}, "priority", Level.WEAKER),
])
def test_users(facts: dict[str, object], line: str, level: Level) -> None:
    """Whom jobs can be, and whom we can signal."""
    assert levels(users.judge(replace(USERS, **facts)))[line] is level


@pytest.mark.parametrize(("hard", "needed", "level"), [
    (None, 10**6, Level.OK), (4096, 1024, Level.OK), (512, 1024, Level.WEAKER), (32, 1024, Level.MISSING),
    (4096, 5000, Level.WEAKER),
])
def test_descriptors(hard: int | None, needed: int, level: Level) -> None:
    """The hard limit counts; what it should be is enough for what is needed."""
    line = ulimits.judge_descriptors(hard, Home.SYSTEMD, needed)
    assert line.level is level
    if line.change is not None:
        assert int(line.change.split("=")[1].split()[0]) >= needed


@pytest.mark.parametrize(("left", "level"), [
    (None, Level.OK), (10_000, Level.OK), (100, Level.WEAKER), (3, Level.MISSING),
])
def test_processes(left: int | None, level: Level) -> None:
    """Room under RLIMIT_NPROC, and under the cgroup."""
    facts = ulimits.UlimitFacts(descriptors_hard=None, processes_left=left, pids_left=left,
                                home=Home.PLAIN)
    assert levels(ulimits.judge(facts)) == {"descriptors": Level.OK, "processes": level, "tasks": level}


GOOD = state.StateFacts(existing="/s", writable=True, locks=True, fsync=0.001, free=10**10, inodes=10**6)


@pytest.mark.parametrize(("facts", "kind", "line", "level"), [
    ({}, "ext4", "directory", Level.OK), ({}, None, "directory", Level.OK), ({}, "nfs4", "directory", Level.MISSING),
    ({}, "tmpfs", "directory", Level.WEAKER), ({}, "overlay", "directory", Level.WEAKER),
    ({"writable": False}, "ext4", "directory", Level.MISSING), ({"locks": False}, "ext4", "locks", Level.MISSING),
    ({"fsync": 0.5}, "ext4", "fsync", Level.WEAKER), ({"free": 10**8}, "ext4", "room", Level.WEAKER),
    ({"free": 0}, "ext4", "room", Level.MISSING), ({"inodes": 0}, "ext4", "room", Level.MISSING),
    ({"inodes": 10}, "ext4", "room", Level.WEAKER), ({"inodes": None}, "btrfs", "room", Level.OK),
])
def test_state(facts: dict[str, object], kind: str | None, line: str, level: Level) -> None:
    """Where records can live."""
    assert levels(state.judge("/s", replace(GOOD, **facts), kind, shared=False))[line] is level


@pytest.mark.parametrize(("kind", "level"), [("nfs4", Level.OK), ("ext4", Level.OK), ("fuse.s3fs", Level.MISSING),
                                             ("tmpfs", Level.WEAKER)])
def test_state_of_several_nodes(kind: str, level: Level) -> None:
    """A folder that nodes share belongs on a network mount, and needs no locks of it."""
    found = state.judge("/s", replace(GOOD, locks=False), kind, shared=True)
    assert levels(found)["directory"] is level and "locks" not in levels(found)
    assert not any("ledger" in line.found for line in found)


def test_a_disk_that_does_not_answer() -> None:
    """A probe without an answer is a missing promise."""
    assert state.judge("/s", "no answer within 20 seconds", "ext4", shared=False)[0].level is Level.MISSING


MOUNTS = ("1 0 8:1 / / rw - ext4 /dev/a rw\n"
          "2 1 0:9 / /var/lib rw - nfs4 h:/x rw\n3 1 0:9 / /var/lib/a\\040b rw - xfs y rw")


@pytest.mark.parametrize(("directory", "kind"), [
    ("/", "ext4"), ("/var", "ext4"), ("/var/lib", "nfs4"), ("/var/library", "ext4"), ("/var/lib/x", "nfs4"),
    ("/var/lib/a b/c", "xfs"),
])
def test_the_file_system_of_a_path(directory: str, kind: str) -> None:
    """The deepest mount above it."""
    assert file_system_of(directory, MOUNTS) == kind

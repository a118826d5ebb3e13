"""Whether processes of a run can be held, ended and proven gone: child subreapers, /proc, pidfds, a cgroup v2."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from sexton.doctor.child import ProbeFailed, in_child
from sexton.doctor.findings import Area, Level, Line
from sexton.doctor.home import Home
from sexton.doctor.obstacle import Obstacle, change_for, find_obstacle, of_errno
from sexton.doctor.users import privileges_fixed
from sexton.execution import cgroup
from sexton.execution.birth import kernel
from sexton.model.run import Containment

T = TypeVar("T")

STEP_SECONDS = 2.0


class OrphanFacts(msgspec.Struct, frozen=True):
    """What became of a process whose parent ended: did it come to us, and does /proc list it as ours?"""

    came: bool
    listed: bool


class CgroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    directory: str = ""
    born: bool = False
    """A process can be born in a cgroup (clone3); else it joins."""
    joined: bool = False
    killed: bool = False
    """cgroup.kill ended it, and cgroup.events said so."""


class ContainmentFacts(msgspec.Struct, frozen=True, kw_only=True):
    orphans: OrphanFacts | str
    pidfd: bool | str
    obstacle: Obstacle | None
    cgroup: CgroupFacts | str
    hidden: bool
    """/proc hides the processes of other users from us."""
    traceable: bool
    """Any process of our user may be traced by another one."""
    changes_user: bool
    """A child of a job may become a user whom we cannot signal: we are not root, and setuid programs work."""
    root: bool
    home: Home


def look(home: Home) -> ContainmentFacts:
    """Probe; leaves nothing behind."""
    obstacle = find_obstacle()
    return ContainmentFacts(
        orphans=_ask(_orphans, OrphanFacts), pidfd=_ask(_pidfd, bool), obstacle=obstacle,
        cgroup=_cgroup() if obstacle is None else CgroupFacts(), hidden=_hides_others(), traceable=_traceable(),
        changes_user=os.geteuid() != 0 and not privileges_fixed(), root=os.geteuid() == 0, home=home,
    )


def _ask(probe: Callable[[], T], kind: type[T]) -> T | str:
    try:
        return in_child(probe, kind)
    except ProbeFailed as failed:
        return str(failed)


def _orphans() -> OrphanFacts:
    kernel.become_subreaper()
    ours, theirs = os.pipe()
    middle = os.fork()
    if middle == 0:
        orphan = os.fork()
        if orphan == 0:
            _sleep()
        os.write(theirs, b"%d" % orphan)
        os._exit(0)
    os.waitpid(middle, 0)
    pid = int(os.read(ours, 32))
    listed = pid in kernel.children_of(os.getpid())
    os.kill(pid, signal.SIGKILL)
    try:
        return OrphanFacts(came=os.waitpid(pid, 0)[0] == pid, listed=listed)
    except ChildProcessError:
        return OrphanFacts(came=False, listed=listed)


def _sleep() -> None:
    """In a child: a bounded life without a parent. Never returns."""
    try:
        time.sleep(2 * STEP_SECONDS)
    finally:
        os._exit(0)


def _pidfd() -> bool:
    fd = os.pidfd_open(os.getpid())
    signal.pidfd_send_signal(fd, 0)
    return True


def _cgroup() -> CgroupFacts | str:
    own = cgroup.own_directory()
    assert own is not None, "there was one a moment ago"
    path = os.path.join(own, f"{cgroup.PREFIX}doctor-{os.getpid()}")
    try:
        os.mkdir(path)
    except OSError as refused:
        return f"{of_errno(refused.errno).value}: {refused.strerror}"
    try:
        return in_child(partial(_use_cgroup, path), CgroupFacts)
    except ProbeFailed as failed:
        return str(failed)
    finally:
        _until(partial(cgroup.remove_tree, path))


def _use_cgroup(path: str) -> CgroupFacts:
    """A process is born in the cgroup, or joins it, and is ended through it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        pid, born = kernel.fork_into_cgroup(fd), True
    except OSError:
        pid, born = os.fork(), False
    if pid == 0:
        _sleep()
    joined = born
    if not born:
        with open(f"{path}/cgroup.procs", "w") as procs:
            procs.write(str(pid))
        joined = True
    joined = joined and pid in cgroup.members(path)
    try:
        with open(f"{path}/cgroup.kill", "w") as kill:
            kill.write("1")
    except OSError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return CgroupFacts(directory=path, born=born, joined=joined)
    killed = _until(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid) and _until(lambda: not cgroup.populated(path))
    return CgroupFacts(directory=path, born=born, joined=joined, killed=killed)


def _until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + STEP_SECONDS
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.002)
    return True


def _hides_others() -> bool:
    """hidepid: without it process 1 can be looked at by everybody."""
    return os.path.isdir("/proc/self") and not os.path.exists("/proc/1")


def _traceable() -> bool:
    try:
        with open("/proc/sys/kernel/yama/ptrace_scope") as scope:
            return int(scope.read()) == 0
    except (OSError, ValueError):
        return True  # no Yama: the classic rule


# -------------------------------------------------------------------- judging


def containment_of(facts: ContainmentFacts) -> Containment:
    """What a daemon started here would hold its runs by."""
    if not (isinstance(facts.orphans, OrphanFacts) and facts.orphans.came):
        return Containment.NONE
    usable = facts.obstacle is None and isinstance(facts.cgroup, CgroupFacts) and facts.cgroup.joined
    return Containment.SUPERVISOR_CGROUP if usable else Containment.SUPERVISOR


def judge(facts: ContainmentFacts) -> list[Line]:
    lines = [_judge_orphans(facts.orphans), _judge_listing(facts.orphans), _judge_pidfd(facts.pidfd)]
    lines.append(_judge_cgroup(facts))
    if facts.hidden:
        lines.append(_line("hidden processes", Level.WEAKER, "/proc hides other users' processes: survivors of "
                           "another user cannot be named", "mount /proc without hidepid, or with gid= of the daemon"))
    if not facts.root and facts.traceable:
        lines.append(_line("tracing", Level.WEAKER, "a job may trace the daemon, whose user it has (supervisors are "
                           "closed to it)", "sysctl kernel.yama.ptrace_scope=1"))
    return lines


def _line(name: str, level: Level, found: str, change: str | None = None) -> Line:
    return Line(Area.CONTAINMENT, name, level, found, change)


def _judge_orphans(facts: OrphanFacts | str) -> Line:
    if isinstance(facts, str):
        return _line("subreaper", Level.MISSING, f"the probe failed: {facts}")
    if not facts.came:
        return _line("subreaper", Level.MISSING, "an orphan did not come to its subreaper: death cannot be proven",
                     "a kernel with PR_SET_CHILD_SUBREAPER (3.4 or later)")
    return _line("subreaper", Level.OK, "orphans come to the run's supervisor: death can be proven")


def _judge_listing(facts: OrphanFacts | str) -> Line:
    if isinstance(facts, str):
        return _line("/proc", Level.MISSING, f"the probe failed: {facts}")
    if facts.listed:
        return _line("/proc", Level.OK, "the children of a process are listed")
    if not os.path.isdir("/proc/self"):
        return _line("/proc", Level.MISSING, "not mounted: processes that left a run's group are not found, and not "
                     "ended before their time", "mount -t proc proc /proc")
    return _line("/proc", Level.MISSING, "does not list the children of a process",
                 "a kernel with CONFIG_PROC_CHILDREN")


def _judge_pidfd(works: bool | str) -> Line:
    if works is True:
        return _line("pidfd", Level.OK, "a signal cannot hit a stranger that got the number of a dead process")
    return _line("pidfd", Level.MISSING, f"not available ({works}): descendants of descendants are not signalled",
                 "a kernel of 5.3 or later, and no filter for pidfd_open")


def _judge_cgroup(facts: ContainmentFacts) -> Line:
    if facts.obstacle is not None:
        found = f"{facts.obstacle.value}: {_without_cgroup(facts.changes_user)}"
        return _line("cgroup v2", Level.WEAKER, found, change_for(facts.obstacle, facts.home))
    if isinstance(facts.cgroup, str):
        return _line("cgroup v2", Level.WEAKER, f"the probe failed: {facts.cgroup}")
    if not facts.cgroup.joined:
        return _line("cgroup v2", Level.WEAKER, "a process could not be put into a cgroup of ours",
                     change_for(Obstacle.DENIED, facts.home))
    if not facts.cgroup.killed:
        return _line("cgroup v2", Level.WEAKER, "no cgroup.kill: what is in a cgroup is ended one by one",
                     "a kernel of 5.14 or later")
    how = "born in their cgroup" if facts.cgroup.born else "moved to their cgroup (clone3 is filtered)"
    return _line("cgroup v2", Level.OK, f"a second witness and a second way to end a run; supervisors are {how}")


def _without_cgroup(changes_user: bool) -> str:
    base = "the supervisor alone proves death"
    return f"{base}; a setuid child could outlive its run (and would be named)" if changes_user else base

"""Which users jobs can have, and whether their processes can be signalled and given priority."""

from __future__ import annotations

import os
import signal
import time

import msgspec

from sexton.doctor.child import ProbeFailed, in_child
from sexton.doctor.findings import Area, Level, Line

NOBODY = 65534


class UserFacts(msgspec.Struct, frozen=True, kw_only=True):
    uid: int
    switches: bool | str
    """A process could become another user; or why not."""
    signals: bool | str
    """A process of another user could be ended; or why not."""
    raises: bool
    """A priority above normal can be given."""
    no_new_privileges: bool


def look() -> UserFacts:
    root = os.geteuid() == 0
    return UserFacts(
        uid=os.geteuid(), switches=_ask_switch() if root else False, signals=_ask_signal() if root else False,
        raises=_ask_raise(), no_new_privileges=privileges_fixed(),
    )


def _status(field: str) -> str | None:
    try:
        with open("/proc/self/status") as status:
            return next((line.split()[1] for line in status if line.startswith(f"{field}:")), None)
    except OSError:
        return None


def privileges_fixed() -> bool:
    """no_new_privs: no program that is executed here becomes another user."""
    return _status("NoNewPrivs") == "1"


def _become_nobody() -> None:
    os.setgroups([NOBODY])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def _switch() -> bool:
    _become_nobody()
    return os.geteuid() == NOBODY


def _signal_another() -> bool:
    """Ends a process that has become somebody else."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            time.sleep(2.0)
        finally:
            os._exit(0)
    end = time.monotonic() + 1.0
    while os.path.isdir(f"/proc/{pid}") and os.stat(f"/proc/{pid}").st_uid != NOBODY and time.monotonic() < end:
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def _raise() -> bool:
    os.setpriority(os.PRIO_PROCESS, 0, -1)
    return True


def _ask_switch() -> bool | str:
    try:
        return in_child(_switch, bool)
    except ProbeFailed as failed:
        return str(failed)


def _ask_signal() -> bool | str:
    try:
        return in_child(_signal_another, bool)
    except ProbeFailed as failed:
        return str(failed)


def _ask_raise() -> bool:
    try:
        return in_child(_raise, bool)
    except ProbeFailed:
        return False


def judge(facts: UserFacts) -> list[Line]:
    lines = [_judge_switch(facts), _judge_signal(facts)]
    if facts.raises:
        lines.append(_line("priority", Level.OK, "jobs can have any priority"))
    else:
        lines.append(_line("priority", Level.WEAKER, "jobs cannot have a priority above normal", "CAP_SYS_NICE"))
    if facts.no_new_privileges:
        lines.append(_line("setuid programs", Level.WEAKER, "no_new_privs is set: sudo, su and the like do not work in "
                           "jobs", "NoNewPrivileges=no in the unit, allowPrivilegeEscalation: true in a pod"))
    return lines


def _line(name: str, level: Level, found: str, change: str | None = None) -> Line:
    return Line(Area.USERS, name, level, found, change)


def _judge_switch(facts: UserFacts) -> Line:
    if facts.switches is True:
        return _line("user of a job", Level.OK, "jobs can have any user and group")
    if facts.uid != 0:
        return _line("user of a job", Level.WEAKER, f"all jobs run as the daemon's user ({facts.uid})",
                     "run the daemon as root")
    return _line("user of a job", Level.WEAKER, f"root may not become another user ({facts.switches})",
                 "CAP_SETUID and CAP_SETGID")


def _judge_signal(facts: UserFacts) -> Line:
    if facts.signals is True:
        return _line("signals", Level.OK, "processes of every user can be ended")
    if facts.uid != 0 and facts.no_new_privileges:
        return _line("signals", Level.OK, "no process of a job can become another user (no_new_privs)")
    if facts.uid != 0:
        return _line("signals", Level.WEAKER, "a setuid child of a job refuses our signals: it is waited for and named",
                     "run the daemon as root")
    why = f" ({facts.signals})" if facts.signals else ""
    return _line("signals", Level.WEAKER, f"processes of other users refuse our signals{why}", "CAP_KILL")

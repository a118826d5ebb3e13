"""The escape matrix as values: what jobs do to get away, and the surroundings in which the daemon must not let them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from rig import NEVER

from sexton.execution.cgroup import own_directory

ESCAPEE = str(Path(__file__).parent / "escapee.py")
NOBODY = 65534
LIFE = "60"


class Level(Enum):
    """Who the daemon is, and whether it may make cgroups."""

    ROOT_CGROUP = "root, cgroup v2"
    ROOT = "root, no cgroup"
    USER_CGROUP = "user, delegated cgroup v2"
    USER = "user, no cgroup"

    @property
    def root(self) -> bool:
        return self in (Level.ROOT_CGROUP, Level.ROOT)

    @property
    def cgroup(self) -> bool:
        return self in (Level.ROOT_CGROUP, Level.USER_CGROUP)


class Ends(Enum):
    """What brings the run down."""

    CANCEL = "cancel"
    BY_ITSELF = "by itself"
    """The job kills its supervisor: the daemon ends the run without being asked."""
    LAST = "last"
    """Cancelled after all others, because another case needs it."""
    ALONE = "alone"
    """The test kills processes of Sexton meanwhile: one after the other, when the rest is over."""


Needs = Callable[[Level], str | None]
"""Why the job can do no such thing here; None where it can."""


def _nothing(level: Level) -> str | None:
    return None


def _root(level: Level) -> str | None:
    return None if level.root else "the job may not either"


def _cgroup_of_its_own(level: Level) -> str | None:
    return None if level.cgroup else "runs have no cgroup"


def _any_cgroup(level: Level) -> str | None:
    return "the job may not either" if level is Level.USER else None


def _compiler(level: Level) -> str | None:
    return None if compiler() else "needs a C compiler"


def _suid(level: Level) -> str | None:
    return _compiler(level) or (None if os.geteuid() == 0 else "needs root to make a set-user-ID program")


def _fuse(level: Level) -> str | None:
    served = os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)
    return None if served else "needs root and /dev/fuse"


@lru_cache(maxsize=1)
def compiler() -> str | None:
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


@dataclass(frozen=True)
class Case:
    name: str
    """Of the job."""
    title: str
    """In the table of the documentation."""
    function: str = ""
    """In escapee.py, when it is not the name; `compiled` is the C program."""
    ends: Ends = Ends.CANCEL
    needs: Needs = _nothing
    outlives: frozenset[Level] = frozenset()
    """Levels at which nobody, or not this daemon, can end it: survivors are named then, and watched."""
    unproven: frozenset[Level] = frozenset()
    """Levels at which nobody can know that nothing is left; it is said to be unknown."""
    extra: tuple[str, ...] = ()
    either: bool = False
    """Whether the supervisor gets to give the proof, or is ended and the zygote gives it, is a matter of luck."""
    captures: bool = True
    capped: bool = False
    """With resourceLimits where those are enforced, so that it is bounded twice."""

    @property
    def compiled(self) -> bool:
        """Whether it needs the C program."""
        return self.function == "compiled" or any("owner-" in word for word in self.extra)

    def job(self, level: Level, tag: str, folder: Path) -> dict[str, Any]:
        extra = [word.format(folder=folder, tag=tag) for word in self.extra]
        if self.function == "compiled":
            command = [f"{folder}/escapes", "refork", f"{folder}/{self.name}.beat", LIFE, tag]
        else:
            command = [sys.executable, "-I", "-S", ESCAPEE, self.function or self.name, self.name, tag, str(folder),
                       *extra]
        options: dict[str, Any] = {"resourceLimits": {"processes": 200}} if self.capped and level.root else {}
        return {"name": self.name, "schedule": NEVER, "command": command, "captureStdout": self.captures,
                "captureStderr": self.captures, "killTimeout": 0.1, **options}


_UNSIGNALLED = frozenset({Level.USER})
"""Without a cgroup an ordinary user ends no process of somebody else."""

CASES = (
    Case("plain", "a child"),
    Case("pipe_holder", "own process gone, a child in the background holds the output"),
    Case("setsid", "a child in a session of its own"),
    Case("double_fork", "forked twice"),
    Case("double_fork_main_gone", "forked twice, own process gone"),
    Case("environment_cleared", "forked twice, another program without environment"),
    Case("environment_cleared_main_gone", "forked twice, another program without environment, own process gone"),
    Case("refork", "forks on and on, a generation lives 2 ms, each in a session of its own"),
    Case("refork_fast", "forks on and on, a generation lives much less than 1 ms, own process gone",
         "compiled", needs=_compiler),
    Case("bomb", "fork bomb, 150 processes at a time", capped=True),
    Case("stopped", "stopped by a signal, in a session of its own"),
    Case("ptraced", "held by a tracer, in a session of its own"),
    Case("other_user", "became another user", needs=_root),
    Case("suid_root", "a set-user-ID program that became root whole", "becomes_owner", needs=_suid,
         outlives=_UNSIGNALLED, extra=("{folder}/owner-root",), captures=False),
    Case("suid_other", "a set-user-ID program that became a third user whole", "becomes_owner", needs=_suid,
         outlives=_UNSIGNALLED, extra=("{folder}/owner-other",), captures=False),
    Case("vfork_parent", "suspended by vfork (state D, but it can be ended)"),
    Case("pid_namespace", "in a process namespace of its own"),
    Case("nested_cgroup", "in a cgroup that it made below its own", needs=_cgroup_of_its_own),
    Case("moved", "moved itself to another cgroup", needs=_any_cgroup, extra=("escape-{tag}",)),
    Case("host", "another run moved itself into its cgroup", needs=_cgroup_of_its_own),
    Case("intruder", "moved itself into the cgroup of another run", ends=Ends.LAST, needs=_cgroup_of_its_own),
    Case("stops_supervisor", "stops its supervisor"),
    Case("keeps_stopping", "stops its supervisor whenever that is set going", either=True),
    Case("suid_kills_supervisor", "a set-user-ID program that became root whole; then it kills its supervisor",
         "owner_and_kills_supervisor", ends=Ends.BY_ITSELF, needs=_suid, outlives=_UNSIGNALLED,
         extra=("{folder}/owner-root",), captures=False),
    Case("kills_supervisor", "kills its supervisor", ends=Ends.BY_ITSELF),
    Case("moved_kills_supervisor", "moved itself to another cgroup and kills its supervisor",
         "moves_and_kills_supervisor", ends=Ends.BY_ITSELF, needs=_any_cgroup, extra=("escape-{tag}",)),
    Case("uninterruptible", "waits for a file system that does not answer (state D)", needs=_fuse,
         outlives=frozenset(Level), captures=False),
    Case("zygote_killed", "the zygote is killed", "escapes", ends=Ends.ALONE),
    Case("both_killed", "the zygote is killed, then the supervisor", "escapes", ends=Ends.ALONE),
    Case("daemon_killed", "the daemon is killed", "escapes", ends=Ends.ALONE),
    Case("all_killed", "the zygote is killed, then the supervisor, then the daemon", "escapes", ends=Ends.ALONE,
         unproven=frozenset({Level.ROOT, Level.USER})),
)

HIDE_CGROUPS = ("unshare", "--mount", "sh", "-c",
                'for m in $(awk \'$3 == "cgroup2" {print $2}\' /proc/mounts); do umount -l "$m" || exit 9; done; '
                'exec "$@"', "sh")
AS_USER = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps",
           "+dac_read_search", "--ambient-caps", "+dac_read_search")
"""It keeps the right to read what is root's: the interpreter may stand in a closed home."""


def unavailable(level: Level) -> str | None:
    """Why this level is not to be had; None where it is."""
    if os.geteuid() != 0:
        return None if level is Level.USER else "needs root"
    own = own_directory()
    if level.cgroup and (own is None or not os.access(own, os.W_OK)):
        return "needs a writable cgroup v2"
    wanted = {Level.ROOT: ("unshare",), Level.USER: ("setpriv",), Level.USER_CGROUP: ("setpriv",)}.get(level, ())
    missing = [program for program in wanted if not shutil.which(program)]
    return f"needs {', '.join(missing)}" if missing else None


def prefix(level: Level, delegated: str) -> tuple[str, ...]:
    """What the daemon is started through; `delegated` is a cgroup that is the user's."""
    match level:
        case Level.ROOT_CGROUP:
            return ()
        case Level.ROOT:
            return HIDE_CGROUPS
        case Level.USER_CGROUP:
            return ("sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', delegated, *AS_USER)
        case Level.USER:
            return AS_USER if os.geteuid() == 0 else ()

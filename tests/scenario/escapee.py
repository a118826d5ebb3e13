"""A job that gets away: `escapee.py FUNCTION CASE TAG FOLDER [EXTRA ...]`. What each does is its function here.

It imports nothing of Sexton or of the tests. Every process of a case has the tag among its arguments, ignores SIGTERM
and ends by itself after LIFE seconds; `FOLDER/CASE.up` says that the case is as it is meant to be, and those that keep
on forking write into `FOLDER/CASE.beat` for as long as one of them lives.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

FUNCTION, CASE, TAG, FOLDER, *EXTRA = sys.argv[1:]
LIFE = 60.0
END = time.monotonic() + LIFE
MOST = 150
"""Processes that the bomb may have at a time."""
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x10000000, 0x20000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PTRACE_TRACEME = 0
libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> None:
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


def up() -> None:
    Path(FOLDER, f"{CASE}.up").touch()


def hold() -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while time.monotonic() < END:
        time.sleep(1)
    os._exit(0)


def child(what: Callable[[], NoReturn]) -> int:
    pid = os.fork()
    if pid == 0:
        what()
    return pid


def elsewhere() -> NoReturn:
    os.setsid()
    hold()


def twice(what: Callable[[], NoReturn]) -> None:
    """Fork, leave the session, fork again; the one between ends."""
    def middle() -> NoReturn:
        os.setsid()
        child(what)
        os._exit(0)

    os.waitpid(child(middle), 0)


def without_main(what: Callable[[], NoReturn]) -> NoReturn:
    """The own process ends; what is left holds the output."""
    main = os.getpid()

    def orphan() -> NoReturn:
        while os.path.exists(f"/proc/{main}"):  # until it has been collected
            time.sleep(0.005)
        up()
        what()

    twice(orphan)
    os._exit(0)


def bare() -> NoReturn:
    """No environment, another program image; only the tag stays."""
    argv = [sys.executable, "-I", "-S", __file__, "hold", CASE, TAG, FOLDER]
    os.execve(sys.executable, argv, {})


def until_state(pid: int, letters: str) -> None:
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in letters:
        time.sleep(0.005)


# ---------------------------------------------------------------- cases

def plain() -> NoReturn:
    child(hold)
    up()
    hold()


def pipe_holder() -> NoReturn:
    main = os.getpid()

    def holder() -> NoReturn:
        while os.path.exists(f"/proc/{main}"):
            time.sleep(0.005)
        up()
        hold()

    child(holder)
    os._exit(0)


def setsid() -> NoReturn:
    child(elsewhere)
    up()
    hold()


def double_fork() -> NoReturn:
    twice(hold)
    up()
    hold()


def double_fork_main_gone() -> NoReturn:
    without_main(hold)


def environment_cleared() -> NoReturn:
    twice(bare)
    up()
    hold()


def environment_cleared_main_gone() -> NoReturn:
    without_main(bare)


def refork() -> NoReturn:
    """A new generation every 2 ms, each in a session of its own."""
    beat = os.open(f"{FOLDER}/{CASE}.beat", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def generations() -> NoReturn:
        while time.monotonic() < END:
            os.write(beat, b".")
            time.sleep(float(EXTRA[0]) if EXTRA else 0.002)
            if os.fork():
                os._exit(0)
            os.setsid()
        os._exit(0)

    child(generations)
    up()
    hold()


def bomb() -> NoReturn:
    """Everyone forks all the time. One fork takes a token and one end gives it back, so that there are never more than
    MOST: who dies with a token in hand makes them fewer."""
    take, give = os.pipe()
    os.set_blocking(take, False)
    os.write(give, b"t" * MOST)
    beat = os.open(f"{FOLDER}/{CASE}.beat", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    up()
    main, age = True, 0
    while time.monotonic() < END:
        os.write(beat, b".")
        age += 1
        if age > 5 and not main:
            os.write(give, b"t")
            os._exit(0)
        try:
            os.read(take, 1)
        except BlockingIOError:
            time.sleep(0.02)
            continue
        try:
            if os.fork() == 0:
                main, age = False, 0
                os.setsid()
        except OSError:
            os.write(give, b"t")
            time.sleep(0.02)
    os._exit(0)


def stopped() -> NoReturn:
    def stop() -> NoReturn:
        os.setsid()
        os.kill(os.getpid(), signal.SIGSTOP)
        hold()

    os.waitpid(child(stop), os.WUNTRACED)
    up()
    hold()


def ptraced() -> NoReturn:
    """A tracer and the process that it holds stopped, in a session of their own."""
    def traced() -> NoReturn:
        call("ptrace", PTRACE_TRACEME, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGTRAP)
        hold()

    def tracer() -> NoReturn:
        os.setsid()
        os.waitpid(child(traced), 0)
        up()
        hold()

    child(tracer)
    hold()


def other_user() -> NoReturn:
    def become() -> NoReturn:
        os.setsid()
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65533, 65533, 65533)
        hold()

    pid = child(become)
    while os.stat(f"/proc/{pid}").st_uid != 65533:
        time.sleep(0.005)
    up()
    hold()


def becomes_owner() -> NoReturn:
    owner()
    up()
    hold()


def owner() -> None:
    """Start a set-user-ID program, all of whose ids become its owner's."""
    uid = os.stat(EXTRA[0]).st_uid
    pid = os.posix_spawn(EXTRA[0], [EXTRA[0], TAG, str(int(LIFE))], {}, setsid=True)
    while os.stat(f"/proc/{pid}").st_uid != uid:
        time.sleep(0.005)
    until_state(pid, "S")


def owner_and_kills_supervisor() -> NoReturn:
    owner()
    up()
    os.kill(os.getppid(), signal.SIGKILL)
    hold()


def vfork_parent() -> NoReturn:
    """Suspended until its child has executed something, which hangs at opening a FIFO before that."""
    fifo = f"{FOLDER}/{CASE}.fifo"
    os.mkfifo(fifo)

    def suspended() -> NoReturn:
        os.setsid()
        os.posix_spawn("/bin/true", ["true", TAG], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 9, fifo, os.O_RDONLY, 0)])
        os._exit(1)

    until_state(child(suspended), "D")
    up()
    hold()


def cgroup_mount() -> str:
    """Where cgroup v2 is; mounted in a namespace of our own where none is to be seen."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2":
            return fields[1]
    call("unshare", CLONE_NEWNS)
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    where = f"{FOLDER}/{CASE}.cgroup2"
    os.mkdir(where)
    call("mount", b"none", where.encode(), b"cgroup2", 0, None)
    return where


def cgroup_of(pid: int | str) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line[3:] for line in lines if line.startswith("0::"))


def outermost() -> str:
    """The highest cgroup on our way up that we may write to."""
    path = Path(cgroup_mount())
    for part in ("", *Path(cgroup_of("self")).parts[1:]):
        path /= part
        if os.access(path, os.W_OK):
            return str(path)
    raise PermissionError("no cgroup that we may write to")


def join(path: str) -> None:
    os.makedirs(path, exist_ok=True)
    Path(path, "cgroup.procs").write_text("0")


def nested_cgroup() -> NoReturn:
    def inside() -> NoReturn:
        os.setsid()
        join(f"{cgroup_mount()}{cgroup_of('self')}/nested-{TAG}")
        up()
        hold()

    child(inside)
    hold()


def moved() -> NoReturn:
    """Into a cgroup that has nothing to do with the daemon."""
    def away() -> NoReturn:
        os.setsid()
        join(f"{outermost()}/{EXTRA[0]}")
        up()
        hold()

    child(away)
    hold()


def intruder() -> NoReturn:
    """Into the cgroup of the run whose own process writes its pid into a file."""
    host = Path(FOLDER, "host.pid")
    while not host.exists() or not host.read_text():
        time.sleep(0.005)
    join(f"{cgroup_mount()}{cgroup_of(host.read_text())}")
    up()
    hold()


def host() -> NoReturn:
    Path(FOLDER, "host.new").write_text(str(os.getpid()))
    os.replace(f"{FOLDER}/host.new", f"{FOLDER}/host.pid")
    up()
    hold()


def everything() -> None:
    """Several ways at a time, for cases in which something of Sexton is killed."""
    child(hold)
    child(elsewhere)
    twice(hold)
    twice(bare)


def escapes() -> NoReturn:
    everything()
    up()
    hold()


def kills_supervisor() -> NoReturn:
    everything()
    up()
    os.kill(os.getppid(), signal.SIGKILL)
    hold()


def moves_and_kills_supervisor() -> NoReturn:
    supervisor = os.getppid()
    join(f"{outermost()}/{EXTRA[0]}")
    everything()
    up()
    os.kill(supervisor, signal.SIGKILL)
    hold()


def stops_supervisor() -> NoReturn:
    everything()
    os.kill(os.getppid(), signal.SIGSTOP)
    up()
    hold()


def keeps_stopping() -> NoReturn:
    """Whenever its supervisor is set going it is stopped again."""
    supervisor = os.getppid()

    def stopper() -> NoReturn:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while time.monotonic() < END:
            os.kill(supervisor, signal.SIGSTOP)
            time.sleep(0.0005)
        os._exit(0)

    child(stopper)
    until_state(supervisor, "T")
    up()
    hold()


def uninterruptible() -> NoReturn:
    """A child that asks a file system for something and gets no answer."""
    def asks() -> NoReturn:
        os.setsid()
        os.stat(f"{FOLDER}/hung/{CASE}")
        os._exit(0)

    child(asks)
    hold()  # whoever serves the file system says that the question has come


def pid_namespace() -> NoReturn:
    """The first process of a process namespace, with a child."""
    told, tell = os.pipe()

    def first() -> NoReturn:
        child(elsewhere)
        os.write(tell, b"x")
        hold()

    def outside() -> NoReturn:
        call("unshare", CLONE_NEWPID | (CLONE_NEWUSER if os.geteuid() else 0))
        child(first)
        hold()

    child(outside)
    os.read(told, 1)
    up()
    hold()


if __name__ == "__main__":
    globals()[FUNCTION]()

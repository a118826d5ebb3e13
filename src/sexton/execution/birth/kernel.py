"""The few system calls that Python does not offer, and the reading of /proc."""

from __future__ import annotations

import ctypes
import os

from sexton.execution.birth.lean import TYPE_CHECKING, signal

if TYPE_CHECKING:
    from collections.abc import Iterator

PR_SET_NAME = 15
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
SYS_CLONE3 = 435
CLONE_INTO_CGROUP = 0x200000000

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make orphaned descendants children of this process. Raises OSError where the kernel cannot."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def name_process(name: bytes) -> None:
    _libc.prctl(PR_SET_NAME, name, 0, 0, 0)


def hide_from_same_user() -> None:
    """A process of the same user may not open our descriptors through /proc and forge reports."""
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def readable_on(number: int) -> int:
    """A descriptor that is readable while the signal is pending, which is never delivered from here on: no handler, no
    interrupted wait. The mask is inherited: whoever starts a program clears it. Where a filter refuses signalfd, a
    handler fills a pipe. Raises OSError."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (number,))
    wanted = (ctypes.c_ulong * (128 // ctypes.sizeof(ctypes.c_ulong)))(1 << (number - 1))
    fd: int = _libc.signalfd(-1, wanted, os.O_CLOEXEC | os.O_NONBLOCK)
    if fd < 0:
        fd, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
    return fd


def drain(fd: int) -> None:
    """Take what a descriptor of `readable_on` has to say."""
    try:
        os.read(fd, 128)
    except BlockingIOError:
        pass


class _CloneArgs(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls",
            "set_tid", "set_tid_size", "cgroup",
        )
    ]


def fork_into_cgroup(cgroup_fd: int) -> int:
    """fork() whose child is born inside the cgroup: no migration, no lock, no window outside.

    Only for a single-threaded process: the raw system call skips libc's own fork handlers.
    Raises OSError (ENOSYS, EPERM, ...) where the kernel or a filter refuses; nothing has been forked then.
    """
    args = _CloneArgs(flags=CLONE_INTO_CGROUP, exit_signal=int(signal.SIGCHLD), cgroup=cgroup_fd)
    _python.PyOS_BeforeFork()
    pid: int = _python.syscall(
        ctypes.c_long(SYS_CLONE3), ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args))
    )
    if pid == 0:
        _python.PyOS_AfterFork_Child()
        return 0
    error = ctypes.get_errno()
    _python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(error, "clone3")
    return pid


def children_of(pid: int) -> list[int]:
    """Pids whose parent is this process; children hang off the thread that forked them, so every thread is read."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads:
        try:
            fd = os.open(f"/proc/{pid}/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # the thread has ended meanwhile
        try:
            while chunk := os.read(fd, 65536):
                found += map(int, chunk.split())
        except (OSError, ValueError):
            pass  # a torn read of a list that changes; the caller looks again
        finally:
            os.close(fd)
    return found


def descendants_of(top: int) -> Iterator[int]:
    """Pids of those below a process, as they are found; one that moves meanwhile may be missed."""
    todo = [top]
    while todo:
        for pid in children_of(todo.pop()):
            todo.append(pid)
            yield pid


def stat_of(pid: int) -> list[bytes]:
    """What /proc/PID/stat says behind the name of the process: state, parent and so on (proc(5), from field 3 on).
    Empty when the process is gone."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return os.read(fd, 4096).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(fd)


def is_alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    stat = stat_of(pid)
    return bool(stat) and stat[0] not in (b"Z", b"X")


def parent_of(pid: int) -> int:
    """The parent's pid, or 0 when the process is gone."""
    stat = stat_of(pid)
    return int(stat[1]) if stat else 0


def name_of(pid: int) -> bytes:
    """What the process calls itself; empty when it is gone."""
    try:
        fd = os.open(f"/proc/{pid}/comm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 64).rstrip(b"\n")
    except OSError:
        return b""
    finally:
        os.close(fd)


def kill_if_child_of(pid: int, parent: int) -> int:
    """SIGKILL a process that its own parent reaps, so its pid may be reused under us: the pidfd pins the
    process, and the parent is read again before the signal. Returns the errno, 0 when done or gone."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        if parent_of(pid) == parent:
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        return 0
    except ProcessLookupError:
        return 0
    except OSError as refused:
        return refused.errno or 1
    finally:
        os.close(fd)

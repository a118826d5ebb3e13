"""Whether the state directory can keep records: its file system, locks, the time of an fsync, room."""

from __future__ import annotations

import fcntl
import os
import time
from functools import partial

import msgspec

from sexton.doctor.child import ProbeFailed, in_child
from sexton.doctor.findings import Area, Level, Line
from sexton.store.mounts import NETWORK_FILE_SYSTEMS

UNFIT = NETWORK_FILE_SYSTEMS | {"fuse.s3fs"}
"""For one file that changes in place."""
FLEETING = frozenset({"tmpfs", "ramfs"})
LAYERED = frozenset({"overlay", "aufs"})
SLOW_FSYNC = 0.1
LITTLE_ROOM = 256 * 1024 * 1024
NO_ROOM = 4 * 1024 * 1024
FEW_INODES = 1000
SECONDS = 20.0
"""A disk that takes longer to answer counts as hung."""


class StateFacts(msgspec.Struct, frozen=True, kw_only=True):
    existing: str
    """The directory itself, or the nearest one above it that exists."""
    writable: bool
    locks: bool = False
    fsync: float = 0.0
    """Seconds, the median of a few."""
    free: int = 0
    inodes: int | None = None
    """None where the file system does not count them."""


def look(directory: str) -> StateFacts | str:
    """Probe with a file that is gone before the answer is given; a text when there is none."""
    existing = os.path.abspath(directory)
    while not os.path.isdir(existing) and existing != "/":
        existing = os.path.dirname(existing)
    file = os.path.join(existing, f".sexton-doctor-{os.getpid()}")
    try:
        return in_child(partial(_use, existing, file), StateFacts, seconds=SECONDS)
    except ProbeFailed as failed:
        return str(failed)
    finally:
        try:
            os.unlink(file)
        except OSError:
            pass  # the child has done it


def _use(existing: str, file: str) -> StateFacts:
    room = os.statvfs(existing)
    free, inodes = room.f_bavail * room.f_frsize, room.f_favail if room.f_files else None
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return StateFacts(existing=existing, writable=False, free=free, inodes=inodes)
    try:
        locks = _excludes(fd, file)
        fsync = _time_fsync(fd)
    finally:
        os.unlink(file)
    return StateFacts(existing=existing, writable=True, locks=locks, fsync=fsync, free=free, inodes=inodes)


def _excludes(fd: int, file: str) -> bool:
    """A lock keeps another opener out."""
    other = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False
    except OSError:
        return False
    finally:
        os.close(other)


def _time_fsync(fd: int) -> float:
    times = []
    for number in range(5):
        began = time.monotonic()
        try:
            os.pwrite(fd, bytes(4096), number * 4096)
            os.fsync(fd)
        except OSError:
            break  # no room: the judgement has the number
        times.append(time.monotonic() - began)
    return sorted(times)[len(times) // 2] if times else 0.0


# -------------------------------------------------------------------- judging


def judge(directory: str, facts: StateFacts | str, file_system: str | None, *, shared: bool) -> list[Line]:
    """`shared`: records in small files, which several nodes use, and not the ledger in one."""
    if isinstance(facts, str):
        answering = "a mount that answers" if shared else "a local disk that answers"
        return [_line("directory", Level.MISSING, f"{directory}: {facts}", answering)]
    if not facts.writable:
        return [_line("directory", Level.MISSING, f"{directory} cannot be used: no file can be made in "
                      f"{facts.existing}", "give the daemon's user the directory, with room on its file system")]
    lines = [_judge_file_system(directory, facts, file_system, shared=shared)]
    if not shared:
        lines.append(_judge_locks(facts))
    return [*lines, _judge_fsync(facts.fsync), _judge_room(facts)]


def _line(name: str, level: Level, found: str, change: str | None = None) -> Line:
    return Line(Area.STATE, name, level, found, change)


def _judge_file_system(directory: str, facts: StateFacts, kind: str | None, *, shared: bool) -> Line:
    where = directory if facts.existing == directory else f"{directory} (to be made below {facts.existing})"
    if shared and kind in NETWORK_FILE_SYSTEMS:
        return _line("directory", Level.OK, f"{where} on {kind} can be written, by every node that mounts it")
    if kind in UNFIT:
        return _line("directory", Level.MISSING, f"{where} is on a network mount ({kind}): "
                     + ("files cannot be put in place at once" if shared else "the ledger would be damaged"),
                     "a local disk for state.path" if shared or kind not in NETWORK_FILE_SYSTEMS
                     else "topology: shared, or a local disk for state.path")
    if kind in FLEETING:
        return _line("directory", Level.WEAKER, f"{where} is in memory ({kind}): records end with the machine",
                     "a disk for state.path")
    if kind in LAYERED:
        return _line("directory", Level.WEAKER, f"{where} is in the container's own layer: records end with the "
                     "container", "a volume for state.path")
    return _line("directory", Level.OK, f"{where}{f' on {kind}' if kind else ''} can be written")


def _judge_locks(facts: StateFacts) -> Line:
    if facts.locks:
        return _line("locks", Level.OK, "a second daemon on it would be refused")
    return _line("locks", Level.MISSING, "flock does not work: two daemons could use it at the same time",
                 "a local disk for state.path")


def _judge_fsync(seconds: float) -> Line:
    found = f"a durable write takes {seconds * 1000:.1f} ms"
    if seconds > SLOW_FSYNC:
        return _line("fsync", Level.WEAKER, f"{found}, and every start waits for one", "a faster disk for state.path")
    return _line("fsync", Level.OK, found)


def _judge_room(facts: StateFacts) -> Line:
    room = f"{facts.free // (1024 * 1024)} MiB are free"
    change = "free some, or give state.path a file system of its own"
    if facts.free < NO_ROOM or facts.inodes == 0:
        return _line("room", Level.MISSING, f"{room if facts.inodes != 0 else 'no inode is free'}: records cannot be "
                     "written", change)
    if facts.free < LITTLE_ROOM:
        return _line("room", Level.WEAKER, room, change)
    if facts.inodes is not None and facts.inodes < FEW_INODES:
        return _line("room", Level.WEAKER, f"{facts.inodes} inodes are free, and each run's output takes one", change)
    return _line("room", Level.OK, room)

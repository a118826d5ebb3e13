"""One run held to its limits, and measured: cgroups of its own that it joins between fork and exec.

The supervisor itself stays outside, so that reaching a cap never costs the run its reaper. posix_spawn has no place for
this; only runs with limits take the slower fork.
"""

from __future__ import annotations

import os
import resource
import select
import struct

from sexton.execution.birth import kernel, wire
from sexton.execution.birth.lean import Any, signal
from sexton.execution.birth.place import Place, write
from sexton.execution.birth.program import DEFAULTED

STORY = struct.Struct("<Bii")
"""What the forked child tells before its exec: kind, errno, stage or bits. Nothing at all is a good start."""
NOT_JOINED = 1
NOT_STARTED = 2

LOOK_MS = 200
"""Between two looks at the counters of a cgroup that does not tell when its cap is reached."""
CHARGE = 64 * resource.getpagesize()
"""Bytes that the kernel charges to a group at a time."""


class Unenforced(OSError):
    """A cap that is required cannot be set up: the run is not started."""

    stage = wire.STAGE_LIMITS


class Confinement:
    """The limits and the measuring of one run, from before its start until nothing of it is left."""

    def __init__(self, number: int, cgroup: str | None, request: tuple[Any, ...]) -> None:
        """`request` is (whether to measure, places, resource limits, whether they are required); `cgroup` is the
        supervisor's own."""
        self.measured, places, self.rlimits, self.required = request
        self.places = [Place(base, f"l{number}", version, knobs) for base, version, knobs in places]
        self.applies = bool(self.places or self.rlimits)
        self.bits = 0
        self.errno = 0
        self.event = -1
        self.oom_file = -1
        self.exceeded = False
        self.look_every: int | None = None
        self.removed = not self.places
        self.own = cgroup
        self.cpu_before = (0, 0)
        self.cpu_file: str | None = None

    # ---------------------------------------------------------------- start

    def prepare(self) -> bool:
        """Set the caps up and begin to measure; True when the run must be forked to join them."""
        self.set_up()
        if self.measured:
            self.begin_measuring()
        return self.applies

    def begin_measuring(self) -> None:
        """CPU time is counted from here: by the cgroup that the run is in, or by what its reaper collects."""
        inside = [place.path for place in self.places if place.version == 2]
        self.cpu_file = f"{inside[0] if inside else self.own}/cpu.stat" if inside or self.own else None
        if self.cpu_file is not None and _usage_of(self.cpu_file) is None:
            self.cpu_file = None
        self.cpu_before = self.cpu_now()

    def cpu_now(self) -> tuple[int, int]:
        """Microseconds in user mode and in the kernel."""
        if self.cpu_file is not None:
            return _usage_of(self.cpu_file) or self.cpu_before
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return int(used.ru_utime * 1e6), int(used.ru_stime * 1e6)

    def set_up(self) -> None:
        """Raises Unenforced when a cap is required and cannot be had."""
        for place in list(self.places):
            if number := place.set_up():
                self.places.remove(place)
                self.errno = number
                if self.required:
                    self.remove()
                    raise Unenforced(number, "limits")
            self.bits |= place.bits
        self.watch_memory()

    def watch_memory(self) -> None:
        """Be woken when the cap on memory is reached."""
        place = self.memory_place()
        if place is None:
            return
        try:
            if place.version == 2:
                self.event = os.open(f"{place.path}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
                os.read(self.event, 4096)
                return
            self.oom_file = os.open(f"{place.path}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
            self.event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            write(f"{place.path}/cgroup.event_control", b"%d %d" % (self.event, self.oom_file))
        except OSError:
            self.close_watch()  # the kernel kills all the same, and does not tell
            self.look_every = LOOK_MS

    def memory_place(self) -> Place | None:
        return next((place for place in self.places if place.bits & wire.HELD_MEMORY), None)

    def start(
        self, program: bytes, argv: list[bytes], environment: dict[bytes, bytes], actions: list[tuple[int, int, int]],
        user: tuple[int | None, int | None, list[int]] | None,
    ) -> int:
        """fork, join, limit, exec. Returns the pid once the exec has succeeded. Raises OSError, Unenforced."""
        heard, told = os.pipe2(os.O_CLOEXEC)
        caps = [(number, self.cap(kind, value, user)) for number, kind, value in self.rlimits]
        try:
            pid = self.fork()
        except OSError:
            os.close(heard)
            os.close(told)
            raise
        if pid == 0:
            self.become(told, program, argv, environment, actions, user, caps)
        os.close(told)
        story = b""
        while piece := os.read(heard, 4096):
            story += piece
        os.close(heard)
        for kind, number, what in STORY.iter_unpack(story[: len(story) // STORY.size * STORY.size]):
            if kind == NOT_STARTED:
                os.waitpid(pid, 0)
                failure = Unenforced(number, "limits") if what == wire.STAGE_LIMITS else OSError(number, "exec")
                raise failure
            self.bits &= ~what
            self.errno = number
        return pid

    def fork(self) -> int:
        inside = next((place for place in self.places if place.version == 2), None)
        if inside is not None:
            fd = os.open(inside.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                return kernel.fork_into_cgroup(fd)
            except OSError:
                pass  # an old kernel, or a filter: it joins by itself
            finally:
                os.close(fd)
        return os.fork()

    def become(
        self, told: int, program: bytes, argv: list[bytes], environment: dict[bytes, bytes],
        actions: list[tuple[int, int, int]], user: tuple[int | None, int | None, list[int]] | None,
        caps: list[tuple[int, int]],
    ) -> None:
        """The forked child; never returns."""
        stage = wire.STAGE_LIMITS
        try:
            os.setsid()
            for place in self.places:
                try:
                    os.write(place.join, b"0")
                except OSError as refused:
                    if self.required:
                        raise
                    os.write(told, STORY.pack(NOT_JOINED, refused.errno or 1, place.bits))
            for number, cap in caps:
                lower(number, cap)
            stage = wire.STAGE_USER
            if user is not None:
                uid, gid, _ = user
                if gid is not None:
                    os.setresgid(gid, gid, gid)
                if uid is not None:
                    os.setresuid(uid, uid, uid)
            stage = wire.STAGE_EXEC
            for _, fd, target in actions:
                os.dup2(fd, target)
            for signal_number in DEFAULTED:
                signal.signal(signal_number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execve(program, argv, environment)
        except BaseException as refused:
            os.write(told, STORY.pack(NOT_STARTED, getattr(refused, "errno", None) or 1, stage))
        finally:
            os._exit(127)

    @staticmethod
    def cap(kind: str, value: int, user: tuple[int | None, int | None, list[int]] | None) -> int:
        """The kernel counts the processes of a user, not of a run: so many more than there are now."""
        if kind != "processes":
            return value
        uid = os.getuid() if user is None or user[0] is None else user[0]
        return value + threads_of(uid)

    # ---------------------------------------------------------------- life

    def reached_memory(self) -> bool:
        """Whether the run has reached its cap on memory; true once, when it is first seen."""
        place = self.memory_place()
        if self.exceeded or place is None:
            return False
        if place.version == 2:
            times = place.read("memory.events.local", b"oom")
            self.exceeded = bool(place.read("memory.events", b"oom") if times is None else times)
            return self.exceeded
        told = False
        if self.event >= 0:
            try:
                told = os.eventfd_read(self.event) > 0
            except BlockingIOError:
                pass
        self.exceeded = bool(told or place.read("memory.oom_control", b"oom_kill")) and self.at_own_cap(place)
        return self.exceeded

    @staticmethod
    def at_own_cap(place: Place) -> bool:
        """The event reaches the groups below one that is out of memory, too: the cap must be this group's own. (Where
        memory and swap have the same cap, some kernels count no failures.)"""
        cap, most = place.read("memory.limit_in_bytes"), place.read("memory.max_usage_in_bytes")
        return bool(place.read("memory.failcnt")) or (cap is not None and most is not None and most + CHARGE >= cap)

    def kill(self) -> None:
        """The run's own cgroup: all of it by one hierarchy that every process joined."""
        if self.places:
            max(self.places, key=lambda place: place.version).kill()

    def keep(self) -> None:
        """What is left is left on purpose."""
        for place in self.places:
            try:
                os.setxattr(place.path, wire.KEPT_ATTRIBUTE, b"1")
            except OSError:
                pass  # no such attributes here: a later sweep takes the remainder for a lost run

    # ---------------------------------------------------------------- end

    def facts(self) -> dict[str, int]:
        """What a MEASURED report says; its flags tell which of its numbers were to be had."""
        flags = hits = throttled = peak = 0
        for place in self.places:
            if place.bits & wire.HELD_PROCESSES and (found := place.read("pids.events", b"max")) is not None:
                flags, hits = flags | wire.KNOWN_HITS, min(found, 2**31 - 1)
            if place.bits & wire.HELD_CPU:
                name, unit = ((b"throttled_usec", 1000) if place.version == 2 else (b"throttled_time", 1_000_000))
                if (found := place.read("cpu.stat", name)) is not None:
                    flags, throttled = flags | wire.KNOWN_THROTTLED, found // unit
            if place.bits & wire.HELD_MEMORY:
                found = place.read("memory.peak" if place.version == 2 else "memory.max_usage_in_bytes")
                if found is not None:
                    flags, peak = flags | wire.KNOWN_PEAK, found // 1024
        return {"value": hits, "flags": flags, "user": throttled, "rss": peak}

    def used(self) -> dict[str, int]:
        """What a USED report says: since the start of the run."""
        user, system = (max(0, now - before) for now, before in zip(self.cpu_now(), self.cpu_before, strict=True))
        return {"user": user >> 32, "system": user, "rss": system >> 32, "aux": system}

    def close_watch(self) -> None:
        for fd in (self.event, self.oom_file):
            if fd >= 0:
                os.close(fd)
        self.event = self.oom_file = -1

    def remove(self) -> bool:
        self.close_watch()
        left = [place for place in self.places if not place.remove()]
        self.removed = not left
        return self.removed

    def watch(self, poll: select.poll) -> None:
        if self.event >= 0:
            place = self.memory_place()
            poll.register(self.event, select.POLLPRI if place is not None and place.version == 2 else select.POLLIN)

    def leave(self, poll: select.poll) -> bool:
        """The run is over: its cgroups go. False when somebody else is in one of them."""
        if self.event >= 0:
            try:
                poll.unregister(self.event)
            except KeyError:
                pass  # the start failed before it was watched
        return self.remove()


FREE = Confinement(0, None, (False, [], [], False))
"""Of a run that nothing was asked for: everything is nothing to do."""


def lower(number: int, cap: int) -> None:
    _, hard = resource.getrlimit(number)
    if hard != resource.RLIM_INFINITY:
        cap = min(cap, hard)
    resource.setrlimit(number, (cap, cap))


def threads_of(uid: int) -> int:
    """How many threads of a user there are now, as RLIMIT_NPROC counts them."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/status", "rb") as status:
                    facts = dict(line.split(b":", 1) for line in status if b":" in line)
                if int(facts[b"Uid"].split()[0]) == uid:
                    count += int(facts[b"Threads"])
            except (OSError, KeyError, ValueError, IndexError):
                continue  # it has ended meanwhile
    return count


def _usage_of(path: str) -> tuple[int, int] | None:
    try:
        with open(path, "rb") as file:
            facts = dict(line.split(b" ", 1) for line in file)
        return int(facts[b"user_usec"]), int(facts[b"system_usec"])
    except (OSError, ValueError, KeyError):
        return None

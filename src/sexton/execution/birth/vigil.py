"""What a supervisor does besides when its run outlives the daemon (`onDaemonLoss: keep`).

It waits at a socket in the runtime directory, remembers what it has reported, takes in the output (`tap`), and while no
daemon is there it enforces the deadline and finishes a stop that was begun. When the run ends unwatched its story goes
into a file of the same directory. A daemon that connects hears the story and gives orders from then on.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import select
import time

from sexton.execution.birth import kernel, wire
from sexton.execution.birth.door import Door
from sexton.execution.birth.lean import TYPE_CHECKING, Any
from sexton.execution.birth.tap import Tap

if TYPE_CHECKING:
    from sexton.execution.birth.supervisor import Supervisor

VERSION = 1
"""Of what is said at the socket and written to the file. A daemon that does not know it only watches."""
LOOK_MS = 1000
"""Between two looks whether the socket is still there, while no daemon is."""
TRAIL_NS = 100_000_000
"""The last processes of a run that ended by itself may trail it so long before they count as left behind."""
HELD_OUTPUT_NS = 30_000_000_000
"""Output of a stopped run that somebody still holds is waited for so long."""
LEFTOVERS_NS = 10_000_000_000
"""leftovers: kill has so long."""
STORY_RETRY_NS = 5_000_000_000
LARGEST_ORDER = 128 * 1024


class Vigil:
    """One kept run. `hold()` never returns: the supervisor ends with the run."""

    def __init__(self, supervisor: Supervisor, keep: dict[str, Any]) -> None:
        self.supervisor = supervisor
        self.run: str = keep["run"]
        self.door = Door(keep["directory"], self.run)
        self.timeout_ns = int(keep["timeout"] * 1e9) if keep["timeout"] is not None else None
        self.grace_ns = int(keep["grace"] * 1e9)
        self.grace_is_for_the_tree: bool = keep["tree"]
        self.ends_at_exit: bool = keep["at_exit"]
        self.ends_leftovers: bool = keep["ends_leftovers"]
        self.tap = Tap(keep["output"], keep["cap"], keep["masks"])
        self.facts: dict[str, Any] = {"terms": keep["terms"], "adopted": 0, "note": b"", "limits": {}}
        self.pending: dict[int, _socket.socket] = {}
        self.orphan = False
        self.empty = False
        self.forgotten = False
        self.finishing = False
        self.next_story_ns = 0

    # ---------------------------------------------------------------- before the start

    def prepare(self, fds: list[int], targets: list[int]) -> list[int]:
        """The descriptors for the job: its output goes through us. Raises OSError, also when the daemon is gone: then
        nothing is started, because a later daemon may have looked for this run already and found nothing."""
        kernel.name_process(wire.KEEPER_NAME)
        self.mark_cgroups()
        self.bind()
        poll = select.poll()
        poll.register(self.supervisor.private.fileno(), 0)
        if poll.poll(0):
            self.door.close()
            os._exit(0)
        return [self.tap.interpose(target, os.dup(fd)) if target else os.dup(fd)
                for fd, target in zip(fds, targets, strict=True)]

    def mark_cgroups(self) -> None:
        """Against the sweep of a daemon that knows nothing of this run: another one on this machine, perhaps in another
        pid namespace. The lock goes when we do."""
        for path in self.cgroups():
            try:
                lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for name in (wire.KEEPER_ATTRIBUTE, wire.KEPT_ATTRIBUTE):
                    os.setxattr(path, name, b"1")
            except OSError:
                pass  # locked already, or no attributes there; only a daemon of an older version looks at those

    def cgroups(self) -> list[str]:
        own = [self.supervisor.cgroup] if self.supervisor.cgroup is not None else []
        return own + [place.path for place in self.supervisor.confined.places]

    def leave(self) -> None:
        """What the run left behind is kept, and needs no keeper."""
        self.supervisor.release()
        for path in self.cgroups():
            try:
                os.removexattr(path, wire.KEEPER_ATTRIBUTE)
            except OSError:
                pass  # it was not set

    def bind(self) -> None:
        """Open the door, again if need be; where that fails it is tried again later."""
        if self.orphan and self.door.listener is not None:
            self.supervisor.poll.unregister(self.door.listener.fileno())
        if self.door.open() and self.orphan and self.door.listener is not None:
            self.supervisor.poll.register(self.door.listener.fileno(), select.POLLIN)

    # ---------------------------------------------------------------- remembering

    def saw(self, said: bytes) -> None:
        """Remember what is reported: the daemon may die before it has read it."""
        for report in wire.REPORT.iter_unpack(said):
            _, _, kind, flags, value, at, user, system, rss, aux = report
            match kind:
                case wire.STARTED:
                    self.facts["started"] = (value, at, flags, aux)
                case wire.FAILED:
                    self.facts["failed"] = (value, aux, at)
                case wire.EXITED:
                    self.facts["exited"] = (value, at, user, system, rss)
                    if flags & wire.ALSO_EMPTY:
                        self.facts["empty"] = (at, flags)
                case wire.EMPTY:
                    self.facts["empty"] = (at, flags)
                case wire.SIGNALLED:
                    self.facts.setdefault("signalled", (at, value, aux))
                case wire.REFUSED:
                    self.facts["refused"] = (at, value, aux, user)
                case wire.EXCEEDED | wire.MEASURED | wire.USED:
                    self.facts["limits"][kind] = (flags, value, at, user, system, rss, aux)

    def story(self) -> bytes:
        """All that is known of the run, for a daemon that was not there."""
        tap = self.tap
        return repr({
            **self.facts, "version": VERSION, "run": self.run, "clock": (time.monotonic_ns(), time.time_ns()),
            "supervisor": self.supervisor.pid, "zygote": os.getppid(), "cgroup": self.supervisor.cgroup,
            "places": [place.path for place in self.supervisor.confined.places if place.version == 2],
            "output": {n: (source.bytes, bool(source.ended), source.truncated) for n, source in tap.sources.items()},
            "dropped": tap.dropped, "finished": tap.finished,
            "left": [] if self.empty else kernel.children_of(self.supervisor.pid),
        }).encode()

    # ---------------------------------------------------------------- holding

    def hold(self) -> None:
        """Until nothing of the run is left and somebody knows how it ended. Ends the process."""
        poll = self.supervisor.poll
        poll.register(self.tap.news, select.POLLIN)
        self.mark_cgroups()  # those of its limits are there only now
        if self.supervisor.main:
            self.tap.start()
            self.supervisor.say_start()
        else:
            self.tap.abandon()
            self.empty = True
        while True:
            if not self.empty:
                self.empty = self.supervisor.reap()
            self.note_end()
            self.see_to_the_end()
            if self.door.listener is None and not self.forgotten:
                self.bind()
            events = poll.poll(self.pause())
            if not events and not self.empty:
                self.supervisor.look_at_memory()
            for fd, _ in events:
                self.serve(fd)
            if self.orphan:
                self.act_alone(time.monotonic_ns())
            if self.supervisor.killing and not self.empty:
                self.supervisor.kill_round()

    def serve(self, fd: int) -> None:
        if fd == self.supervisor.wake:
            kernel.drain(self.supervisor.wake)
        elif fd == self.supervisor.confined.event:
            self.supervisor.look_at_memory()
        elif fd == self.tap.news:
            for number, count in self.tap.take_attached():
                self.supervisor.say(wire.ATTACHED, value=count, aux=number)
            self.tell_output()
        elif self.door.listener is not None and fd == self.door.listener.fileno():
            self.let_in()
        elif fd in self.pending:
            self.greet(self.pending.pop(fd))
        elif not self.orphan and fd == self.supervisor.private.fileno():
            self.obey()

    def pause(self) -> int | None:
        if self.supervisor.killing and not self.empty:
            return self.supervisor.pause()
        look = None if self.empty else self.supervisor.confined.look_every
        if self.forgotten or (not self.orphan and self.door.listener is not None):
            return look
        if not self.orphan:
            return look or LOOK_MS
        due = self.next_due()
        if due is None:
            return look or LOOK_MS
        return max(0, min(look or LOOK_MS, (due - time.monotonic_ns()) // 1_000_000 + 1))

    def note_end(self) -> None:
        """The instant at which the run has ended: its process and its output, or the sequence that stopped it."""
        if "ended" in self.facts:
            return
        if "failed" in self.facts:
            self.facts["ended"] = self.facts["failed"][2]
        elif "signalled" in self.facts:
            if self.empty:
                self.facts["ended"] = time.monotonic_ns()
        elif "exited" in self.facts and (self.tap.closed or self.ends_at_exit):
            ends = [] if self.ends_at_exit else [source.ended for source in self.tap.sources.values()]
            self.facts["ended"] = max([self.facts["exited"][1], *ends])

    def see_to_the_end(self) -> None:
        """Go when all is told. The story is written when no daemon is there to hear it."""
        if self.forgotten:
            if self.empty:
                os._exit(0)
            return
        now = time.monotonic_ns()
        if not self.orphan or "ended" not in self.facts or now < self.next_story_ns:
            return
        if not self.empty and now < self.facts["ended"] + TRAIL_NS:
            return
        if not self.empty and self.ends_leftovers and now < self.facts["ended"] + LEFTOVERS_NS:
            if not self.supervisor.killing:
                self.supervisor.begin_killing()
            return
        if not self.tap.closed and now < self.facts["ended"] + self.held_output_ns():
            return
        if not self.tap.finished:
            self.finish_output()
        elif self.door.leave(self.story()):
            self.forget()
            if self.empty:
                os._exit(0)
            self.leave()
        else:
            self.next_story_ns = now + STORY_RETRY_NS

    def held_output_ns(self) -> int:
        return HELD_OUTPUT_NS if "signalled" in self.facts else TRAIL_NS

    def finish_output(self) -> None:
        if not self.finishing:
            self.finishing = True
            self.tap.finish()

    def tell_output(self) -> None:
        if self.tap.finished:
            self.supervisor.say(wire.OUTPUT, value=self.tap.dropped)

    def forget(self) -> None:
        """The run is recorded, or its story is written: nobody need come for it."""
        self.forgotten = True
        if self.orphan and self.door.listener is not None:
            self.supervisor.poll.unregister(self.door.listener.fileno())
        self.door.close()

    # ---------------------------------------------------------------- alone

    def next_due(self) -> int | None:
        """When the next step is to be taken that nobody else takes now (monotonic ns)."""
        if "ended" in self.facts:
            ended = int(self.facts["ended"])
            return max(self.next_story_ns, ended + (TRAIL_NS if self.tap.closed else self.held_output_ns()))
        if "signalled" in self.facts:
            return None if self.supervisor.killing else int(self.facts["signalled"][0]) + self.grace_ns
        if self.facts["note"]:
            return 0
        if self.timeout_ns is None or "started" not in self.facts:
            return None
        return int(self.facts["started"][1]) + self.timeout_ns

    def act_alone(self, now: int) -> None:
        """The deadline holds without a daemon, and a stop that was begun is brought to its end."""
        if not self.forgotten and not self.door.still_there():
            self.bind()
        if "ended" in self.facts or self.supervisor.killing:
            return
        due = self.next_due()
        if "signalled" in self.facts:
            gave_in = self.empty if self.grace_is_for_the_tree else not self.supervisor.main_alive
            if gave_in or (due is not None and now >= due):
                self.kill(now)
        elif due is not None and now >= due:
            if not self.facts["note"]:
                self.facts["timeout"] = now
            self.supervisor.terminate()

    def kill(self, now: int) -> None:
        self.facts.setdefault("forced", now)
        self.supervisor.begin_killing()

    # ---------------------------------------------------------------- daemons

    def daemon_gone(self) -> None:
        supervisor = self.supervisor
        supervisor.poll.unregister(supervisor.private.fileno())
        supervisor.private.close()
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        supervisor.report = nowhere
        self.orphan = True
        if self.door.listener is not None:
            supervisor.poll.register(self.door.listener.fileno(), select.POLLIN)

    def let_in(self) -> None:
        """Several may wait; the first to speak is heard."""
        connection = self.door.let_in()
        if connection is not None:
            self.pending[connection.fileno()] = connection
            self.supervisor.poll.register(connection.fileno(), select.POLLIN)

    def greet(self, connection: _socket.socket) -> None:
        supervisor = self.supervisor
        supervisor.poll.unregister(connection.fileno())
        try:
            hello = connection.recv(64)
            if not hello.startswith(wire.HELLO) or not self.orphan:
                connection.close()
                return
            self.facts["adopted"] += 1
            connection.send(self.story())
        except OSError:
            connection.close()
            return
        if self.door.listener is not None:
            supervisor.poll.unregister(self.door.listener.fileno())
        os.close(supervisor.report)
        supervisor.private, supervisor.report = connection, connection.fileno()
        supervisor.poll.register(connection.fileno(), select.POLLIN)
        self.orphan = False

    def obey(self) -> None:
        space = _socket.CMSG_SPACE(2 * 4)
        fds: list[int] = []
        try:
            order, ancillary, _, _ = self.supervisor.private.recvmsg(LARGEST_ORDER, space, _socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            order, ancillary = b"", []
        for _, _, payload in ancillary:
            fds += memoryview(payload[: len(payload) // 4 * 4]).cast("i").tolist()
        match order[:1]:
            case b"":
                self.daemon_gone()
            case wire.TERMINATE:
                self.supervisor.terminate()
            case wire.KILL:
                self.kill(time.monotonic_ns())
            case wire.RELEASE:
                self.leave()
            case wire.NOTE:
                self.facts["note"] = order[1:]
            case wire.ATTACH:
                self.tap.attach(dict(zip(order[1:], fds, strict=False)))
            case wire.FINISH_OUTPUT:
                self.finish_output()
                self.tell_output()
            case wire.FORGET:
                self.forget()

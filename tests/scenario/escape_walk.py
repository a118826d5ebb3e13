"""Walks through the escape matrix at one level: one daemon, all cases, an oracle that knows nothing of Sexton.

The oracle: no live process has the tag of the case among its arguments, and a file into which those write that keep on
forking does not grow any more.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from escapes import CASES, NOBODY, Case, Ends, Level, compiler, prefix
from hung_fuse import HungMount
from page_kit import span
from probes import children, named
from rig import Rig, alive, living, new_tag, until

from sexton.execution.cgroup import own_directory

SOURCE = Path(__file__).parent / "escapes.c"
UP_SECONDS = 30.0
END_SECONDS = 40.0
STILL_SECONDS = 0.15
"""A file that has not grown for so long, with a generation in 2 ms, does not grow any more."""
AT_A_TIME = 4
EVERYTHING = 5
"""Processes of `escapes`."""


@dataclass(frozen=True)
class Seen:
    """What became of one case at one level."""

    verdict: str
    """The cell of the table; begins with `proven` or `survivors`."""
    skipped: bool = False
    """The job can do no such thing at this level."""
    missing: bool = False
    """This machine does not have what the case or the level needs."""
    seconds: float | None = None
    """From the request to the proof, by the record's own instants."""


def not_here(why: str) -> Seen:
    return Seen(f"- ({why})", skipped=True, missing=why.startswith("needs"))


class Wrong(AssertionError):
    """Something was left that the daemon did not tell of, or it told of something that was not left."""


class Walk:
    """One level. `run()` gives what was seen of every case, or the error of the case."""

    def __init__(
        self, level: Level, rig: Rig, cases: tuple[Case, ...] = CASES, end_seconds: float = END_SECONDS,
    ) -> None:
        """`end_seconds` is how long the end of a run is waited for."""
        self.level = level
        self.end_seconds = end_seconds
        self.rig = rig
        self.tags = {case.name: f"{new_tag()}{number:02d}" for number, case in enumerate(cases)}
        self.cases = {case.name: case for case in cases}
        self.runs: dict[str, str] = {}
        self.seen: dict[str, Seen | Exception] = {}
        self.hung: HungMount | None = None

    # ---------------------------------------------------------------- the whole

    def run(self) -> dict[str, Seen | Exception]:
        for case in self.cases.values():
            if why := case.needs(self.level):
                self.seen[case.name] = not_here(why)
        here = [case for case in self.cases.values() if case.name not in self.seen]
        with self._surroundings(here):
            self.rig.start([case.job(self.level, self.tags[case.name], self.rig.folder) for case in here],
                           state={"path": str(self.rig.folder / "state")}, shutdownTimeout=0.1)
            together = [case for case in here if case.ends is not Ends.ALONE]
            for case in together:
                self._start(case)
            with ThreadPoolExecutor(AT_A_TIME) as pool:
                slow = [case for case in together if self.level in case.outlives]
                order = sorted(together, key=lambda case: (case not in slow, case.ends is Ends.LAST))
                list(pool.map(self._guarded, order))
            for case in here:
                if case.ends is Ends.ALONE:
                    self._guarded(case)
        return self.seen

    @contextmanager
    def _surroundings(self, cases: list[Case]) -> Iterator[None]:
        """What the jobs need, and its end whatever happens."""
        folder = self.rig.folder
        with ExitStack() as stack:
            stack.callback(self._end_all)
            if any(case.compiled for case in cases):
                build(folder)
            if any(case.name == "uninterruptible" for case in cases):
                self.hung = HungMount(folder / "hung")
                stack.callback(self.hung.close)
            stack.callback(self.rig.close)
            stack.callback(self._end_processes)  # or a daemon that cannot would try for long
            yield

    def _end_all(self) -> None:
        """Whatever a case has left; the cgroups that jobs made."""
        self._end_processes()
        for left in (Path(top, name) for top, names, _ in os.walk("/sys/fs/cgroup") for name in names):
            if left.name.removeprefix("escape-") in self.tags.values():
                until(partial(removed, left), 5, f"the end of {left}")

    def _end_processes(self) -> None:
        for tag in self.tags.values():
            end(living(tag))

    def _guarded(self, case: Case) -> None:
        try:
            self.seen[case.name] = self._go_through(case)
        except Exception as wrong:
            self.seen[case.name] = wrong

    def _go_through(self, case: Case) -> Seen:
        match case.name:
            case "daemon_killed":
                return self._daemon_killed(case)
            case "all_killed":
                return self._daemon_killed(case, "zygote", "supervisor")
            case "zygote_killed":
                return self._helpers_killed(case, "zygote")
            case "both_killed":
                return self._helpers_killed(case, "zygote", "supervisor")
        self._wait_up(case)
        if case.ends is Ends.BY_ITSELF and self.level not in case.outlives:
            return self._judge(case, self.rig.recorded(self.runs[case.name], self.end_seconds))
        if case.ends is Ends.LAST:
            until(lambda: "host" in self.seen, self.end_seconds, "the end of the host")
        return self._judge(case, self._cancel(case))

    # ---------------------------------------------------------------- steps

    def _start(self, case: Case) -> None:
        self.runs[case.name] = self.rig.fire(case.name)

    def _wait_up(self, case: Case) -> None:
        """The case is as it is meant to be."""
        if case.name == "uninterruptible":
            assert self.hung is not None and self.hung.asked.wait(UP_SECONDS)
            return
        sign = ".beat" if case.function == "compiled" else ".up"
        until((self.rig.folder / f"{case.name}{sign}").exists, UP_SECONDS, f"{case.name} at work")
        if case.name == "host" and "intruder" in self.cases:
            until((self.rig.folder / "intruder.up").exists, UP_SECONDS, "the intruder inside")

    def _cancel(self, case: Case) -> Any:
        """The record, once the sequence has finished and everything is known."""
        run = self.runs[case.name]
        self.rig.http("POST", f"/runs/{run}/cancel?wait={self.end_seconds}")
        return self.rig.recorded(run, self.end_seconds)

    def _helpers_killed(self, case: Case, *whom: str) -> Seen:
        self._start(case)
        self._wait_up(case)
        self._kill(case, *whom)
        if whom == ("zygote",):
            return self._judge(case, self._cancel(case))
        return self._judge(case, self.rig.recorded(self.runs[case.name], self.end_seconds))

    def _kill(self, case: Case, *whom: str) -> None:
        own = self.rig.running(self.runs[case.name])
        supervisor = int(Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()[1])
        daemon = daemon_of(self.rig)
        for name in whom:
            pid = supervisor
            if name == "zygote":
                [pid] = set(children(daemon)) & set(named(daemon, "sexton-zygote"))
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: not alive(pid), 5, f"the end of the {name}")  # type: ignore[misc]

    def _daemon_killed(self, case: Case, *before: str) -> Seen:
        """With its run at work; then a new daemon tells what became of it."""
        self._start(case)
        self._wait_up(case)
        if before:
            own = self.rig.running(self.runs[case.name])
            supervisor = int(Path(f"/proc/{own}/stat").read_text().rpartition(")")[2].split()[1])
            daemon = daemon_of(self.rig)
            [zygote] = set(children(daemon)) & set(named(daemon, "sexton-zygote"))
            os.kill(daemon, signal.SIGSTOP)  # or it would end the run itself, in time
            for pid in (zygote, supervisor):
                os.kill(pid, signal.SIGKILL)
            os.kill(daemon, signal.SIGKILL)
            self.rig.kill9()
        else:
            self.rig.kill9()
            until(lambda: not living(self.tags[case.name]), 5, "the end of everything, without a daemon")
        self.rig.start()
        return self._judge(case, self.rig.recorded(self.runs[case.name], self.end_seconds))

    # ---------------------------------------------------------------- judging

    def _judge(self, case: Case, record: Any) -> Seen:
        gone = record["gone"]
        left = sorted(living(self.tags[case.name]))
        if gone["state"] == "proven":
            if self.level in case.outlives:
                raise Wrong(f"nobody was to end it, and it is proven gone: {gone}")
            if left or self._grows(case):
                raise Wrong(f"said to be proven gone by {gone['witnesses']}, and {left or 'somebody'} lives")
            by = "supervisor or sweep" if case.either else ", ".join(gone["witnesses"])
            return Seen(f"proven: {by}", seconds=seconds_of(record))
        if self.level in case.unproven and gone["state"] == "unknown":
            end(left)
            return Seen(f"unknown ({len(left)} of {EVERYTHING} processes lived on)")
        if self.level not in case.outlives:
            raise Wrong(f"not proven gone: {gone}; the oracle finds {left}")
        return self._watch_survivors(case, record, left)

    def _watch_survivors(self, case: Case, record: Any, left: list[int]) -> Seen:
        """They are named, the place is kept, and when they have gone the record is amended."""
        survivors = record["gone"]["survivors"]
        if record["gone"]["state"] != "survivors" or sorted(found["pid"] for found in survivors) != left or not left:
            raise Wrong(f"{record['gone']} and the oracle finds {left}")
        words = sorted({f"uid {each['uid']}, state {each['state']}" + (
            f" in {each['wchan']}" if each["wchan"] and case.name == "uninterruptible" else "") for each in survivors})
        if any(each["uid"] is None or each["state"] is None for each in survivors):
            raise Wrong(f"survivors without their facts: {survivors}")
        run = self.runs[case.name]
        if self.rig.job(case.name)["unconfirmed"] != [run]:
            raise Wrong("its place is not kept")
        if case.name == "uninterruptible":
            assert self.hung is not None
            self.hung.close()
        else:
            end(left)
        until(lambda: not self.rig.job(case.name)["unconfirmed"], 10, "the place to be free")
        amended = self.rig.run(run)["gone"]
        if amended["state"] != "proven" or living(self.tags[case.name]):
            raise Wrong(f"after the end of the survivors: {amended}")
        return Seen(f"survivors: {'; '.join(words)}; then proven")

    def _grows(self, case: Case) -> bool:
        beat = self.rig.folder / f"{case.name}.beat"
        if not beat.exists():
            return False
        before = beat.stat().st_size
        time.sleep(STILL_SECONDS)
        return beat.stat().st_size != before


def seconds_of(record: Any) -> float | None:
    stop = record["stop"]
    return round(span(record, "requested_at", "confirmed_at"), 4) if stop and stop["confirmed_at"] else None


def end(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def removed(cgroup: Path) -> bool:
    try:
        cgroup.rmdir()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def daemon_of(rig: Rig) -> int:
    """Below what the daemon was started through, nothing forks: exec keeps the pid."""
    return rig.pid


def build(folder: Path) -> None:
    """The C program, and copies of it that belong to others and say so to the kernel."""
    program = folder / "escapes"
    subprocess.run([str(compiler()), "-O1", "-o", str(program), str(SOURCE)], check=True, timeout=60)
    if os.geteuid() == 0:
        for name, owner in (("owner-root", 0), ("owner-other", NOBODY - 1)):
            shutil.copyfile(program, folder / name)
            os.chown(folder / name, owner, owner)
            (folder / name).chmod(0o4755)


@contextmanager
def delegated_cgroup(level: Level) -> Iterator[str]:
    """A cgroup that belongs to an ordinary user, as `Delegate=yes` makes one."""
    own = own_directory()
    if level is not Level.USER_CGROUP or own is None:
        yield ""
        return
    path = Path(own, f"delegated-{os.getpid()}-{new_tag()}")
    path.mkdir()
    try:
        for each in (path, *(path / f"cgroup.{name}" for name in ("procs", "threads", "subtree_control"))):
            os.chown(each, NOBODY, NOBODY)
        yield str(path)
    finally:
        (path / "cgroup.kill").write_text("1")
        until(lambda: all(map(removed, sorted(path.rglob("*/"), reverse=True))) and removed(path), 10, f"{path} empty")


@contextmanager
def walk_at(
    level: Level, folder: Path, cases: tuple[Case, ...] = CASES, end_seconds: float = END_SECONDS,
) -> Iterator[Walk]:
    """A walk in a folder that everybody may write to."""
    folder.mkdir(exist_ok=True)
    if os.geteuid() == 0:
        folder.chmod(0o777)
    with delegated_cgroup(level) as delegated:
        rig = Rig(folder, prefix(level, delegated))
        rig.environment = {"HOME": "/"}
        yield Walk(level, rig, cases, end_seconds)

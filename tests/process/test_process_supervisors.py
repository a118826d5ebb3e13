"""Supervisors with real, misbehaving processes. The oracle is a tag in the arguments, not Sexton's bookkeeping."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rig import living, new_tag

from sexton.execution import cgroup, sizing
from sexton.execution.birth import wire
from sexton.execution.held import Held
from sexton.execution.messages import (
    Emptied,
    ExecutionMessage,
    Exited,
    Signalled,
    Started,
    StartFailed,
    SupervisorLost,
    Swept,
)
from sexton.execution.plan import Identity, Plan, identity_of
from sexton.execution.sizing import MINIMUM as POOL_MINIMUM
from sexton.execution.supervisors import Supervisors
from sexton.model.errors import SpawnError

ESCAPES = {
    "plain": "time.sleep(60)",
    "child": "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', tag]); time.sleep(60)",
    "ignores TERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)",
    "setsid": "os.fork() or (os.setsid(), ignore()); time.sleep(60)",
    "double fork": "daemonise(); ignore(); time.sleep(60)",
    "double fork, main gone": "os.fork() and os._exit(0); daemonise(); ignore(); time.sleep(60)",
    "environment cleared": "daemonise(); os.execve(sys.executable, [sys.executable, '-S', '-c', "
                           "'import time; time.sleep(60)', tag], {})",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "tree": "os.fork(); os.fork(); os.fork(); os.fork(); time.sleep(60)",
    "re-forker": "reforker()",
}
HEAD = """
import os, signal, subprocess, sys, time
tag = sys.argv[1]
signal.alarm(60)
def ignore(): signal.signal(signal.SIGTERM, signal.SIG_IGN)
def daemonise():
    if os.fork(): time.sleep(60)
    os.setsid()
    if os.fork(): os._exit(0)
def reforker():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        time.sleep(0.002)
        if os.fork(): os._exit(0)
        os.setsid()
"""


class Box:
    """The messages of one run."""

    def __init__(self) -> None:
        self.messages: list[ExecutionMessage] = []
        self._news = asyncio.Event()

    def post(self, message: ExecutionMessage) -> None:
        self.messages.append(message)
        self._news.set()

    async def until(self, *kinds: type, seconds: float = 15.0) -> ExecutionMessage:
        async with asyncio.timeout(seconds):
            while True:
                for message in self.messages:
                    if isinstance(message, kinds):
                        return message
                self._news.clear()
                await self._news.wait()


@pytest.fixture(params=["supervisor+cgroup", "supervisor"])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[Supervisors]:
    """A pool with and without a cgroup. Where none can be had the first is skipped, visibly."""
    base = None
    if request.param == "supervisor+cgroup":
        base = cgroup.claim()
        if base is None:
            pytest.skip("no writable cgroup v2 here")
    made = Supervisors(base)
    yield made
    await made.close()
    if base is not None:
        assert cgroup.remove_tree(base), "a cgroup was left"


def plan(*argv: str, **more: object) -> Plan:
    facts: dict[str, object] = {"environment": {}, "directory": None, "identity": None, "nice": 0, "stdin": None}
    return Plan(tuple(os.fsencode(word) for word in argv), **{**facts, **more})  # type: ignore[arg-type]


def start(pool: Supervisors, what: Plan, fds: tuple[tuple[int, int], ...] = ()) -> tuple[Held, Box]:
    box = Box()
    return pool.submit(what, list(fds), box.post), box


async def output_of(pool: Supervisors, what: Plan) -> bytes:
    """Run it with its standard output in a file."""
    fd = os.memfd_create("out")
    copy = os.dup(fd)
    _, box = start(pool, what, ((copy, 1),))
    await box.until(Emptied, StartFailed)
    size = os.fstat(fd).st_size
    try:
        return os.pread(fd, size, 0)
    finally:
        os.close(fd)


@pytest.mark.parametrize("how", ESCAPES)
async def test_the_forced_step_leaves_nothing(pool: Supervisors, how: str) -> None:
    """Whatever the job did to get away, after the forced step nothing of it is left, and that is reported."""
    tag = new_tag()
    held, box = start(pool, plan(sys.executable, "-S", "-c", HEAD + ESCAPES[how], tag))
    await box.until(Started)
    end = time.monotonic() + 10
    while not living(tag) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    held.terminate()
    await box.until(Signalled, Emptied)
    held.kill()
    emptied = await box.until(Emptied)
    assert living(tag) == []
    assert isinstance(emptied, Emptied) and emptied.cgroup_empty is not False


async def test_a_start_is_told_with_the_end_of_a_short_run(
    pool: Supervisors, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within the patience it is no news of its own; where the deadline is near it is told at once."""
    monkeypatch.setattr(sizing, "PATIENCE_MS", 60_000)
    held, box = start(pool, plan("/bin/sleep", "60", hasty=True))
    await box.until(Started, seconds=10)
    held.kill()
    await box.until(Emptied)
    _, box = start(pool, plan("/bin/sleep", "0.4"))  # the start is stamped a moment after the process has begun
    started = await box.until(Started)
    assert isinstance(started, Started) and any(isinstance(message, Exited) for message in box.messages)
    exited = await box.until(Exited)
    assert isinstance(exited, Exited) and exited.at - started.at >= 0.2, "each has its own instant"


async def test_exit_codes_and_signals_are_the_kernels(pool: Supervisors) -> None:
    """Every exit code and a death by signal arrive as they were, also on reused supervisors."""
    for code in (0, 1, 7, 127, 255):
        _, box = start(pool, plan("/bin/sh", "-c", f"exit {code}"))
        exited = await box.until(Exited)
        assert isinstance(exited, Exited) and os.waitstatus_to_exitcode(exited.status) == code
    _, box = start(pool, plan("/bin/sh", "-c", "kill -USR1 $$"))
    exited = await box.until(Exited)
    assert isinstance(exited, Exited) and os.waitstatus_to_exitcode(exited.status) == -signal.SIGUSR1


async def test_a_program_that_is_not_there_says_why(pool: Supervisors, tmp_path: Path) -> None:
    """A missing program, one that is not executable and a missing folder each give the kernel's errno, and the
    supervisor is used again."""
    plain = tmp_path / "plain"
    plain.write_text("x\n")
    for what, expected in (
        (plan("no-such-program"), 2), (plan(str(tmp_path / "none")), 2), (plan(str(plain)), 13),
        (plan("/bin/true", directory=os.fsencode(tmp_path / "gone")), 2),
    ):
        _, box = start(pool, what)
        failed = await box.until(StartFailed)
        assert isinstance(failed, StartFailed) and failed.errno == expected
    assert pool.counts["supervisors"] <= POOL_MINIMUM


async def test_environment_folder_and_path_are_the_jobs(pool: Supervisors, tmp_path: Path) -> None:
    """The job sees its variables, its folder, and finds programs by its own PATH."""
    program = tmp_path / "prog"
    program.write_text('#!/bin/sh\necho "$FOO $(pwd)"\n')
    program.chmod(0o755)
    environment = {b"FOO": b"bar", b"PATH": os.fsencode(tmp_path) + b":/usr/bin:/bin"}
    text = await output_of(pool, plan("prog", environment=environment, directory=os.fsencode(tmp_path)))
    assert text.decode().split() == ["bar", str(tmp_path)]


async def test_without_a_folder_of_its_own_a_job_runs_in_the_daemons(pool: Supervisors, tmp_path: Path) -> None:
    """A relative command means what it means in the shell that starts the daemon, also after a run elsewhere."""
    here = os.fsencode(os.getcwd())
    assert (await output_of(pool, plan("/bin/pwd", "-P"))).strip() == here
    for _ in range(POOL_MINIMUM):
        elsewhere = await output_of(pool, plan("/bin/pwd", "-P", directory=os.fsencode(tmp_path)))
        assert elsewhere.strip() == os.fsencode(tmp_path)
    for _ in range(POOL_MINIMUM):
        assert (await output_of(pool, plan("/bin/pwd", "-P"))).strip() == here


async def test_a_request_larger_than_a_message_may_be_arrives(pool: Supervisors) -> None:
    """A megabyte of environment is handed over in a file, and arrives whole."""
    environment = {f"BIG{n}".encode(): b"x" * 100_000 for n in range(10)}
    text = await output_of(pool, plan("/bin/sh", "-c", "echo ${#BIG0} ${#BIG9}", environment=environment))
    assert text == b"100000 100000\n"


async def test_a_job_has_three_descriptors_and_default_signals(pool: Supervisors) -> None:
    """Nothing of ours leaks into a job: 0, 1, 2, an empty standard input, a session of its own, no ignored signal."""
    script = (
        "import os, signal\n"
        "fds = sorted(int(n) for n in os.listdir('/proc/self/fd'))\n"
        "own = os.getpid() == os.getsid(0) == os.getpgid(0)\n"
        "ignored = int(next(l for l in open('/proc/self/status') if l.startswith('SigIgn')).split()[1], 16)\n"
        "blocked = int(next(l for l in open('/proc/self/status') if l.startswith('SigBlk')).split()[1], 16)\n"
        "print(fds[:3], len(fds), own, hex(ignored & 0x7fffffff), blocked, repr(os.read(0, 10)))\n"
    )
    text = await output_of(pool, plan(sys.executable, "-S", "-c", script))
    # Python itself ignores SIGPIPE and SIGXFSZ (0x1001000); the fourth descriptor is that of the listing.
    assert text.decode() == "[0, 1, 2] 4 True 0x1001000 0 b''\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_user_without_an_entry_needs_a_group() -> None:
    """A bare number brings no group of its own, and must not keep root's."""
    with pytest.raises(SpawnError, match="which group"):
        identity_of(54321, None)
    assert identity_of(54321, 54321) == Identity(54321, 54321, (54321,))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
async def test_another_user_is_become_whole(pool: Supervisors) -> None:
    """All four user and group ids and the supplementary groups are the user's; the next run is root's again."""
    who = Identity(65534, 65534, (65534,))
    script = "id -u; id -g; id -G; grep CapEff /proc/self/status"
    text = await output_of(pool, plan("/bin/sh", "-c", script, identity=who))
    assert text.split() == [b"65534", b"65534", b"65534", b"CapEff:", b"0000000000000000"]
    assert (await output_of(pool, plan("/bin/sh", "-c", "id -u"))).split() == [b"0"]


async def test_a_job_that_kills_its_supervisor_is_swept(pool: Supervisors) -> None:
    """The second line: the zygote gets what a killed supervisor held, ends it, and only then says so."""
    tag = new_tag()
    _, box = start(pool, plan("/bin/sh", "-c", f"setsid sleep {tag} & sleep 0.2; kill -9 $PPID; exec sleep {tag}"))
    await box.until(SupervisorLost)
    await box.until(Swept)
    assert living(tag) == []
    _, box = start(pool, plan("/bin/true"))
    await box.until(Emptied)


async def test_a_supervisor_that_was_tampered_with_is_not_used_again(pool: Supervisors) -> None:
    """A job that changed the niceness of its parent leaves no trace in the next run."""
    before = (await output_of(pool, plan("/bin/sh", "-c", "nice"))).strip()
    for _ in range(POOL_MINIMUM):
        _, box = start(pool, plan("/bin/sh", "-c", "renice -n 7 -p $PPID >/dev/null 2>&1"))
        await box.until(Emptied)
    assert (await output_of(pool, plan("/bin/sh", "-c", "nice"))).strip() == before


async def test_a_queued_run_can_be_withdrawn(pool: Supervisors) -> None:
    """Before any supervisor has been asked, taking a run back is a deletion: it never starts."""
    tag = new_tag()
    sleepers = [start(pool, plan("sleep", tag)) for _ in range(POOL_MINIMUM * 3)]
    held, box = start(pool, plan("sleep", "0"))
    assert held.withdraw()
    for sleeper, started in sleepers:
        await started.until(Started)
        sleeper.kill()
    for _, started in sleepers:
        await started.until(Emptied)
    assert box.messages == [] and living(tag) == []


async def test_as_many_runs_as_are_wanted_live_at_once(pool: Supervisors) -> None:
    """The pool grows with long runs: fifty sleepers are all started, none waits for another."""
    tag = new_tag()
    sleepers = [start(pool, plan("sleep", tag)) for _ in range(50)]
    for _, box in sleepers:
        await box.until(Started)
    assert len(living(tag)) == 50
    for held, _ in sleepers:
        held.kill()
    for _, box in sleepers:
        await box.until(Emptied)
    assert living(tag) == []


async def test_what_is_released_outlives_us_and_nothing_else_does() -> None:
    """At the end of the daemon a live run is ended; what an ended run left behind on purpose stays."""
    pool = Supervisors(None)
    doomed, kept = new_tag(), new_tag() + "1"
    _, box = start(pool, plan("/bin/sh", "-c", f"setsid sleep {doomed} & exec sleep {doomed}"))
    held, ended = start(pool, plan("/bin/sh", "-c", f"setsid sleep {kept} >/dev/null 2>&1 & exit 0"))
    await box.until(Started)
    await ended.until(Exited)
    held.release()
    await pool.close()
    end = time.monotonic() + 5
    while living(doomed) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    left = living(kept)
    assert living(doomed) == [] and len(left) == 1
    os.kill(left[0], signal.SIGKILL)


async def test_after_the_end_there_is_no_news() -> None:
    """A run that outlives us may ask for news when the pool has been closed, because its deadline passes then: there is
    none, and that is no error."""
    pool = Supervisors(None)
    held, box = start(pool, plan("/bin/sh", "-c", "exit 0"))
    await box.until(Emptied)
    await pool.close()
    held.hear()
    await pool.settle()


async def test_nothing_of_ours_is_left_after_many_runs(pool: Supervisors) -> None:
    """Three hundred runs of several kinds leave our descriptors and children as they were."""
    _, box = start(pool, plan("/bin/true"))
    await box.until(Emptied)
    before = len(os.listdir("/proc/self/fd")) - pool.counts["supervisors"]
    boxes = []
    for number in range(300):
        read, write = os.pipe()
        argv = ("/bin/true",) if number % 3 else ("no-such-program",)
        boxes.append(start(pool, plan(*argv), ((write, 1),))[1])
        os.close(read)
    for box in boxes:
        await box.until(Emptied, StartFailed)
    assert len(os.listdir("/proc/self/fd")) - pool.counts["supervisors"] == before


async def test_a_supervisor_that_retired_takes_no_run_with_it(pool: Supervisors) -> None:
    """Its last words are read before its death: a run that was sent to it and not taken goes to another supervisor,
    whichever of the two the daemon hears of first."""
    pool.prefill(1)
    async with asyncio.timeout(15):
        while not pool.counts["idle"]:
            await asyncio.sleep(0.005)
    chosen = pool._idle[-1]
    os.kill(chosen.pid, signal.SIGSTOP)  # so that it does not take what it is sent
    box = Box()
    held = pool.submit(plan("true"), [], box.post)
    assert chosen.held is held
    loop = asyncio.get_running_loop()
    for other in (pool._report_read, chosen.private.fileno()):
        loop.remove_reader(other)  # the news of its death is the first to be heard
    os.write(pool._report_write, wire.REPORT.pack(chosen.number, 0, wire.RETIRED, 0, 0, 0, 0, 0, 0, 0))
    os.kill(chosen.pid, signal.SIGKILL)
    async with asyncio.timeout(15):
        while chosen.number in pool._all:
            await asyncio.sleep(0.005)
    loop.add_reader(pool._report_read, pool._read_reports)
    await box.until(Emptied)
    assert not [message for message in box.messages if isinstance(message, SupervisorLost | Swept)]

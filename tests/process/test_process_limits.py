"""Limits on real processes. The oracles are the processes themselves and the kernel's own files, not what we record."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from rig import living, new_tag
from test_process_supervisors import Box, output_of, plan, start

from sexton.execution import cgroup
from sexton.execution.birth import wire
from sexton.execution.controllers import Controllers, here, sweep
from sexton.execution.held import Held
from sexton.execution.limits import intend, request
from sexton.execution.messages import Emptied, Exited, Measured, MemoryExceeded, Started, StartFailed, Used
from sexton.execution.plan import Identity
from sexton.execution.request import LIMITS_STAGE
from sexton.execution.supervisors import Supervisors
from sexton.model.limits import Limit, Mechanism, ResourceLimits

MIB = 2**20
EAT = "import sys, time\nb = []\nwhile True: b.append(bytearray(b'x') * (1 << 20)); time.sleep(0.001)"


def python_for(uid: int) -> str:
    """An interpreter that the user may execute: ours may stand in a home that is closed to others."""
    for program in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")):
        if program is not None:
            try:
                if subprocess.run([program, "-S", "-c", ""], user=uid, group=uid, extra_groups=[]).returncode == 0:
                    return program
            except PermissionError:
                continue
    pytest.skip(f"no Python that user {uid} may execute")


class Bench:
    """A pool with the cgroups that it may use."""

    def __init__(self) -> None:
        self.base = cgroup.claim()
        self.pool = Supervisors(self.base)
        self.controllers = Controllers(self.base)

    def need(self, *limits: Limit) -> None:
        for limit in limits:
            if self.controllers.mechanism(limit) is Mechanism.NONE:
                pytest.skip(f"no cgroup can hold a run to {limit.value} here")

    def run(self, *argv: str, measure: bool = False, **caps: Any) -> tuple[Held, Box]:
        confined = request(intend(ResourceLimits(**caps), self.controllers, None) if caps else None, measure)
        return start(self.pool, plan(*argv, confined=confined))

    def directories(self) -> list[str]:
        """Those of runs with limits that are there now."""
        return [path for ground in self.controllers.grounds() for path in self.below(ground.base)]

    @staticmethod
    def below(base: str) -> list[str]:
        return [str(path) for path in Path(base).glob("l*") if path.is_dir()]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.pool.close()
    assert made.directories() == [], "a cgroup of a run was left"
    made.controllers.close()
    if made.base is not None:
        assert cgroup.remove_tree(made.base)


def last(box: Box, kind: type) -> Any:
    return [message for message in box.messages if isinstance(message, kind)][-1]


async def test_a_run_never_executes_outside_its_limits(bench: Bench) -> None:
    """The first thing that the job can look at, its own membership, is already that of its limits, in each
    hierarchy."""
    bench.need(*Limit)
    fd = os.memfd_create("out")
    confined = request(intend(ResourceLimits(cpu=1, memory=64 * MIB, processes=10), bench.controllers, None), False)
    _, box = start(bench.pool, plan("/bin/cat", "/proc/self/cgroup", confined=confined), ((os.dup(fd), 1),))
    await box.until(Emptied)
    text = os.pread(fd, 8192, 0).decode()
    os.close(fd)
    number = "/l"
    joined = [line for line in text.splitlines() if line.rpartition("/")[2].startswith("l") and number in line]
    assert len(joined) == len(bench.controllers.grounds()), text
    assert last(box, Started).held == wire.HELD_CPU | wire.HELD_MEMORY | wire.HELD_PROCESSES


async def test_the_memory_cap_kills_the_run_whole(bench: Bench) -> None:
    """A child that has left the session reaches the cap; the main process, which would go on, and everybody else of the
    run end with it, well before anything asks for it."""
    bench.need(Limit.MEMORY)
    tag = new_tag()
    script = f"trap '' TERM; setsid sleep {tag} & {sys.executable} -S -c \"$0\"; sleep {tag}"
    _, box = bench.run("/bin/sh", "-c", script, EAT, memory=48 * MIB)
    await box.until(Emptied)
    kinds = [type(message) for message in box.messages]
    assert kinds.index(MemoryExceeded) < kinds.index(Exited) and last(box, Exited).status == 9
    assert living(tag) == [] and last(box, Measured).peak_memory_bytes <= 48 * MIB


async def test_a_run_beneath_its_cap_is_left_alone(bench: Bench) -> None:
    """No event, no kill; the peak is what it used."""
    bench.need(Limit.MEMORY)
    _, box = bench.run(sys.executable, "-S", "-c", "b = bytearray(b'x') * (20 << 20)", memory=200 * MIB)
    await box.until(Emptied)
    assert last(box, Exited).status == 0 and not [m for m in box.messages if isinstance(m, MemoryExceeded)]
    assert 20 * MIB <= last(box, Measured).peak_memory_bytes < 100 * MIB


async def test_the_cap_on_processes_stops_a_fork_bomb(bench: Bench) -> None:
    """Forks beyond the cap fail in the run, and the refusals are counted."""
    bench.need(Limit.PROCESSES)
    bomb = ("import os, time\nmade = 0\nfor _ in range(100):\n"
            "    try:\n        if os.fork() == 0: time.sleep(60); os._exit(0)\n        made += 1\n"
            "    except OSError: os._exit(made)\nos._exit(200)")
    held, box = bench.run(sys.executable, "-S", "-c", bomb, processes=10)
    exited = await box.until(Exited)
    assert isinstance(exited, Exited) and os.waitstatus_to_exitcode(exited.status) == 9
    held.kill()
    await box.until(Emptied)
    assert last(box, Measured).process_limit_hits >= 1


async def test_the_cap_on_cpu_slows_the_run_down(bench: Bench) -> None:
    """A busy second at a fifth of a CPU gets about a fifth of a second, by the clock of the kernel."""
    bench.need(Limit.CPU)
    busy = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    fd = os.memfd_create("out")
    confined = request(intend(ResourceLimits(cpu=0.2), bench.controllers, None), True)
    _, box = start(bench.pool, plan(sys.executable, "-S", "-c", busy, confined=confined), ((os.dup(fd), 1),))
    await box.until(Emptied)
    used = float(os.pread(fd, 100, 0))
    os.close(fd)
    assert 0.1 < used < 0.4
    assert 0.1 < last(box, Used).user + last(box, Used).system < 0.45
    assert last(box, Measured).cpu_throttled_seconds > 0.2


async def test_cpu_time_of_the_whole_tree_is_counted(bench: Bench) -> None:
    """Of orphans, of processes that nobody waits for, of those killed: all that the run used, without any limit."""
    busy = "import time\\nwhile time.process_time() < 0.2: pass"
    script = f"(setsid {sys.executable} -S -c \"$(printf '{busy}')\" &) ; {sys.executable} -S -c \"$(printf '{busy}')\""
    _, box = bench.run("/bin/sh", "-c", script, measure=True)
    await box.until(Emptied)
    assert 0.4 <= last(box, Used).user + last(box, Used).system < 0.8


async def test_a_supervisor_is_used_again_after_a_limited_run(bench: Bench) -> None:
    """Limited runs and others in turn, by the same supervisors: each is held to its own limits only, and no directory
    of a cgroup is left after any of them."""
    bench.need(Limit.PROCESSES)
    who = "import os; print(os.getppid())"
    parents = set()
    for number in range(24):
        limited = request(intend(ResourceLimits(processes=5), bench.controllers, None), False) if number % 2 else None
        text = await output_of(bench.pool, plan(sys.executable, "-S", "-c", who, confined=limited))
        parents.add(text)
        assert bench.directories() == []
        free = await output_of(bench.pool, plan("/bin/sh", "-c", "cat /proc/self/cgroup"))
        assert b"/l" not in free
    assert len(parents) < 12


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
async def test_another_user_is_become_whole_with_limits(bench: Bench) -> None:
    """The forked start is like the other one: ids, groups, capabilities, session, signals, descriptors."""
    bench.need(Limit.PROCESSES)
    confined = request(intend(ResourceLimits(processes=10), bench.controllers, None), False)
    who = Identity(65534, 65534, (65534,))
    script = ("import os\nfds = sorted(map(int, os.listdir('/proc/self/fd')))\n"
              "facts = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
              "print(os.getresuid(), os.getresgid(), os.getgroups(), int(facts['CapEff'], 16), len(fds),\n"
              "      os.getpid() == os.getsid(0) == os.getpgid(0), int(facts['SigBlk'], 16),\n"
              "      hex(int(facts['SigIgn'], 16) & 0x7fffffff), os.getcwd())")
    text = await output_of(bench.pool, plan(
        python_for(65534), "-S", "-c", script, identity=who, directory=b"/tmp", confined=confined))
    nobody = "(65534, 65534, 65534)"
    assert text.decode() == f"{nobody} {nobody} [65534] 0 4 True 0 0x1001000 /tmp\n"


@pytest.mark.parametrize(("argv", "code"), [(("no-such-program",), 2), (("/tmp",), 13)])
async def test_a_start_that_fails_leaves_nothing(bench: Bench, argv: tuple[str, ...], code: int) -> None:
    """The errno is that of the exec, as without limits, and the cgroups are gone."""
    bench.need(Limit.PROCESSES)
    _, box = bench.run(*argv, processes=10)
    failed = await box.until(StartFailed)
    assert isinstance(failed, StartFailed) and failed.errno == code
    assert bench.directories() == []


async def test_required_is_refused_by_the_kernels_answer(bench: Bench) -> None:
    """A cgroup that disappeared meanwhile: with `required` nothing is started; else it starts and says what failed."""
    places = [("/sys/fs/cgroup/no-such-place", 1, [(wire.HELD_MEMORY, "memory.limit_in_bytes", b"1")])]
    _, box = start(bench.pool, plan("/bin/true", confined=(False, places, [], True)))
    failed = await box.until(StartFailed)
    assert isinstance(failed, StartFailed) and failed.what is LIMITS_STAGE and failed.errno != 0
    _, box = start(bench.pool, plan("/bin/true", confined=(False, places, [], False)))
    await box.until(Emptied)
    assert last(box, Started).held == 0 and last(box, Started).limit_errno == failed.errno


async def test_born_in_a_v2_cgroup_of_its_own(bench: Bench) -> None:
    """The way of a v2 hierarchy, with no controller to set: born inside, killed by cgroup.kill, removed."""
    if bench.base is None:
        pytest.skip("no writable cgroup v2 here")
    tag = new_tag()
    confined = (True, [(bench.base, 2, [])], [], False)
    script = f"setsid sleep {tag} & exec sleep {tag}"
    held, box = start(bench.pool, plan("/bin/sh", "-c", script, confined=confined))
    await box.until(Started)
    while len(living(tag)) < 2:
        await asyncio.sleep(0.01)
    (directory,) = bench.below(bench.base)
    assert set(cgroup.members(directory)) == set(living(tag))
    held.kill()
    gone = await box.until(Emptied)
    assert isinstance(gone, Emptied) and gone.cgroup_empty and living(tag) == [] and bench.below(bench.base) == []


async def test_a_job_that_kills_its_supervisor_takes_its_cgroups_with_it(bench: Bench) -> None:
    """The zygote ends what is left; the directory, which the supervisor cannot remove any more, is removed by us."""
    bench.need(Limit.MEMORY)
    tag = new_tag()
    held, box = bench.run("/bin/sh", "-c", f"setsid sleep {tag} & sleep 0.1; kill -9 $PPID; sleep {tag}",
                          memory=64 * MIB)
    from sexton.execution.messages import Swept
    await box.until(Swept)
    assert living(tag) == [] and held.supervisor is not None
    bench.controllers.clean(held.supervisor.number)
    assert bench.directories() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
async def test_rlimits_hold_each_process_where_no_cgroup_can() -> None:
    """Another user's job without any cgroup: allocations beyond the cap fail, forks beyond the cap fail; other runs of
    the supervisor have none of it."""
    pool = Supervisors(None)
    nothing = Controllers(None, list)
    who = Identity(65534, 65534, (65534,))
    python = python_for(65534)
    try:
        capped = request(intend(ResourceLimits(memory=64 * MIB), nothing, who), False)
        script = "try: b = bytearray(200 << 20); print('had')\nexcept MemoryError: print('refused')"
        assert await output_of(pool, plan(python, "-S", "-c", script, identity=who, confined=capped)) == \
            b"refused\n"
        assert await output_of(pool, plan(python, "-S", "-c", script, identity=who)) == b"had\n"
        few = request(intend(ResourceLimits(processes=4), nothing, who), False)
        bomb = ("import os, time\nmade = 0\nfor _ in range(60):\n"
                "    try:\n        if os.fork() == 0: time.sleep(1); os._exit(0)\n        made += 1\n"
                "    except OSError: break\nprint(made < 60, flush=True)")
        assert await output_of(pool, plan(python, "-S", "-c", bomb, identity=who, confined=few)) == b"True\n"
        soft = "import resource; print(resource.getrlimit(resource.RLIMIT_NPROC)[0])"
        free = await output_of(pool, plan(python, "-S", "-c", soft, identity=who))
        assert int(free) == resource.getrlimit(resource.RLIMIT_NPROC)[0]
    finally:
        await pool.close()


def test_a_sweep_ends_what_a_dead_daemon_left_in_its_limits() -> None:
    """A directory that carries the name of a process that is no more: who is in it is ended, it is removed."""
    ground = next((each for each in here() if each.version == 1 and "pids" in each.controllers), None)
    if ground is None or not os.access(ground.own, os.W_OK):
        pytest.skip("no writable v1 hierarchy here")
    dead = subprocess.Popen(["/bin/true"])
    dead.wait()
    top = Path(ground.own, f"sexton-{dead.pid}-1")
    (top / "l3").mkdir(parents=True)
    sleeper = subprocess.Popen(["/bin/sleep", new_tag()])
    (top / "l3" / "cgroup.procs").write_text(str(sleeper.pid))
    began = time.monotonic()
    cleared, left = _sweep_beside(sleeper)
    assert cleared >= 1 and left == [] and not top.exists() and time.monotonic() - began < 5
    assert sleeper.returncode == -9


def _sweep_beside(sleeper: subprocess.Popen[bytes]) -> tuple[int, list[int]]:
    """The victim is our child here, and leaves its cgroup only when we collect it."""
    import threading
    thread = threading.Thread(target=sleeper.wait)
    thread.start()
    found = sweep()
    thread.join(5)
    return found

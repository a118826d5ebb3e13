"""Which mechanism holds a run to which cap: hierarchies from text, directories that only look like cgroups."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from sexton.execution.birth import wire
from sexton.execution.birth.confine import Confinement
from sexton.execution.birth.place import Place
from sexton.execution.controllers import Controllers, Hierarchy, hierarchies
from sexton.execution.limits import Intended, LimitsRefused, facts, intend, knobs, request
from sexton.execution.messages import Measured, Started
from sexton.execution.plan import Identity
from sexton.execution.sampler import Monitored
from sexton.model.clock import Monotonic
from sexton.model.limits import Limit, Mechanism, Monitoring, ResourceLimits
from sexton.model.run import Containment

HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /jobs /mnt/a\\040memory rw,relatime shared:9 - cgroup cgroup rw,memory
36 31 0:33 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
37 31 0:34 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
38 31 0:35 /elsewhere /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
39 31 0:36 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
INSIDE = "5:blkio:/a\n4:memory:/jobs/one\n3:pids:/\n2:cpu,cpuacct:/sys\n1:name=systemd:/\n0::/u\n"
LIMITS = ResourceLimits(cpu=0.5, memory=64 * 2**20 + 5, processes=20)
NOBODY = Identity(65534, 65534, ())


def test_hierarchies_are_where_they_are_mounted() -> None:
    """Co-mounted controllers, a bind-mounted part, a space in the path; one that does not reach us is none."""
    found = {(h.version, h.own): h.controllers for h in hierarchies(HYBRID, INSIDE)}
    assert found == {
        (1, "/sys/fs/cgroup/cpu,cpuacct/sys"): {"cpu", "cpuacct"}, (1, "/mnt/a memory/one"): {"memory"},
        (1, "/sys/fs/cgroup/pids"): {"pids"}, (1, "/sys/fs/cgroup/systemd"): {"name=systemd"},
        (2, "/sys/fs/cgroup/unified/u"): {""},
    }


def test_no_hierarchy_is_no_error() -> None:
    """A machine without cgroups has nothing to hold a run by, and that is all."""
    assert hierarchies("22 1 0:20 / / rw - ext4 /dev/sda rw\n", "") == []
    nothing = Controllers(None, list)
    assert [nothing.mechanism(limit) for limit in Limit] == [Mechanism.NONE] * 3
    assert "no cgroup with the memory controller" in nothing.why[Limit.MEMORY]


def v1(tmp_path: Path, *controllers: str) -> Hierarchy:
    own = tmp_path / ",".join(controllers)
    own.mkdir()
    return Hierarchy(own=str(own), controllers=frozenset(controllers), version=1)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new directory has the files of a cgroup."""
    real = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        real(path, mode)
        if not Path(path).name.startswith(("sexton-", "l1", "l2")):
            return
        for file in ("cgroup.procs", "cpu.cfs_quota_us", "cpu.cfs_period_us", "memory.limit_in_bytes", "pids.max",
                     "memory.max", "memory.oom.group", "cpu.max"):
            Path(path, file).write_text("")

    monkeypatch.setattr(os, "mkdir", mkdir)


@pytest.mark.usefixtures("made")
def test_v1_is_used_where_only_that_is_there(tmp_path: Path) -> None:
    """One directory of ours in each hierarchy with a controller that a cap needs, made at the first need; the CPU share
    is joined last."""
    found = [v1(tmp_path, "cpu", "cpuacct"), v1(tmp_path, "pids"), v1(tmp_path, "blkio"), v1(tmp_path, "memory")]
    controllers = Controllers(None, lambda: found)
    assert [list(Path(each.own).iterdir()) for each in found] == [[], [], [], []]
    intended = intend(LIMITS, controllers, None)
    assert intended.by == dict.fromkeys(Limit, Mechanism.CGROUP_V1) and intended.why == {} and intended.rlimits == []
    assert [version for _, version, _ in intended.places] == [1, 1, 1]
    assert intended.places[-1][0].startswith(found[0].own + f"/sexton-{os.getpid()}-")
    files = {file: value for _, _, knobs in intended.places for _, file, value in knobs}
    assert files["cpu.cfs_quota_us"] == b"50000" and files["pids.max"] == b"20"
    assert files["memory.limit_in_bytes"] == files["memory.memsw.limit_in_bytes"] == b"%d" % (64 * 2**20)
    assert list(Path(found[2].own).iterdir()) == []


@pytest.mark.usefixtures("made")
def test_v2_controllers_come_first(tmp_path: Path) -> None:
    """What a v2 hierarchy offers is handed down to the runs' directory and used; v1 only for the rest."""
    own, base = tmp_path / "own", tmp_path / "own" / "sexton"
    base.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpuset memory pids\n")
    found = [v1(tmp_path, "cpu"), v1(tmp_path, "memory"), Hierarchy(own=str(own), controllers=frozenset(), version=2)]
    controllers = Controllers(str(base), lambda: found)
    assert [controllers.mechanism(limit) for limit in (Limit.MEMORY, Limit.PROCESSES, Limit.CPU)] == [
        Mechanism.CGROUP_V2, Mechanism.CGROUP_V2, Mechanism.CGROUP_V1]
    assert (own / "cgroup.subtree_control").read_text() == (base / "cgroup.subtree_control").read_text() == \
        "+memory +pids"
    where = {version: place for place, version, _ in intend(LIMITS, controllers, None).places}
    assert where[2] == str(base) and where[1].startswith(found[0].own)


def test_v2_knobs() -> None:
    """The cap, no swap beside it, and the whole group for the kernel's OOM kill."""
    assert knobs(Limit.MEMORY, 2**20 + 1, Mechanism.CGROUP_V2) == [
        (wire.HELD_MEMORY, "memory.max", b"1048576"), (0, "memory.swap.max", b"0"), (0, "memory.oom.group", b"1")]
    assert knobs(Limit.CPU, 0.01, Mechanism.CGROUP_V2) == [(wire.HELD_CPU, "cpu.max", b"1000 100000")]
    assert knobs(Limit.PROCESSES, 5, Mechanism.CGROUP_V2) == [(wire.HELD_PROCESSES, "pids.max", b"5")]


def test_without_cgroups_rlimits_do_what_they_can() -> None:
    """Memory of each process; processes of the user, which does not bind root; of CPU nothing. It is not enforced."""
    nothing = Controllers(None, list)
    intended = intend(LIMITS, nothing, NOBODY)
    assert intended.by == {
        Limit.CPU: Mechanism.NONE, Limit.MEMORY: Mechanism.RLIMIT, Limit.PROCESSES: Mechanism.RLIMIT}
    assert {number for number, _, _ in intended.rlimits} == {resource.RLIMIT_DATA, resource.RLIMIT_NPROC}
    root = intend(LIMITS, nothing, Identity(0, 0, ()))
    assert root.by[Limit.PROCESSES] is Mechanism.NONE
    told = facts(intended, LIMITS, Started(1, Monotonic(0.0), Containment.SUPERVISOR), None)
    assert not told.enforced and told.mechanism is Mechanism.NONE
    assert told.unenforced == ("cpu", "memory", "processes") and "no cgroup with the cpu" in (told.reason or "")


def test_required_refuses_what_a_cgroup_cannot_hold() -> None:
    """An rlimit is no enforcement: the run is not started, in the words of the reference."""
    with pytest.raises(LimitsRefused) as refused:
        intend(ResourceLimits(memory=2**20, required=True), Controllers(None, list), NOBODY)
    assert str(refused.value) == (
        "resource limits could not be enforced: memory: no cgroup with the memory controller is here "
        "(resourceLimits.required is set)")


def intended(**by: Mechanism) -> Intended:
    return Intended(limits=LIMITS, by={Limit(name): how for name, how in by.items()}, why={}, places=[], rlimits=[])


def test_what_the_kernel_refused_is_not_claimed() -> None:
    """Enforced is what the supervisor says it has set up, with the kernel's words for what it could not."""
    plan = intended(memory=Mechanism.CGROUP_V1, processes=Mechanism.CGROUP_V2)
    both = Started(1, Monotonic(0.0), Containment.SUPERVISOR, wire.HELD_MEMORY | wire.HELD_PROCESSES)
    assert facts(plan, LIMITS, both, None).enforced and facts(plan, LIMITS, both, None).mechanism is Mechanism.CGROUP_V1
    one = Started(1, Monotonic(0.0), Containment.SUPERVISOR, wire.HELD_MEMORY, 22)
    told = facts(plan, LIMITS, one, Measured(3, None, 4096))
    assert not told.enforced and told.unenforced == ("processes",) and told.by["processes"] is Mechanism.NONE
    assert told.reason == "processes: the pids cgroup refused it: Invalid argument"
    assert (told.process_limit_hits, told.peak_memory_bytes, told.cpu_throttled_seconds) == (3, 4096, None)
    assert not facts(plan, LIMITS, None, None).enforced, "of a run that never started nothing was enforced"


def test_a_run_without_limits_and_monitoring_asks_for_nothing() -> None:
    """None is the fast path."""
    assert request(None, False) is None and request(None, True) == (True, [], [], False)


@pytest.mark.usefixtures("made")
def test_half_a_set_up_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap that cannot be written leaves no directory behind; a knob that may be missing is passed over."""
    real = os.rmdir

    def rmdir(path: str) -> None:
        for file in os.listdir(path):
            os.unlink(os.path.join(path, file))
        real(path)

    monkeypatch.setattr(os, "rmdir", rmdir)
    good = Place(str(tmp_path), "l1", 1, [(wire.HELD_PROCESSES, "pids.max", b"5"), (0, "memory.swappiness", b"0")])
    assert good.set_up() == 0 and good.bits == wire.HELD_PROCESSES
    assert (tmp_path / "l1" / "pids.max").read_text() == "5"
    assert good.remove() and not (tmp_path / "l1").exists()
    bad = Place(str(tmp_path), "l2", 1, [(wire.HELD_PROCESSES, "pids.max", b"5"), (wire.HELD_CPU, "missing", b"0")])
    assert bad.set_up() == 2 and bad.bits == 0 and not (tmp_path / "l2").exists()


@pytest.mark.usefixtures("made")
def test_a_cgroup_that_does_not_tell_is_looked_at(tmp_path: Path) -> None:
    """Without an event for the cap on memory the supervisor looks at the counters from time to time; and no file stays
    open."""
    before = len(os.listdir("/proc/self/fd"))
    knob = (wire.HELD_MEMORY, "memory.limit_in_bytes", b"1048576")
    confinement = Confinement(1, None, (False, [(str(tmp_path), 1, [knob])], [], False))
    assert confinement.prepare() and confinement.bits == wire.HELD_MEMORY
    assert confinement.event == -1 and confinement.look_every == 200
    place = tmp_path / "l1"
    assert not confinement.reached_memory()
    (place / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert not confinement.reached_memory(), "a kill for the cap of somebody above is not this run's"
    (place / "memory.failcnt").write_text("3\n")
    assert confinement.reached_memory() and confinement.exceeded
    assert not confinement.reached_memory(), "it is told once"
    confinement.remove()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.usefixtures("made")
def test_a_v2_cgroup_tells_by_its_own_events(tmp_path: Path) -> None:
    """Only running out of memory at this cap counts, not a kill that came from above or a cap below."""
    knob = (wire.HELD_MEMORY, "memory.max", b"1048576")
    confinement = Confinement(1, None, (False, [(str(tmp_path), 2, [knob])], [], False))
    confinement.prepare()
    place = tmp_path / "l1"
    (place / "memory.events").write_text("low 0\nmax 9\noom 1\noom_kill 1\n")
    (place / "memory.events.local").write_text("low 0\nmax 9\noom 0\noom_kill 1\n")
    assert not confinement.reached_memory()
    (place / "memory.events.local").write_text("low 0\nmax 9\noom 1\noom_kill 1\n")
    assert confinement.reached_memory()


def test_a_look_that_may_have_seen_a_later_run_does_not_count() -> None:
    """The supervisor of a run that is over may hold another one already."""
    over = Monitored(os.getpid(), (), Monitoring(), lambda: False)
    over.look()
    assert over.count == 0 and not over.looks
    on = Monitored(os.getpid(), (), Monitoring(history=2), lambda: True)
    for _ in range(3):
        on.look()
    assert on.count == 3 and len(on.looks) == 2

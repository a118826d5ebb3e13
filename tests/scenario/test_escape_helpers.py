"""When Sexton's own processes are held up, stopped or killed: one run's trouble is no other's, and nothing is believed
that nobody has seen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from escape_walk import build
from escapes import CASES, Case, Level, compiler, prefix, unavailable
from probes import children, named
from rig import NEVER, Rig, living, new_tag, until

BY_NAME = {case.name: case for case in CASES}


@pytest.fixture
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A daemon at the level that the test names."""
    level: Level = request.param
    if why := unavailable(level):
        pytest.skip(why)
    tmp_path.chmod(0o777)
    made = Rig(tmp_path, prefix(level, ""))
    made.environment = {"HOME": "/"}
    yield made
    made.close()


def at(*levels: Level) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rig", levels, ids=[level.name.lower() for level in levels], indirect=True)


def up(rig: Rig, case: Case) -> str:
    """Start it and wait until it is what it is meant to be; the run."""
    run = rig.fire(case.name)
    until((rig.folder / f"{case.name}.up").exists, 20, f"{case.name} at work")
    return run


@at(Level.USER)
@pytest.mark.skipif(os.geteuid() != 0 or not compiler(), reason="needs root and a C compiler")
def test_what_may_not_be_ended_holds_up_nobody_elses_proof(rig: Rig) -> None:
    """A killed supervisor leaves a process of root to an ordinary user's zygote. Other runs whose supervisors are
    killed later are proven gone at once; the first is shown with its survivor, and is proven when that has ended."""
    build(rig.folder)
    first, second = BY_NAME["suid_kills_supervisor"], BY_NAME["kills_supervisor"]
    tags = {case: new_tag() + case.name for case in (first, second)}
    rig.start([case.job(Level.USER, tags[case], rig.folder) for case in (first, second)])
    stubborn = up(rig, first)
    left = until(lambda: [pid for pid in living(tags[first]) if os.stat(f"/proc/{pid}").st_uid == 0], 5, "it")
    try:
        for _ in range(2):
            record = rig.recorded(rig.fire(second.name), 10)
            assert record["gone"] == {"state": "proven", "witnesses": ["sweep"], "survivors": []}
            assert not living(tags[second])
        assert rig.run(stubborn)["phase"] == "running", "it is not over before nothing is left"
        rig.http("POST", f"/runs/{stubborn}/cancel?wait=30", {"force": True})
        gone = rig.run(stubborn)["gone"]
        assert gone["state"] == "survivors" and [each["pid"] for each in gone["survivors"]] == left
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    until(lambda: rig.run(stubborn)["gone"]["state"] == "proven", 5, "the proof")


@at(Level.ROOT_CGROUP, Level.ROOT)
def test_a_stopped_supervisor_ends_its_run_when_the_daemon_is_killed(rig: Rig) -> None:
    """Nobody but the zygote is there to set it going; the next daemon hears that nothing is left."""
    case = BY_NAME["stops_supervisor"]
    tag = new_tag()
    rig.start([case.job(Level.ROOT, tag, rig.folder)], state={"path": str(rig.folder / "state")})
    run = up(rig, case)
    rig.kill9()
    until(lambda: not living(tag), 5, "the end of everything, without a daemon")
    rig.start()
    assert rig.recorded(run)["gone"] == {"state": "proven", "witnesses": ["crash-sweep"], "survivors": []}


@at(Level.ROOT)
def test_a_zygote_that_was_killed_long_ago_costs_no_proof(rig: Rig) -> None:
    """Its supervisors have been buried by the daemon: a later crash is judged by the zygote that there is."""
    case = BY_NAME["daemon_killed"]
    tag = new_tag()
    rig.start([case.job(Level.ROOT, tag, rig.folder)], state={"path": str(rig.folder / "state")})
    before = up(rig, case)
    [zygote] = set(children(rig.pid)) & set(named(rig.pid, "sexton-zygote"))
    os.kill(zygote, signal.SIGKILL)
    rig.logged("the zygote has died")
    assert rig.http("POST", f"/runs/{before}/cancel?wait=10")[0] == 200
    (rig.folder / f"{case.name}.up").unlink()
    after = up(rig, case)
    words = rig.folder / "state"
    until(lambda: len(list(words.glob("**/zygotes/*"))) == 1, 5, "one zygote that is to be heard")
    rig.kill9()
    rig.start()
    assert rig.recorded(after)["gone"]["state"] == "proven"


@at(Level.ROOT)
def test_a_clean_end_leaves_words_that_the_next_start_takes(rig: Rig) -> None:
    """One file for each zygote, gone after it has been heard."""
    case = BY_NAME["plain"]
    rig.start([case.job(Level.ROOT, new_tag(), rig.folder)], state={"path": str(rig.folder / "state")},
              shutdownTimeout=0.1)
    up(rig, case)
    assert rig.stop() == 0
    [words] = (rig.folder / "state").glob("**/zygotes/*")
    assert words.read_text() == "nothing is left\n"
    rig.start()
    assert not words.exists()


@at(Level.ROOT, Level.USER)
def test_what_is_below_a_marked_process_is_found_without_marks(rig: Rig) -> None:
    """Zygote, supervisor and daemon are killed, and there is no cgroup. A process with neither the run's environment
    nor its session is still the child of one that has them: the next start ends both, and claims no proof."""
    tag = new_tag()
    bare = f"env -i setsid sh -c 'sleep {tag}; :'"
    rig.start([{"name": "j", "schedule": NEVER, "command": f"{bare} & setsid sleep {tag} & sleep {tag}; :"}],
              state={"path": str(rig.folder / "state")})
    run = rig.fire()
    pid = rig.running(run)
    until(lambda: len(living(tag)) >= 5, 10, "two shells of its own and three sleeps")
    [zygote] = set(children(rig.pid)) & set(named(rig.pid, "sexton-zygote"))
    supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    rig.signal(signal.SIGSTOP)  # or it would end the run itself, in time
    for victim in (zygote, supervisor):
        os.kill(victim, signal.SIGKILL)
    rig.kill9()
    assert len(living(tag)) >= 5
    rig.start()
    assert rig.recorded(run)["gone"] == {"state": "unknown", "witnesses": [], "survivors": []}
    assert living(tag) == []

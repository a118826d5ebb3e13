"""The daemon, its zygote or a supervisor is killed: nothing of a run stays, and each run is recorded exactly once."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from keep_kit import cgroup_of
from probes import children, named, zombies
from rig import NEVER, Rig, alive, living, new_tag, until

PROMPT_SECONDS = 0.1
GONE_SECONDS = 3.0
"""A loaded machine gets this; on an idle one it takes a few milliseconds, and the time is printed."""


def escape_artist(tag: str) -> str:
    """A shell with a child in its group, one in a session of its own, a double-forked one, one without environment; all
    of them ignore SIGTERM."""
    return (f"trap '' TERM HUP; sleep {tag} & setsid sleep {tag} & (setsid sh -c 'sleep {tag} & exit 0' &) ; "
            f"env -i setsid sleep {tag} & wait; sleep {tag}")


def zygote_of(rig: Rig) -> int:
    [zygote] = set(children(rig.pid)) & set(named(rig.pid, "sexton-zygote"))
    return zygote


def nothing_left(*tags: str) -> float:
    began = time.monotonic()
    until(lambda: not any(living(tag) for tag in tags), GONE_SECONDS, f"nothing of {tags}")
    took = time.monotonic() - began
    print(f"all gone {took * 1000:.0f} ms after the kill")
    return took


def jobs_of(tag: str) -> list[dict[str, Any]]:
    return [
        {"name": "j", "schedule": NEVER, "concurrencyPolicy": "Allow", "captureStdout": True,
         "command": f"echo begun; {escape_artist(tag)}", "killTimeout": 2},
        {"name": "done", "schedule": NEVER, "captureStdout": True, "command": "echo finished; exit 3"},
    ]


def once_each(rig: Rig, job: str, runs: list[str]) -> list[Any]:
    records = rig.runs(job)
    assert Counter(record["id"] for record in records) == Counter(runs), "each run is recorded exactly once"
    return records


def test_interrupted_runs_become_unknown(rig: Rig, tmp_path: Path) -> None:
    """Three instances at work when the daemon is killed: none of their processes is left, three records say `unknown`
    with pid and start; the finished run, its output and the last states are there; a second restart adds nothing."""
    tag = new_tag()
    rig.start(jobs_of(tag), state={"path": str(tmp_path / "state")})
    finished = rig.fire("done")
    rig.recorded(finished)
    runs = [rig.fire() for _ in range(3)]
    pids = {run: rig.running(run) for run in runs}
    until(lambda: len(living(tag)) >= 15, 10, "five processes of each")
    rig.kill9()
    nothing_left(tag)
    for _ in range(2):
        rig.start()
        for record in once_each(rig, "j", runs):
            assert record["outcome"] == "unknown" and record["phase"] == "recorded" and record["exit_code"] is None
            assert record["gone"]["state"] == "proven" and record["fail_reason"].startswith("interrupted")
            assert record["pid"] == pids[record["id"]] and record["started_at"] is not None
            assert rig.http("GET", f"/runs/{record['id']}/log") == (200, "begun\n")
        once_each(rig, "done", [finished])
        view = rig.job("done")
        assert view["last_run"]["id"] == finished and view["last_run"]["exit_code"] == 3
        assert rig.http("GET", f"/runs/{finished}/log") == (200, "finished\n")
        assert rig.job()["running"] is False and rig.job()["last_run"]["outcome"] == "unknown"
        rig.kill9()


def test_nothing_is_left_a_tenth_of_a_second_later(rig: Rig, tmp_path: Path) -> None:
    """kill -9 of the daemon with three runs at work, five processes each. Of several tries the best one counts: a
    busy machine makes some late, waiting for anything would make all of them late."""
    tag = new_tag()
    rig.write(jobs_of(tag), state={"path": str(tmp_path / "state")})
    times = []
    for _ in range(5):
        rig.start()
        for run in [rig.fire() for _ in range(3)]:
            rig.running(run)
        until(lambda: len(living(tag)) >= 15, 10, "five processes of each")
        rig.kill9()
        times.append(nothing_left(tag))
        if times[-1] < PROMPT_SECONDS:
            return
    raise AssertionError(f"never at once: {times}")


def test_killed_at_many_moments(rig: Rig, tmp_path: Path) -> None:
    """SIGKILL while runs are being started, run, are stopped and are recorded: after each restart every run that was
    answered for has exactly one record, the finished ones keep their verdict, and no process is left."""
    tag = new_tag()
    jobs = [
        {"name": "short", "schedule": NEVER, "concurrencyPolicy": "Allow", "command": "exit 0"},
        {"name": "long", "schedule": NEVER, "concurrencyPolicy": "Allow", "killTimeout": 0.2,
         "command": escape_artist(tag)},
    ]
    rig.write(jobs, state={"path": str(tmp_path / "state"), "maxRunsPerJob": 0})
    started: dict[str, list[str]] = {"short": [], "long": []}
    verdicts: dict[str, str] = {}
    for pause in (0.0, 0.003, 0.01, 0.03, 0.1, 0.25):
        rig.start()
        for name, runs in started.items():
            for record in once_each(rig, name, runs):
                assert verdicts.setdefault(record["id"], record["outcome"]) == record["outcome"]
                assert record["outcome"] in ("success", "unknown", "cancelled")
        for name in ("short", "long", "short", "long", "short"):
            started[name].append(rig.fire(name))
        if pause >= 0.03:
            rig.http("POST", f"/runs/{started['long'][-1]}/cancel")
        time.sleep(pause)
        for record in rig.runs("short"):
            verdicts[record["id"]] = record["outcome"]
        rig.kill9()
        nothing_left(tag)
    rig.start()
    for name, runs in started.items():
        once_each(rig, name, runs)
    assert rig.http("GET", "/health")[1]["running"] == 0


def test_no_occurrence_starts_twice(rig: Rig, tmp_path: Path) -> None:
    """SIGKILL shortly before, at and after the instants of a job that is due every second, and a new daemon at once:
    a run that was made ready ahead by the old one does not start beside that of the new one."""
    marks = tmp_path / "marks"
    rig.write([{"name": "j", "schedule": "* * * * * * *", "concurrencyPolicy": "Allow",
                "command": f"echo $SEXTON_SCHEDULED_AT >> {marks}"}], state={"path": str(tmp_path / "state")})

    def started() -> list[str]:
        return marks.read_text().split() if marks.exists() else []

    for moment in (0.7, 0.9, 0.97, 0.99, 0.0, 0.01, 0.05):
        before = len(started())
        rig.start()
        until(lambda before=before: len(started()) > before, 5, "a run of this daemon")
        now = time.time()
        end = now + (moment - now) % 1.0
        until(lambda end=end: time.time() >= end, 2, "the moment")
        rig.kill9()
    before = len(started())
    rig.start()
    until(lambda: len(started()) > before + 1, 5, "it goes on")
    assert len(started()) == len(set(started()))
    ids = [record["id"] for record in rig.runs()]
    assert len(ids) == len(set(ids))


def test_a_start_that_was_answered_is_not_lost(rig: Rig, tmp_path: Path) -> None:
    """SIGKILL on the heels of the answer, several times: the restart knows every run that was promised."""
    rig.write([{"name": "j", "schedule": NEVER, "command": "true"}], state={"path": str(tmp_path / "state")})
    runs: list[str] = []
    for _ in range(5):
        rig.start()
        runs.append(rig.fire())
        rig.kill9()
    rig.start()
    once_each(rig, "j", runs)


def test_a_replacement_that_waited_is_not_started_by_the_restart(rig: Rig, tmp_path: Path) -> None:
    """The daemon dies while a Replace waits for its victim: both end, nothing starts by itself afterwards."""
    tag = new_tag()
    rig.start([{"name": "j", "schedule": NEVER, "concurrencyPolicy": "Replace", "killTimeout": 20,
                "command": escape_artist(tag)}], state={"path": str(tmp_path / "state")})
    victim = rig.fire()
    rig.running(victim)
    rig.fire()
    until(lambda: rig.run(victim)["phase"] == "stopping", 5, "the victim is being stopped")
    rig.kill9()
    nothing_left(tag)
    rig.start()
    assert living(tag) == [] and rig.job()["running"] is False
    assert [r["outcome"] for r in rig.runs() if r["id"] == victim] == ["unknown"]
    stopped = next(r for r in rig.runs() if r["id"] == victim)
    assert stopped["phase"] == "recorded"


def test_a_killed_zygote_costs_no_run(rig: Rig) -> None:
    """When the zygote is killed, running runs go on and are recorded with their own exit status, can still be cancelled
    with proof, and new runs start; no zombie stays."""
    tag, slow = new_tag(), new_tag() + "1"
    rig.start([
        {"name": "j", "schedule": NEVER, "killTimeout": 0.2, "command": escape_artist(tag)},
        {"name": "own", "schedule": NEVER, "command": "sleep 1; exit 5"},
        {"name": "new", "schedule": NEVER, "concurrencyPolicy": "Allow", "command": f": {slow}; exit 6"},
    ])
    victim, own = rig.fire(), rig.fire("own")
    rig.running(victim)
    rig.running(own)
    zygote = zygote_of(rig)
    os.kill(zygote, signal.SIGKILL)
    for _ in range(3):
        assert rig.recorded(rig.fire("new"))["exit_code"] == 6
    assert rig.recorded(own)["exit_code"] == 5
    assert rig.http("POST", "/jobs/j/cancel")[0] == 200
    assert living(tag) == [] and rig.recorded(victim)["outcome"] == "cancelled"
    assert rig.recorded(rig.fire("new"))["exit_code"] == 6
    until(lambda: zombies(rig.pid) == [], 12, "no zombies")
    assert rig.stop() == 0


@pytest.mark.parametrize("how", ["job", "cancelled later"])
def test_a_killed_supervisor_takes_its_run_with_it(rig: Rig, how: str) -> None:
    """A job that kills its own supervisor is ended whole, recorded once as unknown with the cause, and the next run
    works."""
    tag = new_tag()
    command = f"{escape_artist(tag).removesuffix(f'wait; sleep {tag}')} kill -9 $PPID; sleep {tag}"
    rig.start([
        {"name": "j", "schedule": NEVER, "command": command if how == "job" else escape_artist(tag)},
        {"name": "new", "schedule": NEVER, "command": "exit 6"},
    ])
    run = rig.fire()
    if how != "job":
        pid = rig.running(run)
        supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(supervisor, signal.SIGKILL)
    record = rig.recorded(run)
    assert record["outcome"] == "unknown" and "supervisor" in record["fail_reason"]
    assert record["gone"]["state"] == "proven"
    nothing_left(tag)
    assert rig.recorded(rig.fire("new"))["exit_code"] == 6
    assert len(rig.runs()) == 1


def test_supervisor_and_zygote_both_killed(rig: Rig) -> None:
    """With the zygote gone the daemon itself inherits what a killed supervisor held: the run is ended and recorded, not
    waited for without end."""
    tag = new_tag()
    rig.start([{"name": "j", "schedule": NEVER, "command": escape_artist(tag)}])
    run = rig.fire()
    pid = rig.running(run)
    supervisor = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    zygote = zygote_of(rig)
    os.kill(zygote, signal.SIGKILL)
    until(lambda: not alive(zygote), 5, "the zygote's end")
    os.kill(supervisor, signal.SIGKILL)
    record = rig.recorded(run, 10)
    assert record["outcome"] == "unknown"
    nothing_left(tag)


def test_a_stopped_supervisor_of_leftovers_is_set_going(rig: Rig, tmp_path: Path) -> None:
    """It was stopped while it kept what an ended run had left behind, and then zygote and daemon were killed: the next
    start sets it going, and it ends with what it was kept for."""
    tag = new_tag()
    rig.start([{"name": "j", "schedule": NEVER, "command": f"setsid sleep {tag} >/dev/null 2>&1 & exit 0"}],
              state={"path": str(tmp_path / "state")})
    rig.recorded(rig.fire())
    [left] = living(tag)
    if cgroup_of(left) is None:
        os.kill(left, signal.SIGKILL)
        pytest.skip("no writable cgroup v2 here")
    supervisor = int(Path(f"/proc/{left}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(zygote_of(rig), signal.SIGKILL)
    rig.kill9()
    os.kill(left, signal.SIGKILL)
    assert alive(supervisor)
    rig.start()
    until(lambda: not alive(supervisor), GONE_SECONDS, "its end")

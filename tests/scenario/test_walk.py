"""kill -9 of the daemon at every step of a run's journey, for both values of onDaemonLoss: nothing is lost, nothing is
started twice, and each run that was promised has one record.

The steps are held from outside: by a stopped zygote or supervisor, a locked ledger, a frozen cgroup, a job that waits.
Three steps of the journey are walked elsewhere: a wait for a pool (`test_pools_durable.py`), the check of a result
(`test_verify.py`), a place that is kept for a process that cannot be ended (`test_page_refused.py`).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keep_kit import cgroup_of, nothing_left, runtime
from page_kit import Outside
from probes import children, named
from rig import NEVER, Rig, alive, living, new_tag, until

pytestmark = pytest.mark.usefixtures("no_keepers_left")

LOSS = pytest.mark.parametrize("loss", ["kill", "keep"])


class Walk:
    """One job that notes each start, and the ways to hold its run at a step."""

    def __init__(self, rig: Rig, tmp_path: Path, loss: str) -> None:
        self.rig, self.folder, self.loss = rig, tmp_path, loss
        self.tag = new_tag()
        self.go = tmp_path / "go"
        self.starts = tmp_path / "starts"
        self.keeps = loss == "keep"

    def start(self, command: str, **more: Any) -> None:
        job = {"name": "j", "schedule": NEVER, "onDaemonLoss": self.loss, "captureStdout": True, "killTimeout": 1,
               "concurrencyPolicy": "Allow", "command": f"echo x >> {self.starts}; {command}", **more}
        warm = {"name": "warm", "schedule": NEVER, "command": "true"}
        self.rig.start([job, warm], state={"path": str(self.folder / "state")})
        self.rig.recorded(self.rig.fire("warm"))
        until(lambda: len(self.idle()) >= 8, 5, "a warm pool")

    @property
    def waits(self) -> str:
        """A command that ends with 7 when it may."""
        return f"while [ ! -e {self.go} ]; do sleep 0.05; : {self.tag}; done; exit 7"

    def idle(self) -> list[int]:
        return named(self.rig.pid, "sexton-run")

    def zygote(self) -> int:
        [zygote] = set(children(self.rig.pid)) & set(named(self.rig.pid, "sexton-zygote"))
        return zygote

    def fire_unanswered(self) -> None:
        """A start whose answer may never come."""
        def ask() -> None:
            with contextlib.suppress(OSError, AssertionError):
                self.rig.fire()

        threading.Thread(target=ask, daemon=True).start()
        until(lambda: self.rig.job()["runs"], 5, "the run is registered")

    @contextlib.contextmanager
    def locked_ledger(self) -> Iterator[None]:
        """As a backup that takes its time would."""
        connection = sqlite3.connect(self.folder / "state" / "default" / "ledger.sqlite3", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
            connection.close()

    def in_phase(self, run: str, *phases: str, seconds: float = 10) -> None:
        until(lambda: self.rig.run(run)["phase"] in phases, seconds, f"{phases}")

    def count_starts(self) -> int:
        return self.starts.read_text().count("x") if self.starts.exists() else 0

    def one_record(self, run: str) -> Any:
        """After a restart, and after one more: the same one."""
        record = self.rig.recorded(run)
        self.rig.kill9()
        self.rig.start()
        assert [r["id"] for r in self.rig.runs()] == [run] and self.rig.runs()[0]["outcome"] == record["outcome"]
        if self.keeps:
            assert runtime(self.folder) == []
        return record


@pytest.fixture
def walk(rig: Rig, tmp_path: Path, loss: str) -> Walk:
    return Walk(rig, tmp_path, loss)


@LOSS
def test_before_the_intent(walk: Walk, loss: str) -> None:
    """The ledger is locked: nobody was promised anything, and nothing is started, then or later."""
    walk.start(walk.waits)
    with walk.locked_ledger():
        walk.fire_unanswered()
        walk.rig.kill9()
    walk.rig.start()
    assert walk.rig.runs() == [] and walk.count_starts() == 0 and living(walk.tag) == []


@LOSS
def test_after_the_intent(walk: Walk, loss: str) -> None:
    """No supervisor can be had when the daemon dies: the intent is known, and the run was never started."""
    walk.start(walk.waits)
    zygote, idle = walk.zygote(), walk.idle()
    os.kill(zygote, signal.SIGSTOP)
    for pid in idle:
        os.kill(pid, signal.SIGKILL)
    run = walk.rig.fire()
    walk.in_phase(run, "starting")
    walk.rig.kill9()
    os.kill(zygote, signal.SIGCONT)
    walk.rig.start()
    record = walk.one_record(run)
    assert record["outcome"] == "unknown" and walk.count_starts() == 0 and living(walk.tag) == []


@LOSS
def test_after_the_request(walk: Walk, loss: str) -> None:
    """A supervisor has the request and has not read it. It finds the daemon dead: a run that is to be kept is not
    started, since a later daemon has looked for it already; another one is ended at once."""
    walk.start(walk.waits)
    idle = walk.idle()
    for pid in idle:
        os.kill(pid, signal.SIGSTOP)
    run = walk.rig.fire()
    walk.in_phase(run, "starting")
    walk.rig.kill9()
    walk.rig.start()
    assert walk.rig.recorded(run)["outcome"] == "unknown"
    for pid in idle:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    until(lambda: not any(alive(pid) for pid in idle), 5, "the old supervisors have gone")
    nothing_left(walk.tag)
    walk.one_record(run)
    assert walk.count_starts() <= (0 if walk.keeps else 1)


@LOSS
def test_running(walk: Walk, loss: str) -> None:
    """Kept: taken over, and it ends with its own status. Else: ended, and unknown."""
    walk.start(walk.waits)
    run = walk.rig.fire()
    walk.rig.running(run)
    walk.rig.kill9()
    if not walk.keeps:
        nothing_left(walk.tag)
    walk.rig.start()
    walk.go.touch()
    record = walk.one_record(run)
    assert record["exit_code"] == (7 if walk.keeps else None) and record["gone"]["state"] == "proven"
    assert walk.count_starts() == 1 and living(walk.tag) == []


@LOSS
def test_draining(walk: Walk, loss: str) -> None:
    """The own process has ended, its output is held by another one."""
    walk.start(f"setsid sh -c '{walk.waits}' & exit 3")
    run = walk.rig.fire()
    walk.in_phase(run, "draining")
    walk.rig.kill9()
    if not walk.keeps:
        nothing_left(walk.tag)
    walk.rig.start()
    if walk.keeps:
        walk.in_phase(run, "draining")
        walk.go.touch()
    record = walk.one_record(run)
    assert record["exit_code"] == (3 if walk.keeps else None) and record["gone"]["state"] == "proven"
    assert walk.count_starts() == 1 and living(walk.tag) == []


@LOSS
def test_stopping(walk: Walk, loss: str) -> None:
    """SIGTERM is out, the grace period runs."""
    walk.start(f"trap '' TERM; {walk.waits}", killTimeout=2)
    run = walk.rig.fire()
    walk.rig.running(run)
    until(lambda: living(walk.tag), 5, "the trap is set")
    walk.rig.http("POST", f"/runs/{run}/cancel", {"requested_by": "ada"})
    until(lambda: walk.rig.run(run)["stop"]["signalled_at"], 5, "the graceful step")
    walk.rig.kill9()
    walk.rig.start()
    record = walk.one_record(run)
    assert record["outcome"] == ("cancelled" if walk.keeps else "unknown")
    assert record["gone"]["state"] == "proven" and walk.count_starts() == 1
    nothing_left(walk.tag)


@LOSS
def test_confirming(walk: Walk, loss: str) -> None:
    """SIGKILL is ordered and the supervisor cannot act, because its cgroup is frozen; later it can."""
    walk.start(walk.waits, killTimeout=0)
    run = walk.rig.fire()
    pid = walk.rig.running(run)
    freezer = cgroup_of(pid)
    if freezer is None:
        pytest.skip("no writable cgroup v2 here")
    (freezer / "cgroup.freeze").write_text("1")
    until(lambda: "frozen 1" in (freezer / "cgroup.events").read_text(), 5, "it is frozen")
    walk.rig.http("POST", f"/runs/{run}/cancel")
    walk.in_phase(run, "confirming")
    walk.rig.kill9()
    with contextlib.suppress(OSError):
        (freezer / "cgroup.freeze").write_text("0")
    walk.rig.start()
    record = walk.one_record(run)
    assert record["outcome"] == ("cancelled" if walk.keeps else "unknown") and walk.count_starts() == 1
    assert record["gone"]["state"] == "proven"
    nothing_left(walk.tag)


@LOSS
def test_while_held_output_is_waited_for(walk: Walk, loss: str) -> None:
    """It is cancelled and has ended; somebody outside still has its pipe when the daemon dies."""
    outside = Outside()
    try:
        walk.start("exec " + shlex.join(outside.giving(1)))
        run = walk.rig.fire()
        outside.take()
        walk.rig.http("POST", f"/runs/{run}/cancel")
        walk.in_phase(run, "ended")
        walk.rig.kill9()
        walk.rig.start()
    finally:
        outside.close()
    record = walk.one_record(run)
    assert record["outcome"] == ("cancelled" if walk.keeps else "unknown") and walk.count_starts() == 1
    assert record["gone"]["state"] == "proven"


@LOSS
def test_between_end_and_record(walk: Walk, loss: str) -> None:
    """It has ended, and the ledger cannot take its record: who is kept is recorded later as it ended."""
    walk.start(walk.waits)
    run = walk.rig.fire()
    walk.rig.running(run)
    until(lambda: not walk.rig.run(run)["finished_at"], 1)
    with walk.locked_ledger():
        walk.go.touch()
        walk.in_phase(run, "ended")
        walk.rig.kill9()
    walk.rig.start()
    record = walk.one_record(run)
    assert record["exit_code"] == (7 if walk.keeps else None)
    assert record["outcome"] == ("failure" if walk.keeps else "unknown")
    assert record["gone"]["state"] == "proven" and walk.count_starts() == 1


@pytest.mark.parametrize("loss", ["keep"])
def test_between_record_and_farewell(walk: Walk, loss: str) -> None:
    """It is recorded, and its supervisor does not know that yet: what it has left is no second run."""
    walk.start(walk.waits)
    run = walk.rig.fire()
    walk.rig.running(run)
    walk.rig.kill9()
    walk.go.touch()
    until(lambda: runtime(walk.folder) == [f"{run}.end"], 5, "word is left")
    story = walk.folder / "state" / "default" / "kept" / f"{run}.end"
    shutil.copy(story, walk.folder / "copy")
    walk.rig.start()
    walk.rig.recorded(run)
    until(lambda: runtime(walk.folder) == [], 5, "it is taken away")
    walk.rig.kill9()
    shutil.copy(walk.folder / "copy", story)
    walk.rig.start()
    assert walk.one_record(run)["exit_code"] == 7 and walk.count_starts() == 1


@LOSS
def test_three_instances_give_three_records(walk: Walk, loss: str) -> None:
    """Of one job that may overlap."""
    walk.start(walk.waits)
    runs = [walk.rig.fire() for _ in range(3)]
    for run in runs:
        walk.rig.running(run)
    walk.rig.kill9()
    walk.rig.start()
    if walk.keeps:
        assert sorted(walk.rig.job()["runs"]) == sorted(runs)
    walk.go.touch()
    for run in runs:
        assert walk.rig.recorded(run)["exit_code"] == (7 if walk.keeps else None)
    for _ in range(2):
        assert sorted(r["id"] for r in walk.rig.runs()) == sorted(runs) and walk.count_starts() == 3
        walk.rig.kill9()
        walk.rig.start()


@pytest.mark.parametrize("loss", ["keep"])
def test_while_it_is_taken_over(walk: Walk, loss: str) -> None:
    """Each next daemon is killed while it starts, at another moment."""
    walk.start(walk.waits)
    run = walk.rig.fire()
    pid = walk.rig.running(run)
    for words in ("taken over", "jobs from", "Starting job"):
        walk.rig.kill9()
        size = len(walk.rig.log())
        walk.rig.spawn()
        if words == "Starting job":
            until(lambda: walk.rig.http_or_none("/version"), 20, "an answer")
        else:
            until(lambda words=words, size=size: words in walk.rig.log()[size:], 20, words)
    walk.rig.kill9()
    assert alive(pid)
    walk.rig.start()
    assert walk.rig.run(run)["adopted"] >= 3
    walk.go.touch()
    assert walk.one_record(run)["exit_code"] == 7 and walk.count_starts() == 1


@LOSS
def test_while_a_replacement_waits(walk: Walk, loss: str) -> None:
    """The victim goes; the one that waited was not started and is not started."""
    walk.start(f"trap '' TERM; {walk.waits}", killTimeout=2, concurrencyPolicy="Replace")
    victim = walk.rig.fire()
    walk.rig.running(victim)
    until(lambda: living(walk.tag), 5, "the trap is set")
    walk.rig.fire()
    until(lambda: walk.rig.run(victim)["phase"] == "stopping", 5, "it is being stopped")
    walk.rig.kill9()
    walk.rig.start()
    record = walk.rig.recorded(victim)
    assert record["outcome"] == ("replaced" if walk.keeps else "unknown") and walk.count_starts() == 1
    nothing_left(walk.tag)

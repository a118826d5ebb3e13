"""Moves of the store under attack: there and back, to a place that hangs, with a crash after them."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hung_fuse import HungMount
from nodes_kit import TTL, Nodes
from rig import NEVER, Rig, alive, always, until
from test_store_moves import elsewhere, move


def place(folder: Path, name: str, kind: str) -> dict[str, Any]:
    """A store in a folder of that name."""
    return {"path": str(folder / name), "topology": kind}


def moved(rig: Rig, jobs: list[dict[str, Any]], state: dict[str, Any]) -> None:
    rig.write(jobs, state=state)
    status, body = rig.http("POST", "/reload")
    assert status == 200, body


DYING = """
import os, signal, sys
from sexton.daemon import bringing
from sexton.store.inuse import StoreInUse
move = StoreInUse.move

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def moved(self, *arguments):
    if os.environ["STEP"] == "before":
        die()
    left = move(self, *arguments)
    if os.environ["STEP"] == "after":
        die()
    return left

if os.environ["STEP"] == "early":
    bringing.Bringing.bring = die
StoreInUse.move = moved
from sexton.cli.main import main
sys.exit(main())
"""
KINDS = pytest.mark.parametrize("kind", ["single-node", "shared"])


@KINDS
def test_there_and_back_with_a_run_alive(rig: Rig, tmp_path: Path, kind: str) -> None:
    """A -> B -> A within a second: the run is recorded in both, and the daemon works in A as before."""
    job = {"name": "j", "command": "sleep 4", "schedule": NEVER, "captureStdout": True, "concurrencyPolicy": "Allow"}
    a, b = place(tmp_path, "a", kind), place(tmp_path, "b", kind)
    rig.start([job], state=a)
    run = rig.fire()
    rig.running(run)
    for state in (b, a):
        moved(rig, [job], state)
        rig.logged("the store has moved")
    second = rig.fire()
    assert rig.recorded(run)["outcome"] == rig.recorded(second)["outcome"] == "success"
    rig.stop()
    for state, known in ((b, {run}), (a, {run, second})):
        rig.write([job], state=state)
        rig.start()
        shown = {one["id"]: one["outcome"] for one in rig.http("GET", "/runs")[1]["runs"]}
        assert shown == dict.fromkeys(known, "success"), state
        rig.stop()


@KINDS
def test_two_moves_with_a_run_alive(rig: Rig, tmp_path: Path, kind: str) -> None:
    """A -> B -> C: each of the three has the true end of the run."""
    job = {"name": "j", "command": "sleep 3", "schedule": NEVER}
    a, b, c = (place(tmp_path, name, kind) for name in "abc")
    rig.start([job], state=a)
    run = rig.fire()
    rig.running(run)
    for state in (b, c):
        moved(rig, [job], state)
    assert rig.recorded(run)["outcome"] == "success"
    rig.stop()
    for state in (a, b, c):
        rig.write([job], state=state)
        rig.start()
        assert rig.run(run)["outcome"] == "success", state
        rig.stop()


@KINDS
def test_a_pause_that_ended_elsewhere_stays_ended(rig: Rig, tmp_path: Path, kind: str) -> None:
    """Paused in A, resumed in B, back to A: resumed. And the other way round."""
    jobs = [{"name": name, "command": "true", "schedule": NEVER} for name in "jk"]
    a, b = place(tmp_path, "a", kind), place(tmp_path, "b", kind)
    rig.start(jobs, state=a)
    for name in "jk":
        assert rig.http("POST", f"/jobs/{name}/pause", {"durationSeconds": 3600, "note": "first"})[0] == 200
    moved(rig, jobs, b)
    assert rig.http("POST", "/jobs/j/resume")[0] == 200
    assert rig.http("POST", "/jobs/k/pause", {"durationSeconds": 7200, "note": "second"})[0] == 200
    moved(rig, jobs, a)
    for again in (False, True):
        if again:
            rig.stop()
            rig.start()
        assert rig.job("j")["paused"] is None
        assert rig.job("k")["paused"]["note"] == "second"


@KINDS
def test_a_retry_waits_in_one_store_only(rig: Rig, tmp_path: Path, kind: str) -> None:
    """Nothing runs when the store moves, a retry waits: it waits on in the new store, and a start on the one that was
    left does not make it a second time. It comes along on the way back."""
    retry = {"maximumRetries": 1, "initialDelay": 3000, "maximumDelay": 3000, "manual": True}
    jobs = [{"name": "j", "command": "exit 3", "schedule": NEVER, "onFailure": {"retry": retry}}]
    old, new = place(tmp_path, "old", kind), place(tmp_path, "new", kind)
    rig.start(jobs, state=old)
    rig.recorded(rig.fire())
    until(lambda: rig.job()["retry"] is not None, what="the retry that waits")
    moved(rig, jobs, new)
    until(lambda: not rig.http("GET", "/health")[1]["stores_left"], what="nothing more is owed")
    for state, waits in ((old, False), (new, True)):
        rig.stop()
        rig.write(jobs, state=state)
        rig.start()
        until(lambda waits=waits: (rig.job()["retry"] is not None) is waits, what=f"what waits in {state}")
    moved(rig, jobs, old)
    rig.stop()
    rig.start()
    until(lambda: rig.job()["retry"] is not None, what="the retry, taken up again")
    assert "after the move of the store" not in rig.log()


@KINDS
def test_a_place_that_hangs_holds_nothing_up(rig: Rig, tmp_path: Path, kind: str) -> None:
    """A reload names a folder on a mount that never answers: the reload is refused within the bounds of a store, the
    daemon goes on meanwhile as if nothing were, takes up the next configuration, and ends when it is told to."""
    try:
        mount = HungMount(tmp_path / "hung")
    except OSError:
        pytest.skip("no file system may be mounted here")
    try:
        job = {"name": "j", "command": "true", "schedule": NEVER}
        rig.start([job], state=place(tmp_path, "a", kind))
        rig.write([job], state=place(mount.folder, "b", kind))
        began = time.monotonic()
        answer: list[Any] = []
        asking = threading.Thread(target=lambda: answer.append(rig.http("POST", "/reload")), daemon=True)
        asking.start()
        assert mount.asked.wait(10)
        while asking.is_alive() and time.monotonic() < began + 45:
            at = time.monotonic()
            assert rig.http("GET", "/version", timeout=3)[0] == 200
            assert time.monotonic() - at < 1.0
            asking.join(0.05)
        assert answer and answer[0][0] == 422, answer
        assert "cannot be moved to" in json.dumps(answer[0][1])
        moved(rig, [job, {**job, "name": "k"}], place(tmp_path, "a", kind))
        assert rig.recorded(rig.fire("k"))["outcome"] == "success"
        rig.signal(signal.SIGTERM)
        until(lambda: not alive(rig.pid), 10, "its end")  # but for the thread that the kernel cannot end
    finally:
        mount.close()


def test_a_slot_survives_there_and_back(folder_nodes: Nodes) -> None:
    """A -> B -> A with a run alive that has the slot: nobody gets in through either store, before and after; the slot
    is free in both when the run is over, and the node is known in A all the time."""
    job = folder_nodes.job(seconds=12)
    a, b = folder_nodes.start(job)
    assert a.start_job()[0] == 200
    until(lambda: folder_nodes.marked("start"), what="a's run")
    run = a.live()[0]
    assert move(a, job, elsewhere(folder_nodes))[0] == 200
    assert b.start_job()[0] == 409
    assert move(a, job, folder_nodes.section())[0] == 200
    until(lambda: a.slot()["held"], what="the slot is a's")
    ended = until(lambda: b.start_job()[0] == 200 and time.time(), 20, what="b's turn")
    (end,) = [at for _, what, at in folder_nodes.marked() if what == "end"]
    assert ended >= end
    assert a.recorded(run)["outcome"] == "success"
    for _ in range(40):
        names = {node["name"] for node in b.http("GET", "/nodes")[1]["nodes"] if node["state"] == "alive"}
        assert names == {"a", "b"}
        time.sleep(0.05)


@KINDS
@pytest.mark.parametrize(("step", "side"), [("before", "new"), ("after", "new"), ("before", "old"), ("after", "old")])
def test_a_crash_in_the_middle_of_a_move(rig: Rig, tmp_path: Path, kind: str, step: str, side: str) -> None:
    """kill -9 right before or after the switch, and a start on either store: what ran is recorded once, what waited
    runs once, the retry is made once, the pause holds, and the @reboot job does not run again."""
    marks = tmp_path / "marks"

    def job(name: str, then: str = "", **more: Any) -> dict[str, Any]:
        return {"name": name, "command": f"echo {name} >> {marks}{then}", "schedule": NEVER, **more}

    def count() -> dict[str, int]:
        return dict(Counter(marks.read_text().split())) if marks.exists() else {}

    retry = {"maximumRetries": 1, "initialDelay": 2, "maximumDelay": 2, "manual": True}
    jobs = [job("runs", "; sleep 60"), job("waits", "; sleep 60", pool="p", concurrencyPolicy="Allow"), job("paused"),
            job("fails", "; exit 3", onFailure={"retry": retry}), job("boots", schedule="@reboot")]
    pools = {"p": {"slots": 1}}
    rig.command, rig.environment["STEP"] = ("-c", DYING), step
    rig.start(jobs, state=place(tmp_path, "old", kind), pools=pools)
    ran = [rig.fire("runs"), rig.http("POST", "/jobs/waits/start")[1]["run"]]
    until(lambda: count() == {"boots": 1, "runs": 1, "waits": 1}, what="what runs")
    rig.http("POST", "/jobs/waits/start")
    failed = rig.fire("fails")
    assert rig.http("POST", "/jobs/paused/pause", {"note": "why"})[0] == 200
    rig.recorded(failed)
    rig.write(jobs, state=place(tmp_path, "new", kind), pools=pools)
    with contextlib.suppress(OSError):
        rig.http("POST", "/reload")
    assert rig.wait(10) == -signal.SIGKILL
    rig.command = ("-m", "sexton")
    rig.write(jobs, state=place(tmp_path, side, kind), pools=pools)
    rig.start()
    until(lambda: count() == {"boots": 1, "runs": 1, "waits": 2, "fails": 2}, what="the one that waited, and the retry")
    assert [rig.recorded(run)["outcome"] for run in ran] == ["unknown", "unknown"]
    assert rig.job("paused")["paused"]["note"] == "why"
    always(lambda: count() == {"boots": 1, "runs": 1, "waits": 2, "fails": 2}, 1.0, "nothing is started twice")


@KINDS
def test_a_crash_before_anything_was_brought_is_not_silent(rig: Rig, tmp_path: Path, kind: str) -> None:
    """The next daemon is started on the new store, as the configuration says, and tells what it cannot know; the one
    after it does not."""
    rig.command, rig.environment["STEP"] = ("-c", DYING), "early"
    rig.start([{"name": "j", "command": "true", "schedule": NEVER}], state=place(tmp_path, "old", kind))
    rig.write([{"name": "j", "command": "true", "schedule": NEVER}], state=place(tmp_path, "new", kind))
    with contextlib.suppress(OSError):
        rig.http("POST", "/reload")
    assert rig.wait(10) == -signal.SIGKILL
    rig.command = ("-m", "sexton")
    rig.start()
    assert str(tmp_path / "old") in rig.logged("ERROR", "died while it moved the store")
    rig.stop()
    rig.start()
    assert rig.log().count("died while it moved the store") == 1


@pytest.mark.parametrize("by", ["old", "new"])
@pytest.mark.parametrize("how", ["cancel", "replace"])
def test_a_peer_on_either_store_reaches_the_run(nodes: Nodes, by: str, how: str) -> None:
    """A run lives through a move: a peer that has not moved and one that has see it, and cancel or replace it; its
    end is the same for both. Its output can be read all the time."""
    job = nodes.job("Replace", seconds=60, captureStdout=True)
    job["command"] = "echo told; " + job["command"]
    a, b = nodes.start(job)
    c = nodes.node("c")
    c.state = elsewhere(nodes)
    c.start_on(job)
    assert a.start_job()[0] == 200
    until(lambda: nodes.marked("start", "a"), what="a's run")
    run = a.live()[0]
    assert move(a, job, elsewhere(nodes))[0] == 200
    until(lambda: a.slot()["held"], what="the slot in the new store")
    assert a.http("GET", "/health")[1]["stores_left"][0]["runs"] == [run]
    assert "\nsexton_stores_left 1.0\n" in a.http("GET", "/metrics")[1]
    for one in (a, b, c):
        until(lambda one=one: one.run(run)["phase"] == "running", what=f"the run, as {one.name} sees it")
    assert "told" in a.http("GET", f"/runs/{run}/log")[1]
    peer = b if by == "old" else c
    if how == "cancel":
        until(lambda: peer.http("POST", f"/runs/{run}/cancel")[0] == 202, TTL, "a is known to the peer")
    else:
        assert peer.start_job()[0] in (200, 202)
        until(lambda: nodes.marked("start", peer.name), 2 * TTL, "the run that takes its place")
    for one in (a, b, c):
        until(lambda one=one: one.run(run)["phase"] == "recorded", what=f"its end, as {one.name} sees it")
        assert one.run(run)["outcome"] == ("cancelled" if how == "cancel" else "replaced")
    assert "told" in a.http("GET", f"/runs/{run}/log")[1]
    until(lambda: not a.http("GET", "/health")[1]["stores_left"], what="nothing more is owed")
    assert a.http("GET", "/health")[1]["ends_untold"] == 0
    figures = a.http("GET", "/metrics")[1]
    assert "\nsexton_stores_left 0.0\n" in figures and "\nsexton_untold_ends_total 0.0\n" in figures


@KINDS
def test_a_move_in_the_middle_of_everything(rig: Rig, tmp_path: Path, kind: str) -> None:
    """One run is being checked, one is being brought down, one waits for the run it replaces: each ends as it would
    have, once, and both stores say so."""
    deaf = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    jobs = [
        {"name": "checked", "command": "true", "schedule": NEVER, "verify": {"command": "sleep 3", "timeout": 20}},
        {"name": "cancelled", "command": deaf, "schedule": NEVER, "killTimeout": 2, "captureStdout": True},
        {"name": "replaced", "command": deaf, "schedule": NEVER, "killTimeout": 2, "captureStdout": True,
         "concurrencyPolicy": "Replace"},
    ]
    old, new = place(tmp_path, "old", kind), place(tmp_path, "new", kind)
    rig.start(jobs, state=old)
    want = {rig.fire("checked"): "success", rig.fire("cancelled"): "cancelled", rig.fire("replaced"): "replaced"}
    checked, cancelled, replaced = want
    until(lambda: rig.run(checked)["phase"] == "verifying", what="the check")
    for run in (cancelled, replaced):
        until(lambda run=run: "up" in rig.http("GET", f"/runs/{run}/log")[1], what="a run that hears no SIGTERM")
    assert rig.http("POST", f"/runs/{cancelled}/cancel")[0] == 202
    status, body = rig.http("POST", "/jobs/replaced/start")
    assert status in (200, 202), body
    heir = body["run"]
    moved(rig, jobs, new)
    assert rig.run(checked)["phase"] == "verifying" and rig.run(cancelled)["phase"] == "stopping"
    for run, outcome in want.items():
        assert rig.recorded(run)["outcome"] == outcome
    until(lambda: rig.run(heir)["phase"] == "running", what="the run that takes its place")
    assert rig.http("POST", f"/runs/{heir}/cancel?wait=10")[0] == 200
    want[heir] = "cancelled"
    until(lambda: not rig.http("GET", "/health")[1]["stores_left"], what="nothing more is owed")
    for state in (new, old):
        rig.stop()
        rig.write(jobs, state=state)
        rig.start()
        assert {run["id"]: run["outcome"] for run in rig.http("GET", "/runs")[1]["runs"]} == want, state

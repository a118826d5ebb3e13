"""What a job may choose about its end: whose end the grace period waits for (`killWaitsFor`), when a run that nobody
stops has ended (`endsWhen`), and what becomes of what it leaves behind (`leftovers`)."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
from page_kit import Marks, cancel, job
from rig import Rig, alive, living, new_tag, until


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path)


def end(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(alive, pids)), 5, "their end")


@pytest.mark.parametrize(("waits_for", "words"), [("process", ["ready"]), ("tree", ["ready", "tidied"])])
def test_whose_end_the_grace_period_waits_for(rig: Rig, marks: Marks, waits_for: str, words: list[str]) -> None:
    """The shell dies of SIGTERM at once. By default that ends its child's tidying up; with `tree` the child has the
    whole grace for it, and the wait ends when the last process has."""
    tidy = f"sleep 0.5; {marks.say('tidied')}; exit 0"
    child = f"trap '{tidy}' TERM; {marks.say('ready')}; while :; do sleep 0.05; done"
    command = f"sh -c {shlex.quote(child)}; true"
    rig.start([job("j", command, killTimeout=8, killWaitsFor=waits_for)])
    run = rig.fire()
    marks.wait("ready")
    record = cancel(rig, run)
    assert marks.words() == words and record["gone"]["state"] == "proven"
    assert record["exit"]["signal"] == signal.SIGTERM and record["duration"] < 7


def test_the_grace_period_of_a_tree_has_the_same_bound(rig: Rig) -> None:
    """A child that ignores SIGTERM is killed when killTimeout is over."""
    tag = new_tag()
    rig.start([job("j", f"sh -c 'trap \"\" TERM; sleep {tag}; sleep {tag}' & exec sleep {tag}", killTimeout=0.6,
                   killWaitsFor="tree")])
    run = rig.fire()
    until(lambda: len(living(tag)) >= 3, 10, "the tree")
    record = cancel(rig, run)
    assert record["gone"]["state"] == "proven" and living(tag) == []
    assert record["exit"]["signal"] == signal.SIGTERM and record["duration"] >= 0.6


def test_a_run_may_end_with_its_process(rig: Rig) -> None:
    """endsWhen: exit. A child that holds the captured output keeps nothing running: what was written by then is kept,
    the run is a success at once, the child lives on and is named."""
    tag = new_tag()
    rig.start([job("j", f"echo before; setsid sleep {tag} & exit 0", captureStdout=True, endsWhen="exit",
                   concurrencyPolicy="Forbid")], state={"path": str(rig.folder / "state")})
    run = rig.fire()
    record = rig.recorded(run, 10)
    left = living(tag)
    assert (record["outcome"], record["exit_code"]) == ("success", 0) and record["stop"] is None and len(left) == 1
    assert [found["pid"] for found in record["gone"]["survivors"]] == left
    assert rig.http("GET", f"/runs/{run}/log") == (200, "before\n")
    again = rig.fire()
    assert rig.recorded(again, 10)["outcome"] == "success", "Forbid has let it start"
    end(living(tag))


@pytest.mark.parametrize("leftovers", ["keep", "report", "kill"])
def test_what_becomes_of_what_is_left_behind(rig: Rig, leftovers: str) -> None:
    """Kept and named in the record; or told in the log as well; or ended before the place is free, which the record
    says, too. The run stays the success that it was."""
    tag = new_tag()
    rig.start([job("j", f"setsid sleep {tag} >/dev/null 2>&1 & exit 0", leftovers=leftovers)])
    record: Any = rig.recorded(rig.fire(), 10)
    left = living(tag)
    assert (record["outcome"], record["exit_code"]) == ("success", 0) and record["stop"] is None
    if leftovers == "kill":
        assert left == [] and record["gone"]["state"] == "proven"
        assert rig.logged("WARNING", "they are ended (leftovers: kill)")
        return
    assert len(left) == 1 and record["gone"]["state"] == "survivors"
    assert [found["pid"] for found in record["gone"]["survivors"]] == left
    rig.logged("outcome:", record["id"])
    assert ("left 1 process(es) behind" in rig.log()) is (leftovers == "report")
    end(left)


def test_a_timeout_that_is_meant_is_told_from_a_success_by_its_stop(rig: Rig) -> None:
    """`failsWhen.timeout: false`: the run is a success, and its record says who ended it and with which code."""
    rig.start([job("j", "exec sleep 60", executionTimeout=0.3, failsWhen={"timeout": False})])
    record = rig.recorded(rig.fire())
    assert (record["outcome"], record["exit_code"], record["fail_reason"]) == ("success", -100, None)
    assert record["stop"]["cause"] == "timeout" and record["gone"]["state"] == "proven"

"""Resource limits and monitoring as a user sees them: a file, the API, the processes."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import rig as rig_module
from rig import NEVER, Rig, living, new_tag, until

from sexton.execution.controllers import here
from sexton.model.limits import Limit

MIB = 2**20
EAT = [sys.executable, "-S", "-c", "b = []\nwhile True: b.append(bytearray(b'x') * (1 << 20))"]


def can(*limits: Limit) -> bool:
    """Whether this machine lets us make a cgroup for each of them."""
    names = {Limit.CPU: "cpu", Limit.MEMORY: "memory", Limit.PROCESSES: "pids"}
    offered: set[str] = set()
    for each in here():
        if os.access(each.own, os.W_OK):
            offered |= each.controllers
            if each.version == 2:
                offered |= set(Path(each.own, "cgroup.controllers").read_text().split())
    return {names[limit] for limit in limits} <= offered


def needs(*limits: Limit) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not can(*limits), reason="no cgroup for it may be made here")


def job(name: str = "j", command: Any = "exit 0", **options: Any) -> dict[str, Any]:
    return {"name": name, "schedule": NEVER, "captureStderr": False, "command": command, **options}


def cgroups_of(pid: int) -> list[str]:
    """Directories that carry the daemon's identity, in all hierarchies."""
    return [
        path for each in here() for path in map(str, Path(each.own).rglob(f"sexton-{pid}-*")) if Path(path).is_dir()
    ]


@needs(Limit.MEMORY)
def test_a_run_at_its_memory_cap(rig: Rig) -> None:
    """Killed whole, without a graceful step; the shell that would carry on and swallow the failure does not; the record
    says it exactly, under a lenient failsWhen, too; and so do the metrics."""
    tag = new_tag()
    command = f"trap 'echo no > trapped' TERM; setsid sleep {tag} & " \
              f"{sys.executable} -S -c \"{EAT[3]}\" || true; sleep {tag}"
    rig.start([job("j", command, resourceLimits={"memory": "48M"}, failsWhen={"nonzeroReturn": False},
                   killTimeout=60, captureStdout=True)])
    record = rig.recorded(rig.fire())
    assert (record["outcome"], record["exit_code"]) == ("failure", -9)
    assert record["fail_reason"] == "memory limit exceeded (48 MiB)" and record["duration"] < 10
    assert record["stop"]["cause"] == "limits" and record["stop"]["signalled_at"] is None
    assert record["gone"]["state"] == "proven" and living(tag) == [] and not (rig.folder / "trapped").exists()
    limits = record["limits"]
    assert limits["enforced"] and limits["memory_exceeded"] and limits["memory_bytes"] == 48 * MIB
    assert limits["unenforced"] == [] and limits["by"]["memory"] == limits["mechanism"] != "none"
    text = rig.http("GET", "/metrics")[1]
    assert 'sexton_job_memory_limit_exceeded_total{job_name="j"} 1.0' in text
    (cap,) = re.findall(r'^sexton_job_memory_limit_bytes\{job_name="j"\} (.+)$', text, re.MULTILINE)
    assert float(cap) == 48 * MIB
    assert 'sexton_job_last_run_limits_enforced{job_name="j"} 1.0' in text


@needs(Limit.MEMORY)
def test_the_main_process_itself_at_the_cap(rig: Rig) -> None:
    """The simplest case: one process, the kernel's own kill."""
    rig.start([job("j", EAT, resourceLimits={"memory": "32M"})])
    record = rig.recorded(rig.fire())
    assert record["fail_reason"] == "memory limit exceeded (32 MiB)" and record["exit_code"] == -9
    assert record["exit"]["signal"] == 9


@needs(Limit.MEMORY)
def test_forbid_lets_the_next_run_start_after_the_cap(rig: Rig) -> None:
    """The run has ended when it is gone, and the next one begins anew with all of its memory."""
    rig.start([job("j", EAT, resourceLimits={"memory": "32M"}, concurrencyPolicy="Forbid")])
    for _ in range(3):
        assert rig.recorded(rig.fire())["fail_reason"] == "memory limit exceeded (32 MiB)"


@needs(Limit.MEMORY, Limit.PROCESSES)
def test_a_cancel_takes_the_pages_steps(rig: Rig) -> None:
    """A run in its own cgroup gets SIGTERM and its grace like any; the forced step reaches who left the session."""
    tag, done = new_tag(), rig.folder / "done"
    polite = f"trap 'sleep 0.3; echo yes > {done}; exit 4' TERM; setsid sleep {tag} & sleep {tag} & wait; wait"
    rig.start([job("j", polite, resourceLimits={"memory": "64M", "processes": 20}, killTimeout=10)])
    run = rig.fire()
    until(lambda: len(living(tag)) >= 3, what="its processes")
    rig.http("POST", "/jobs/j/cancel")
    record = rig.recorded(run)
    assert record["outcome"] == "cancelled" and record["exit_code"] == 4 and done.exists()
    assert record["gone"]["state"] == "proven" and living(tag) == []
    assert record["limits"]["enforced"] and not record["limits"]["memory_exceeded"]


@needs(Limit.CPU, Limit.MEMORY, Limit.PROCESSES)
def test_all_caps_and_nothing_is_left(rig: Rig) -> None:
    """A timeout of a capped run, runs in turn, a stop of the daemon: no cgroup of it is left in any hierarchy."""
    caps = {"cpu": 0.5, "memory": "64M", "processes": 10, "required": True}
    rig.start([job("slow", "exec sleep 600", resourceLimits=caps, executionTimeout=0.3, killTimeout=1),
               job("quick", "exit 3", resourceLimits=caps)])
    slow, quick = rig.fire("slow"), [rig.fire("quick") for _ in range(10)]
    assert rig.recorded(slow)["exit_code"] == -100
    assert {rig.recorded(run)["exit_code"] for run in quick} == {3}
    view = rig.job("slow")
    assert view["limits"] == {"cpu": 0.5, "memory_bytes": 64 * MIB, "processes": 10, "required": True}
    assert not [path for path in cgroups_of(rig.pid) for entry in os.scandir(path) if entry.name.startswith("l")]
    assert len(cgroups_of(rig.pid)) >= 1
    pid = rig.pid
    assert rig.stop() == 0
    assert cgroups_of(pid) == []


def noted(ledger: Path, word: str) -> bool:
    """Whether a body in the ledger has the word: a note of a live run is written beside the run, not before it."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        return any(word in str(row) for row in connection.execute("select body from run"))


@needs(Limit.MEMORY, Limit.PROCESSES)
def test_kill_9_leaves_no_limit_cgroup_after_the_next_start(rig: Rig) -> None:
    """The run dies with the daemon; what is left of its cgroups goes with the next start; the run is known."""
    tag = new_tag()
    rig.start([job("j", f"setsid sleep {tag} & exec sleep {tag}", resourceLimits={"memory": "64M", "processes": 9})],
              state={"path": str(rig.folder / "state")})
    run = rig.fire()
    until(lambda: len(living(tag)) == 2, what="its processes")
    ledger = rig.folder / "state" / "default" / "ledger.sqlite3"
    until(lambda: noted(ledger, "memory_bytes"), what="the note of what was enforced")
    pid = rig.pid
    rig.kill9()
    rig.start()
    assert living(tag) == [] and cgroups_of(pid) == []
    record = rig.recorded(run)
    assert record["outcome"] == "unknown" and record["gone"]["state"] == "proven"
    assert record["limits"]["enforced"] and record["limits"]["memory_bytes"] == 64 * MIB


def test_a_run_without_limits_has_none(rig: Rig) -> None:
    """Nothing is claimed and nothing is set up for a job that asks for nothing."""
    rig.start([job("j")])
    record = rig.recorded(rig.fire())
    assert record["limits"] is None and rig.job()["limits"] is None and rig.job()["monitorResources"] is None
    assert record["resources"]["scope"] == "process"
    assert "resource limits:" not in rig.log()


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[Rig]:
    """A daemon of an ordinary user, who may make no cgroup."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() == 0 and setpriv is None:
        pytest.skip("needs setpriv, to run a daemon as an ordinary user")
    for made in rig_module.rig(tmp_path):
        if os.geteuid() == 0:
            tmp_path.chmod(0o777)
            # It keeps the right to read what is root's: the interpreter may stand in a closed home.
            made.prefix = (str(setpriv), "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps",
                           "+dac_read_search", "--ambient-caps", "+dac_read_search")
            made.environment = {"HOME": "/"}
        yield made


def test_without_cgroups_it_runs_says_so_and_does_what_it_can(unprivileged: Rig) -> None:
    """An ordinary user's daemon: each process is bounded by an rlimit, the record claims no more than that, one line
    warns; `required` refuses."""
    rig = unprivileged
    script = "try: b = bytearray(200 << 20); print('had', flush=True)\nexcept MemoryError: print('refused', flush=True)"
    command = [sys.executable, "-S", "-c", f"import os\n{script}\nos._exit(5)"]
    rig.start([job("j", command, resourceLimits={"memory": "64M", "cpu": 1, "processes": 50}, captureStdout=True),
               job("strict", f"touch {rig.folder}/strict", resourceLimits={"memory": "64M", "required": True})])
    if "memory by cgroup" in rig.log():
        pytest.skip("an ordinary user may make cgroups here")
    run = rig.fire()
    record, limits = rig.recorded(run), rig.recorded(run)["limits"]
    assert record["exit_code"] == 5 and rig.http("GET", f"/runs/{run}/log")[0] in (200, 404)
    assert "refused" in rig.log()
    assert not limits["enforced"] and sorted(limits["unenforced"]) == ["cpu", "memory", "processes"]
    assert limits["by"] == {"cpu": "none", "memory": "rlimit", "processes": "rlimit"} and limits["mechanism"] == "none"
    assert limits["reason"] and not limits["refused"]
    rig.recorded(rig.fire())
    rig.logged("WARNING", "Job j: resource limits are not enforced as asked for", "memory by rlimit")
    assert len(re.findall("Job j: resource limits are not enforced", rig.log())) == 1
    strict = rig.recorded(rig.fire("strict"))
    assert (strict["outcome"], strict["exit_code"]) == ("failure", 127)
    assert re.fullmatch(r"resource limits could not be enforced: .+ \(resourceLimits\.required is set\)",
                        strict["fail_reason"])
    assert strict["limits"]["refused"] and strict["limits"]["unenforced"] == ["memory"]
    assert not (rig.folder / "strict").exists() and strict["gone"]["witnesses"] == ["never-started"]


def test_monitoring_live_and_recorded(rig: Rig) -> None:
    """CPU seconds, memory and the number of processes of the whole tree, while it runs and after; a short history;
    the sum in the record has the children that nobody waited for."""
    busy = ("import os, time\nb = bytearray(b'x') * (30 << 20)\nwhile time.process_time() < 0.6: pass\n"
            "open(f'done-{os.getpid()}', 'w').close()\ntime.sleep(600)")
    (rig.folder / "busy.py").write_text(busy)
    python = f"exec {sys.executable} -S busy.py"
    rig.start([job("j", f"(setsid sh -c '{python}' &) ; {python}", monitorResources={"interval": 0.1, "history": 5},
                   killTimeout=1)])
    run = rig.fire()

    def spent() -> Any:
        found = rig.job()["running_resources"] if len(list(rig.folder.glob("done-*"))) == 2 else None
        return found if found and found["cpu_seconds"] > 1.1 else None

    live = until(spent, 20, "both to have used their share and to rest")
    assert live["instances"] == 1 and 60 * MIB < live["rss_bytes"] < 200 * MIB and live["processes"] >= 2
    answer = rig.http("GET", "/jobs/j/resources")[1]
    assert answer["monitored"] and answer["interval"] == 0.1 and answer["live"][0]["run"] == run
    samples = answer["live"][0]["samples"]
    assert len(samples) == 5 and all(a["cpu_seconds"] <= b["cpu_seconds"] and a["at"] < b["at"]
                                     for a, b in pairwise(samples))
    rig.http("POST", "/jobs/j/cancel")
    used = rig.recorded(run)["resources"]
    assert used["scope"] == "tree" and 1.1 < used["cpu_seconds"] < 2.5 and used["looks"] >= 5
    assert used["max_rss_bytes"] >= live["rss_bytes"] - MIB and used["max_processes"] >= 2
    again = rig.http("GET", "/jobs/j/resources")[1]
    assert again["live"] == [] and again["runs"][0]["resources"] == used
    assert rig.http("GET", "/jobs/j/runs")[1]["stats"]["last_cpu_seconds"] == used["cpu_seconds"]
    assert rig.job()["running_resources"] is None


def test_monitoring_starts_nothing_later(rig: Rig) -> None:
    """A hundred monitored runs at once, shorter than an interval: each is recorded with the CPU time it used."""
    rig.start([job("j", "exit 0", monitorResources=True)])
    began = time.monotonic()
    records = [rig.recorded(run) for run in [rig.fire() for _ in range(100)]]
    assert time.monotonic() - began < 20
    assert all(record["resources"]["scope"] == "tree" and 0 < record["resources"]["cpu_seconds"] < 1
               for record in records)


@needs(Limit.MEMORY)
def test_the_command_line_tells_it(rig: Rig) -> None:
    """`sexton show` of a run and of a job names caps, mechanism and what was reached."""
    import subprocess

    rig.start([job("j", EAT, resourceLimits={"memory": "32M", "processes": 7}, monitorResources=True)])
    run = rig.fire()
    rig.recorded(run)

    def show(what: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "sexton", "show", what, "--url", f"http://127.0.0.1:{rig.port}"],
            capture_output=True, text=True, check=True).stdout

    text = show(run)
    assert "memory limit exceeded (32 MiB)" in text and "ended at its limit" in text
    assert re.search(r"limit memory +32 MiB, by its cgroup", text) and "the memory cap was reached" in text
    assert re.search(r"limits +32 MiB, 7 processes", show("j"))

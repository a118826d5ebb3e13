"""The system refuses processes, memory, descriptors or room on the disk: each costs one failed run with its reason,
never the daemon, never a record; when the shortage is over, the next run works."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from probes import children, named, zombies
from rig import NEVER, Rig, alive, until

from sexton.doctor.limits import v1_directory
from sexton.execution.sizing import MINIMUM

JOB = {"name": "j", "schedule": NEVER, "concurrencyPolicy": "Allow", "command": ["echo", "out"], "captureStdout": True,
       "captureStderr": True}
SLOW = {**JOB, "name": "slow", "command": ["sleep", "3"]}


def fails_with(rig: Rig, number: int, *, name: str = "j", attempts: int = 30) -> Any:
    """Start runs until one cannot be started: its record, with the system's words for the error."""
    for _ in range(attempts):
        record = rig.recorded(rig.fire(name))
        if record["outcome"] == "failure":
            assert record["exit_code"] == 127 and os.strerror(number) in record["fail_reason"], record
            assert record["started_at"] is None and record["gone"]["state"] == "proven"
            return record
    raise AssertionError("every run has started")


def works(rig: Rig) -> None:
    """And every record that there should be is there."""
    until(lambda: rig.recorded(rig.fire())["outcome"] == "success", 15, "a run works again")
    assert alive(rig.pid) and rig.http("GET", "/health")[1]["running"] == 0
    until(lambda: zombies(rig.pid) == [], 10, "no zombies")
    assert "Traceback" not in rig.log()


@pytest.fixture
def pids_group(rig: Rig) -> Iterator[Path]:
    """A cgroup with the pids controller, in which the daemon is started: it binds root, too."""
    own = v1_directory("pids", Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
    if own is None:
        pytest.skip("no v1 pids controller here")
    group = Path(own) / f"sexton-test-{os.getpid()}-{rig.port}"
    try:
        group.mkdir()
    except OSError as refused:
        pytest.skip(f"no cgroup can be made: {refused}")
    yield group
    rig.close()
    until(lambda: not (group / "cgroup.procs").read_text(), 10, "everything in it has ended")
    group.rmdir()


def test_eagain_by_a_pids_limit(rig: Rig, pids_group: Path) -> None:
    """The service's own limit of tasks is reached, first for jobs, then for supervisors, too."""
    rig.popen = {"preexec_fn": lambda: (pids_group / "cgroup.procs").write_text("0")}
    rig.start([JOB, SLOW])
    works(rig)
    (pids_group / "pids.max").write_text((pids_group / "pids.current").read_text())
    runs = [rig.fire("slow") for _ in range(2 * MINIMUM)]
    records = [rig.recorded(run) for run in runs]
    refused = [record for record in records if record["outcome"] == "failure"]
    assert refused and all(os.strerror(errno.EAGAIN) in record["fail_reason"] for record in refused)
    fails_with(rig, errno.EAGAIN)
    (pids_group / "pids.max").write_text("max")
    works(rig)


def test_eagain_before_the_first_run(rig: Rig, pids_group: Path) -> None:
    """Not even a zygote can be made."""
    rig.popen = {"preexec_fn": lambda: (pids_group / "cgroup.procs").write_text("0")}
    rig.start([JOB])
    (pids_group / "pids.max").write_text((pids_group / "pids.current").read_text())
    fails_with(rig, errno.EAGAIN)
    (pids_group / "pids.max").write_text("max")
    works(rig)


def test_enomem(rig: Rig) -> None:
    """There is no memory for a process of the job; supervisors that are short of it are not used again. One that has
    not even enough to say so ends, and its run is `unknown`."""
    rig.start([JOB, SLOW])
    works(rig)
    zygotes = set(named(rig.pid, "sexton-zygote")) & set(children(rig.pid))
    for pid in set(named(rig.pid, "sexton-run")) - zygotes:
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
        resource.prlimit(pid, resource.RLIMIT_DATA, (1, 1))
    outcomes = {(r := rig.recorded(rig.fire()))["outcome"]: r["fail_reason"] for _ in range(2 * MINIMUM)}
    assert {"failure", "unknown"} & set(outcomes) and set(outcomes) <= {"success", "failure", "unknown"}, outcomes
    assert os.strerror(errno.ENOMEM) in outcomes.get("failure", os.strerror(errno.ENOMEM)), outcomes
    works(rig)


@pytest.mark.parametrize("descriptors", [30, 40, 64])
def test_emfile_from_the_start(rig: Rig, descriptors: int) -> None:
    """With a very low hard limit some runs of many cannot start, and say so; one at a time works."""
    rig.popen = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))}
    rig.start([JOB, SLOW])
    works(rig)
    runs = [rig.fire("slow") for _ in range(30)]
    records = [rig.recorded(run) for run in runs]
    refused = [record for record in records if record["outcome"] != "success"]
    assert refused, "some must have been refused"
    for record in refused:
        assert record["exit_code"] == 127 and os.strerror(errno.EMFILE) in record["fail_reason"], record
    works(rig)


@pytest.fixture
def small_state(rig: Rig) -> Path:
    """A file system of 2 MiB for the state, in a mount namespace of the daemon's."""
    state = rig.folder / "state"
    state.mkdir()
    prefix = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=2m none "$0" && exec "$@"', str(state))
    if os.geteuid() != 0 or shutil.which("unshare") is None or subprocess.run(
            [*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    rig.prefix = prefix
    return state


def test_enospc_for_records_and_output(rig: Rig, small_state: Path) -> None:
    """The state's disk is full: runs go on, their records are shown, health says degraded and why; with room again
    every record is on the disk, and a restart has them."""
    rig.start([JOB, {**JOB, "name": "much", "command": "head -c 1000000 /dev/zero | tr '\\0' x"}],
              state={"path": str(small_state)})
    works(rig)
    inside = Path(f"/proc/{rig.pid}/root{small_state}")
    filler = inside / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as full:
            assert full.errno == errno.ENOSPC
    runs = [rig.fire(name) for name in ("j", "much", "j")]
    for run in runs:
        until(lambda run=run: rig.run(run)["outcome"] == "success", 20, "it ran all the same")
    health = until(lambda: h if (h := rig.http("GET", "/health")[1])["store_problem"] else None, 10, "it is said")
    assert health["status"] == "degraded" and health["unwritten_records"] > 0
    filler.unlink()
    until(lambda: rig.http("GET", "/health")[1]["status"] == "ok", 20, "all is written")
    assert rig.http("GET", "/health")[1]["unwritten_records"] == 0
    known = {record["id"] for name in ("j", "much") for record in rig.runs(name)}
    assert set(runs) <= known
    works(rig)


def test_a_state_directory_that_goes_away(rig: Rig) -> None:
    """Deleted: a new ledger, said in the log. Replaced: health says so, runs go on, and their records are written when
    the old one is back."""
    state = rig.folder / "state"
    rig.start([{**JOB, "captureStdout": False, "captureStderr": False}], state={"path": str(state)})
    works(rig)
    shutil.rmtree(state)
    run = rig.fire()
    assert rig.recorded(run)["outcome"] == "success"
    rig.logged("was deleted while")
    assert rig.http("GET", "/health")[1]["status"] == "ok" and (state / "default" / "ledger.sqlite3").exists()
    state.rename(rig.folder / "away")
    (state / "default").mkdir(parents=True)
    (state / "default" / "ledger.sqlite3").write_bytes(b"")
    late = rig.fire()
    until(lambda: rig.run(late)["outcome"] == "success", 10, "it ran all the same")
    health = rig.http("GET", "/health")[1]
    assert health["status"] == "degraded" and "was replaced" in health["store_problem"]
    shutil.rmtree(state)
    (rig.folder / "away").rename(state)
    until(lambda: rig.http("GET", "/health")[1]["status"] == "ok", 15, "it takes records again")
    assert rig.stop() == 0
    rig.start()
    assert {run, late} <= {record["id"] for record in rig.runs()}

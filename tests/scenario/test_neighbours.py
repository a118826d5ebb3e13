"""Several daemons on one machine: the clearing up of one never touches what another one runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig as rig_module
from rig import NEVER, Rig, alive, living, new_tag

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture
def neighbour(tmp_path: Path) -> Iterator[Rig]:
    (tmp_path / "neighbour").mkdir()
    yield from rig_module.rig(tmp_path / "neighbour")


def job(tag: str) -> dict[str, object]:
    return {"name": "j", "schedule": NEVER, "captureStderr": False, "command": f"exec sleep {tag}"}


@pytest.mark.parametrize("prefix", [(), NAMESPACE], ids=["beside", "in a pid namespace"])
def test_a_start_leaves_the_runs_of_a_living_daemon(rig: Rig, neighbour: Rig, prefix: tuple[str, ...]) -> None:
    """What a start clears up is what dead daemons left. Whether another daemon lives is seen from another pid
    namespace, too, where its pid means nothing."""
    if prefix and (os.geteuid() != 0 or shutil.which(prefix[0]) is None
                   or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode):
        pytest.skip("a pid namespace needs root and unshare, and must be permitted")
    tag = new_tag()
    rig.start([job(tag)])
    run = rig.fire()
    pid = rig.running(run)
    neighbour.prefix = prefix
    neighbour.start([job(new_tag())])
    assert neighbour.http("GET", "/health")[1]["status"] == "ok"
    assert alive(pid) and rig.run(run)["phase"] == "running"
    again = rig.fire()
    rig.running(again)
    assert len(living(tag)) == 2
    rig.http("POST", "/jobs/j/cancel")
    assert rig.recorded(run)["outcome"] == "cancelled" and rig.recorded(run)["gone"]["state"] == "proven"

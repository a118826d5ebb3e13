"""Jobs whose processes the daemon may not signal: it lacks CAP_KILL, and they belong to another user."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig as rig_module
from page_kit import job
from rig import Rig

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root and setpriv, to run a daemon that may not signal another user's process",
)
WITHOUT_KILL = ("setpriv", "--bounding-set=-kill", "--inh-caps=-kill")
NOBODY = 65534


def weak_daemon(tmp_path: Path) -> Iterator[Rig]:
    """A daemon that may become another user for a job, but not signal that user's processes."""
    for made in rig_module.rig(tmp_path):
        made.prefix = WITHOUT_KILL
        yield made
        for pid in (pid for view in made.http_or_none("/jobs") or [] for pid in view["pids"]):
            try:
                os.kill(pid, signal.SIGKILL)  # this test process may
            except ProcessLookupError:
                pass


def refused(name: str, seconds: float, **options: object) -> dict[str, object]:
    options.setdefault("killTimeout", 0.4)
    return job(name, ["/bin/sh", "-c", f"sleep {seconds}; exit 9"], user=NOBODY, group=NOBODY, **options)

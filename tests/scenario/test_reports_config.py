"""Kinds of fault: configurations that stop a daemon, or lose a job in silence. What each mistake is answered with is
shown by the unit tests (README.md names them); here is what a daemon does with it. Numbers are those of the table
there."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from rig import NEVER, Rig, until


def test_07_a_schedule_that_never_fires_harms_nobody(rig: Rig, tmp_path: Path) -> None:
    """An impossible date is said at load, without a search that takes time, and the other jobs keep their times."""
    alive = tmp_path / "alive"
    began = time.monotonic()
    rig.start([
        {"name": "never", "schedule": "0 0 30 2 *", "command": "true"},
        {"name": "alive", "schedule": "* * * * * * *", "command": f"echo x >> {alive}"},
    ])
    assert time.monotonic() - began < 10
    rig.logged("never", "never fires")
    assert rig.job("never")["never_fires"] is True and rig.job("never")["scheduled_at"] is None
    until(lambda: alive.exists() and alive.read_text().count("x") >= 2, 10, "the other job")


BAD = {
    "two of one name": "jobs:\n- {name: bar, command: a, schedule: '* * * * *'}\n"
                       "- {name: bar, command: b, schedule: '1 * * * *'}\n",
    "one level too high": "captureStdout: true\njobs:\n- {name: a, command: 'true', schedule: '* * * * *'}\n",
    "a step of zero": "jobs:\n- {name: a, command: 'true', schedule: '*/0 * * * *'}\n",
    "a tab": "jobs:\n\t- name: a\n",
    "bytes": "jobs: \udcff\n",
}


@pytest.mark.parametrize("kind", BAD)
def test_81_83_a_bad_file_is_refused_at_the_start(tmp_path: Path, kind: str) -> None:
    """The daemon does not start: status 1, the place, and no traceback; `check` says the same."""
    path = tmp_path / "jobs.yaml"
    path.write_bytes(BAD[kind].encode("utf-8", "surrogateescape"))
    for arguments in (["-c", str(path)], ["check", str(path)]):
        done = subprocess.run([sys.executable, "-m", "sexton", *arguments], capture_output=True, text=True, timeout=60,
                              check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 1 and f"{path}:" in said and ": error: " in said and "Traceback" not in said
    if kind == "two of one name":
        assert ":3:" in said and "line 2" in said.replace(f"{path}:2", "line 2"), "both places are named"


def test_85_the_last_line_of_a_table_counts(rig: Rig, tmp_path: Path) -> None:
    """Cron tables without a final newline, with a byte order mark and with carriage returns: every line is a job,
    listed with its next time, and the commands are clean."""
    (tmp_path / "one.crontab").write_text("0 17 * * * echo down\n30 17 * * * echo all")
    (tmp_path / "two.crontab").write_bytes(
        b"\xef\xbb\xbf* * * * * echo bom\r\n*\t*  *\t* * echo tab\r\n")
    rig.write([{"name": "yaml", "schedule": NEVER, "command": "true"}], include=["one.crontab", "two.crontab"])
    rig.start()
    views = {view["command"]: view for view in rig.http("GET", "/jobs")[1]}
    assert set(views) == {"true", "echo down", "echo all", "echo bom", "echo tab"}
    local = datetime.fromisoformat(views["echo all"]["scheduled_at"]).astimezone()
    assert (local.hour, local.minute) == (17, 30) and views["echo bom"]["scheduled_in"] <= 60

"""Addresses that somebody has already, and a daemon without any: each is said in words that help."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rig import NEVER, Rig, until

JOB = f'jobs: [{{name: other, command: "true", schedule: "{NEVER}"}}]\n'


def second(folder: Path, listen: str) -> subprocess.CompletedProcess[str]:
    """Another daemon that wants the address; it is expected to end by itself."""
    config = folder / "second.yaml"
    config.write_text(f'web: {{listen: ["{listen}"]}}\n{JOB}')
    return subprocess.run([sys.executable, "-m", "sexton", "-c", str(config)], cwd=folder, capture_output=True,
                          text=True, timeout=30, check=False)


@pytest.mark.parametrize("kind", ["http", "unix"])
def test_an_address_that_is_taken_is_left_to_its_daemon(rig: Rig, tmp_path: Path, kind: str) -> None:
    """The second daemon names the address and ends; the first one keeps it, a unix socket included."""
    http, unix = f"http://127.0.0.1:{rig.port}", f"unix://{tmp_path}/s.sock"
    rig.start([{"name": "j", "schedule": NEVER, "command": "true"}], web={"listen": [http, unix]})
    taken = http if kind == "http" else unix
    ended = second(tmp_path, taken)
    assert ended.returncode == 1
    assert f"error: cannot listen on {taken}: Address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr
    asked = subprocess.run([sys.executable, "-m", "sexton", "--url", taken, "jobs"], capture_output=True, text=True,
                           timeout=30, check=True)
    assert asked.stdout.splitlines()[1].startswith("j "), "the first daemon still answers there"


def test_a_socket_that_a_killed_daemon_left_is_taken_over(rig: Rig, tmp_path: Path) -> None:
    """Nobody listens on it any more, so the next daemon does."""
    listen = [f"http://127.0.0.1:{rig.port}", f"unix://{tmp_path}/s.sock"]
    rig.start([{"name": "j", "schedule": NEVER, "command": "true"}], web={"listen": listen})
    rig.kill9()
    assert (tmp_path / "s.sock").is_socket()
    rig.start()
    rig.logged(f"API on {listen[1]}")


def test_a_daemon_without_a_web_section_says_so(rig: Rig) -> None:
    """Whoever wonders why `sexton jobs` finds no daemon reads it in the log; without runs its end is told too."""
    rig.write_text(JOB)
    rig.spawn()
    rig.logged("no API: without a `web` section")
    rig.logged("1 jobs from")
    rig.signal(signal.SIGTERM)
    assert rig.wait() == 0
    until(lambda: "Shutting down: nothing runs" in rig.log(), 5, "the line about the end")

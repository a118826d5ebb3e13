"""A real daemon for the fuzzer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scenario"))

from rig import NEVER, Rig


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Jobs of every kind of schedule, some history, a store; nothing that a request could start takes long."""
    folder = tmp_path_factory.mktemp("fuzzed")
    rig = Rig(folder)
    try:
        rig.start([
            {"name": "j", "schedule": NEVER, "command": "echo line", "captureStdout": True},
            {"name": "a/b", "schedule": "7 * * * *", "command": "exit 1", "concurrencyPolicy": "Allow"},
            {"name": "boot", "schedule": "@reboot", "command": "true"},
            {"name": "off", "schedule": NEVER, "command": "true", "enabled": False},
        ], state={"path": str(folder / "state")})
        for _ in range(3):
            rig.recorded(rig.fire())
        yield rig
    finally:
        rig.close()

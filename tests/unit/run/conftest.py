"""The simulated world as a fixture; log lines of every level are kept."""

from __future__ import annotations

import logging

import pytest
from simulated import World


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.DEBUG, logger="sexton")
    return World(monkeypatch)

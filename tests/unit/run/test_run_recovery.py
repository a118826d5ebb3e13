"""What a dead daemon left: until its runs are recorded, what was heard of their end is not forgotten."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sexton.execution import cgroup, controllers, processes
from sexton.execution.lastwords import LastWords
from sexton.model.errors import StoreError
from sexton.model.run import GoneState, Launch, RunRecord, Trigger
from sexton.run.recovery import recover
from sexton.store.memory.store import MemoryStore

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Full(MemoryStore):
    """Takes no records while `full`."""

    full = True

    async def record(self, run: RunRecord) -> None:
        if self.full:
            raise StoreError("the disk is full")
        await super().record(run)


async def test_a_zygote_that_said_nothing_is_not_forgotten_before_its_runs_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A daemon whose zygote was killed, and then a second one that ends before it could record the interrupted run: the
    third does not take it for proven that nothing is left."""
    monkeypatch.setattr(cgroup, "sweep", lambda: (0, []))
    monkeypatch.setattr(controllers, "sweep", lambda: (0, []))
    (tmp_path / "zygotes").mkdir()
    fd = LastWords(tmp_path / "zygotes").begin()
    assert fd is not None
    os.close(fd)
    store = Full()
    await store.open()
    await store.intend(Launch(id="r", job="j", trigger=Trigger.MANUAL, node="n", created_at=NOON,
                              boot_id=processes.boot_id()))
    assert await recover(store, NOON, words=LastWords(tmp_path / "zygotes")) == []
    store.full = False
    [record] = await recover(store, NOON, words=LastWords(tmp_path / "zygotes"))
    assert record.gone is not None and record.gone.state is GoneState.UNKNOWN
    assert list((tmp_path / "zygotes").iterdir()) == [], "and now it is"

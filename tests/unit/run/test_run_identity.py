"""Ids of runs: in the order in which they were made, also while the clock goes back."""

from __future__ import annotations

import time

import pytest

from sexton.run.identity import RunIds


def test_ids_grow_although_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pruned first is what was made first: a clock that stands still, is set back an hour and comes again
    changes neither the order nor makes two alike."""
    at = 1_800_000_000_000_000_000
    clock = [at] * 5000 + [at - 3_600_000_000_000] * 50 + [at + 60_000_000_000] * 50
    monkeypatch.setattr(time, "time_ns", iter(clock).__next__)
    made = RunIds()
    ids = [made.next() for _ in clock]
    assert ids == sorted(ids) and len(set(ids)) == len(ids)
    assert all(len(text) == 36 and text[14] == "7" and text[19] in "89ab" for text in ids)

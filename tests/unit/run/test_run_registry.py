"""The registry keeps what runs, and nothing of what does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sexton.run.registry import Registry


def test_asking_leaves_nothing_behind() -> None:
    """Neither a question about a job that does not run nor the end of its last run leaves an entry, under any name."""
    registry, run = Registry(), SimpleNamespace(id="r", job=SimpleNamespace(name="j"), counts_as_running=True)
    shown: Any = run
    for name in ("", "j", "other"):
        assert registry.of(name) == registry.running(name) == registry.unconfirmed(name) == []
    registry.add(shown)
    assert registry.running("j") == [run] and len(registry) == 1
    registry.remove(shown)
    registry.remove(shown)
    assert registry._jobs == {} and registry._runs == {} and list(registry) == []

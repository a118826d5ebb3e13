"""Loading stays fast enough to check on every change."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from sexton.model.settings import Configuration


def test_a_thousand_jobs(load_text: Callable[..., Configuration]) -> None:
    """1,000 jobs load in a small part of a second (about 20 ms where it was written)."""
    job = "  - name: job-{}\n    command: [a, b, c]\n    schedule: '0 0 1 1 *'\n"
    text = "jobs:\n" + "".join(job.format(number) for number in range(1000))
    durations = []
    for _ in range(3):
        begun = time.perf_counter()
        assert len(load_text(text).jobs) == 1000
        durations.append(time.perf_counter() - begun)
    assert min(durations) < 0.25


def test_what_is_seldom_needed_is_not_imported() -> None:
    """The loader runs in a process of its own: it must not pay for suggestions, zones or an event loop."""
    script = "import sys, sexton.config.load; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = set(result.stdout.split())
    assert not modules & {"asyncio", "difflib", "zoneinfo", "socket", "logging", "urllib.parse"}

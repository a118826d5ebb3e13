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


def test_a_thousand_mistakes(load_text: Callable[..., Configuration]) -> None:
    """The same mistake in 1,000 jobs costs one search for what was meant, not 1,000."""
    job = "  - {name: job-%d, command: x, schedule: y, timezone: Europe/Berln, excutionTimeout: 5}\n"
    text = "jobs:\n" + "".join(job % number for number in range(1000))
    begun = time.perf_counter()
    found = load_text(text).errors
    assert time.perf_counter() - begun < 2
    assert len(found) == 2000
    assert all(error.hint for error in found)


def test_what_is_seldom_needed_is_not_imported() -> None:
    """The loader runs in a process of its own: it must not pay for suggestions, zones or an event loop."""
    script = "import sys, sexton.config.load; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = set(result.stdout.split())
    assert not modules & {"asyncio", "difflib", "zoneinfo", "socket", "logging", "urllib.parse"}

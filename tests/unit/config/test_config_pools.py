"""`pools` and what jobs say of them: defaults, bounds, and every mistake with its place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sexton.config.diff import diff_jobs
from sexton.model.pool import PoolSettings, PoolUse
from sexton.model.settings import Configuration

Load = Callable[..., Configuration]
STATE = "state: {path: /tmp/x}\n"


def text(pool: str = "{slots: 4}", options: str = "pool: p", top: str = "") -> str:
    lines = "".join(f"    {line}\n" for line in options.split("\n"))
    return f"{STATE}{top}pools:\n  p: {pool}\njobs:\n  - name: a\n    command: x\n    schedule: '@daily'\n{lines}"


def test_a_pool_and_its_user(load_text: Load) -> None:
    """Names, types and defaults of the reference daemon."""
    found = load_text(text())
    assert found.findings == ()
    assert found.settings.pools == (PoolSettings(name="p", slots=4, max_queued=1000),)
    assert found.jobs[0].pool == PoolUse(name="p", slots=1, priority=0, timeout=3600.0)
    found = load_text(text("{slots: 10000, maxQueued: 10000}",
                           "pool: p\npoolSlots: 10000\nqueuePriority: -5\nqueueTimeout: 0.5"))
    assert found.findings == ()
    assert found.jobs[0].pool == PoolUse(name="p", slots=10000, priority=-5, timeout=0.5)


@pytest.mark.parametrize(("pool", "options", "line", "said"), [
    ("{slots: 0}", "pool: p", 3, "`slots` must be at least 1"),
    ("{slots: 10001}", "pool: p", 3, "`slots` must be at most 10000"),
    ("{slots: two}", "pool: p", 3, "expected a whole number of slots"),
    ("{}", "pool: p", 3, "has no `slots`"),
    ("4", "pool: p", 3, "expected a map with `slots`"),
    ("{slots: 1, maxQueued: 0}", "pool: p", 3, "`maxQueued` must be at least 1"),
    ("{slots: 1, maxqueued: 1}", "pool: p", 3, "did you mean `maxQueued`"),
    ("{slots: 1, poolSlots: 1}", "pool: p", 3, "`poolSlots` belongs in a job"),
    ("{slots: 4}", "pool: p\npoolSlots: 5", 5, "takes 5 slots of pool 'p', which has 4"),
    ("{slots: 4}", "pool: p\npoolSlots: 0", 9, "`poolSlots` must be at least 1"),
    ("{slots: 4}", "pool: q", 5, "there is no pool 'q'"),
    ("{slots: 4}", "poolSlots: 2", 8, "`poolSlots` means nothing without a pool"),
    ("{slots: 4}", "pool: null\nqueuePriority: 2", 9, "`queuePriority` means nothing without a pool"),
    ("{slots: 4}", "queueTimeout: 2", 8, "`queueTimeout` means nothing without a pool"),
    ("{slots: 4}", "pool: p\nqueueTimeout: -1", 9, "`queueTimeout` must be at least 0"),
    ("{slots: 4}", "pool: p\nqueuePriority: 1.5", 9, "expected a whole number"),
    ("{slots: 4}", "maxInstances: 0", 8, "`maxInstances` must be at least 1"),
    ("{slots: 4}", "maxInstances: 2\nconcurrencyPolicy: Forbid", 8, "bounds nothing with concurrencyPolicy Forbid"),
])
def test_mistakes(load_text: Load, pool: str, options: str, line: int, said: str) -> None:
    """One error each, where it stands."""
    (error,) = load_text(text(pool, options)).errors
    assert said in str(error)
    assert error.place is not None and error.place.line == line


def test_the_nearest_pool_is_named(load_text: Load) -> None:
    """A mistyped pool."""
    (error,) = load_text(text(options="pool: P")).errors
    assert error.hint == "did you mean `p`?"


def test_pools_must_be_a_map(load_text: Load) -> None:
    """Not a list, and no name twice."""
    assert "expected a map of pools" in str(load_text("pools: [p]\n").errors[0])
    assert "a second time" in str(load_text(f"{STATE}pools:\n  p: {{slots: 1}}\n  p: {{slots: 2}}\n").errors[0])
    assert "cannot be the name" in str(load_text(f"{STATE}pools:\n  a/b: {{slots: 1}}\n").errors[0])


def test_pools_of_several_files(load_files: Load) -> None:
    """Each file may define some; a name twice is an error that names both places, and jobs may use those of others."""
    user = "jobs: [{name: j, command: x, schedule: '@daily', pool: p}]\n"
    files = {"a.yml": STATE + "pools: {p: {slots: 1}}\n", "b.yml": user}
    found = load_files(files)
    assert found.findings == () and found.jobs[0].pool == PoolUse(name="p")
    (error,) = load_files({**files, "c.yml": "pools: {p: {slots: 2}}\n"}).errors
    assert "first in" in error.message and "a.yml" in error.message


def test_without_state_the_queue_is_in_memory(load_text: Load) -> None:
    """That works, and is said."""
    (finding,) = load_text("pools: {p: {slots: 1}}\n").findings
    assert "without `state`" in finding.message and finding.place is not None and finding.place.line == 1


def test_defaults_and_opting_out(load_text: Load) -> None:
    """`pool: null` in a job leaves the pool of the defaults, and what else they say of it means nothing then."""
    found = load_text(STATE + "pools: {p: {slots: 4}}\ndefaults: {pool: p, poolSlots: 2}\njobs:\n"
                      "  - {name: a, command: x, schedule: '@daily'}\n"
                      "  - {name: b, command: x, schedule: '@daily', pool: null}\n")
    assert found.findings == ()
    assert [job.pool for job in found.jobs] == [PoolUse(name="p", slots=2), None]


def test_a_changed_pool_of_a_job_is_a_change(load_text: Load) -> None:
    """A reload sees it."""
    before, after = load_text(text()).jobs, load_text(text(options="pool: p\nqueuePriority: 1")).jobs
    assert diff_jobs(before, after).changed == after

"""The bounds on output that somebody outside holds, in a real daemon whose bound is one second instead of thirty.

That the bound is 30 seconds, and how it is counted, is shown on a fake clock in tests/unit/run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig as rig_module
from page_kit import Outside, at, cancel, job, line_count, since
from rig import Rig, until

SLACK = 2.0
BOUND = "import sexton.run.drain\nsexton.run.drain.HELD_OUTPUT_SECONDS = 1.0\n"
WARNED = "did not reach end-of-file within 1.0 seconds of the job being killed"


@pytest.fixture
def short(tmp_path: Path) -> Iterator[Rig]:
    """A daemon with the short bound and a store, so that the whole output is kept."""
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "sitecustomize.py").write_text(BOUND)
    for made in rig_module.rig(tmp_path):
        others = os.environ.get("PYTHONPATH")
        made.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path / "patch"), *([others] if others else [])])
        yield made


@pytest.fixture
def outside() -> Iterator[Outside]:
    holder = Outside()
    yield holder
    holder.close()


def both(outside: Outside, **options: object) -> dict[str, object]:
    command = outside.giving(1, 2, then="os.write(1, b'so far\\n'); time.sleep(3600)")
    return job("j", command, captureStdout=True, captureStderr=True, killTimeout=1, **options)


def test_after_a_cancel_one_bound_covers_both_streams(short: Rig, outside: Outside, tmp_path: Path) -> None:
    """Our ends are closed, what was captured is kept, one warning is logged, the run is recorded."""
    short.start([both(outside)], state={"path": str(tmp_path / "state")})
    run = short.fire()
    outside.take()
    until(lambda: short.run(run)["output"]["stdout"]["bytes"] == 7, 10, "the output so far")
    ended = cancel(short, run)
    assert ended["phase"] == "ended"
    record = short.recorded(run)
    assert record["output"]["stdout"] == {"bytes": 7, "truncated": True}
    assert record["output"]["stderr"] == {"bytes": 0, "truncated": True}
    assert short.http("GET", f"/runs/{run}/log") == (200, "so far\n")
    assert record["finished_at"] == ended["finished_at"] and record["outcome"] == "cancelled"
    assert line_count(short, run, "WARNING", f"job j: output {WARNED}") == 1
    with pytest.raises(BrokenPipeError):
        outside.write(b"too late")


def test_after_a_timeout_each_stream_has_its_bound(short: Rig, outside: Outside) -> None:
    """Both held: stderr is given up first, then stdout, each with its own warning; within twice the bound."""
    short.start([both(outside, executionTimeout=1.0)])
    run = short.fire()
    outside.take()
    record = short.recorded(run)
    assert record["exit_code"] == -100 and record["duration"] < 1.0 + SLACK
    assert line_count(short, run, "WARNING", WARNED) == 2
    lines = [line for line in short.log().splitlines() if WARNED in line]
    assert "job j: stderr did" in lines[0] and "job j: stdout did" in lines[1]


def test_a_replacement_does_not_wait_for_held_output(short: Rig, outside: Outside) -> None:
    """The victim has ended with its ladder: the replacement starts then, and the bound runs beside it."""
    short.start([both(outside, concurrencyPolicy="Replace")])
    old = short.fire()
    outside.take()
    new = short.fire()
    short.running(new)
    assert short.run(old)["phase"] == "ended"
    outside.take()
    record = short.recorded(old)
    assert record["outcome"] == "replaced" and record["finished_at"] <= short.run(new)["started_at"]
    assert at(short.run(new)["started_at"]) - at(record["finished_at"]) < SLACK
    assert line_count(short, old, f"job j: output {WARNED}") == 1
    cancel(short, new)


def test_a_run_that_nobody_stops_has_no_such_bound(short: Rig, outside: Outside) -> None:
    """Held output of a run that was not stopped is waited for without bound: it is still running."""
    from time import monotonic

    short.start([job("j", outside.giving(1, then="os._exit(0)"), captureStdout=True)])
    run = short.fire()
    outside.take()
    began = monotonic()
    until(lambda: since(began) > 1.5, 5, "more than the bound")
    assert short.run(run)["phase"] == "draining"
    outside.let_go()
    record = short.recorded(run)
    assert record["outcome"] == "success" and record["duration"] > 1.4

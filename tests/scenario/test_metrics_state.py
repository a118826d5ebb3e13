"""Metrics of the store and of our own bugs."""

from __future__ import annotations

from typing import Any

from nodes_kit import Nodes
from prometheus_client.parser import text_string_to_metric_families
from rig import NEVER, Rig, until

JOB = {"name": "j", "command": "true", "schedule": NEVER}
BROKEN = """
import sys
from sexton.run import conduct

async def _watch(run):
    raise ZeroDivisionError("a bug")

conduct._watch = _watch
from sexton.cli.main import main
sys.exit(main())
"""


def samples(rig: Rig, prefix: str) -> dict[str, float]:
    """Name and values of the labels -> value."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(rig.http("GET", "/metrics")[1]):
        for sample in family.samples:
            if sample.name.startswith(prefix):
                found[" ".join([sample.name, *sample.labels.values()])] = sample.value
    return found


def test_a_store_is_counted(rig: Rig, tmp_path: Any) -> None:
    """What a run writes and a question reads, with the time it took; nothing failed and nothing was lost."""
    rig.start([JOB], state={"path": str(tmp_path / "state")})
    before = samples(rig, "sexton_state_")
    assert before["sexton_state_info true false"] == 1
    rig.recorded(rig.fire())
    assert rig.runs()
    after = samples(rig, "sexton_state_")
    for kind in ("read", "write"):
        assert after[f"sexton_state_ops_total {kind}"] > before[f"sexton_state_ops_total {kind}"]
        assert after[f"sexton_state_op_seconds_count {kind}"] > before[f"sexton_state_op_seconds_count {kind}"]
        assert after[f"sexton_state_op_seconds_sum {kind}"] > before[f"sexton_state_op_seconds_sum {kind}"]
        assert after[f"sexton_state_op_errors_total {kind}"] == 0
    assert after["sexton_state_dropped_writes_total"] == 0


def test_memory_has_nothing_to_count(rig: Rig) -> None:
    """Only what it is."""
    rig.start([JOB])
    assert samples(rig, "sexton_state_") == {"sexton_state_info false false": 1.0}


def test_a_bug_that_cost_a_run_is_shown(rig: Rig) -> None:
    """A daemon with a bug in the middle of each run: the runs are failures, the daemon lives, and health, metrics and
    log say how often."""
    rig.command = ("-c", BROKEN)
    rig.start([JOB])
    assert rig.http("GET", "/health")[1]["internal_errors"] == 0
    for number in (1, 2):
        record = rig.recorded(rig.fire())
        assert record["outcome"] == "failure" and "internal error" in record["fail_reason"]
        until(lambda number=number: rig.http("GET", "/health")[1]["internal_errors"] == number)
    assert samples(rig, "sexton_internal_errors")["sexton_internal_errors_total"] == 2
    assert rig.log().count("internal error in run") == 2


def test_stores_of_several_nodes_are_counted_too(nodes: Nodes) -> None:
    """Reads, writes, and what nodes agree on, with the time it took."""
    (a,) = nodes.start(nodes.job(seconds=0), "a")
    before = samples(a, "sexton_state_")
    assert before["sexton_state_info true true"] == 1
    run = a.fire()
    a.recorded(run)
    after = samples(a, "sexton_state_")
    for kind in ("write", "coordinate"):
        assert after[f"sexton_state_ops_total {kind}"] > before[f"sexton_state_ops_total {kind}"]
        assert after[f"sexton_state_op_seconds_sum {kind}"] > before[f"sexton_state_op_seconds_sum {kind}"]
    assert after["sexton_state_ops_total read"] > 0 and after["sexton_state_op_errors_total write"] == 0

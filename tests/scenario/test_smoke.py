"""One job through its whole life."""

from __future__ import annotations

from rig import Rig, living, new_tag, until


def test_a_scheduled_run_times_out_and_is_proven_gone(rig: Rig) -> None:
    """A job due every second is started, bounded by its deadline, ended with its escaped child, and recorded."""
    tag = new_tag()
    rig.start([{
        "name": "j", "schedule": "* * * * * * *", "concurrencyPolicy": "Forbid", "executionTimeout": 0.5,
        "killTimeout": 0.2, "command": f"trap '' TERM; setsid sleep {tag} & sleep {tag}",
    }])
    record = until(lambda: next(iter(rig.runs()), None), 10, "a record")
    assert record["outcome"] == "failure" and record["exit_code"] == -100
    assert record["stop"]["cause"] == "timeout" and record["stop"]["confirmed_at"] is not None
    assert record["gone"]["state"] == "proven" and "supervisor" in record["gone"]["witnesses"]
    assert record["trigger"] == "schedule" and record["scheduled_for"] is not None
    rig.http("POST", "/jobs/j/cancel")
    rig.stop()
    assert living(tag) == []

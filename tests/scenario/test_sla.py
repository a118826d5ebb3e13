"""Promises in a real daemon."""

from __future__ import annotations

from rig import Rig, until


def test_a_breach_is_told_once_and_shown_while_it_lasts(rig: Rig) -> None:
    """A run beyond maxRuntimeSeconds: one line, one count; it is not ended, and when it ends the promise is kept."""
    rig.start([{"name": "j", "command": "sleep 30", "schedule": "0 0 1 1 *", "sla": {"maxRuntimeSeconds": 0.5}}])
    assert rig.job()["sla"] == {"thresholds": {"maxRuntimeSeconds": 0.5}, "state": "ok", "breaches": []}
    run = rig.fire()
    breach = until(lambda: rig.job()["sla"]["breaches"], 15, "the breach")[0]
    assert breach["check"] == "maxRuntime" and breach["observed_seconds"] > 0.5 and rig.job()["running"]
    assert 'sexton_job_late{check="maxRuntime",job_name="j"} 1.0' in rig.http("GET", "/metrics")[1]
    rig.http("POST", f"/runs/{run}/cancel", {"force": True})
    until(lambda: rig.job()["sla"]["state"] == "ok", 15, "the end of the breach")
    rig.logged("its promise maxRuntime is kept again")
    assert rig.log().count("its promise maxRuntime is broken") == 1
    assert 'sexton_job_sla_breaches_total{check="maxRuntime",job_name="j"} 1.0' in rig.http("GET", "/metrics")[1]

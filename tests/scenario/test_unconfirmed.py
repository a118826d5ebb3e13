"""What could not be terminated: told apart from what timed out, and its place given up by a person. What becomes of the
next run is in `test_page_refused.py`."""

from __future__ import annotations

import subprocess
import sys

from page_kit import at, job
from pool_kit import ask
from refused_kit import needs_root, refused
from rig import Rig, alive, always, until

pytestmark = needs_root


def figure(rig: Rig, series: str) -> float:
    text: str = rig.http("GET", "/metrics")[1]
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(series))


def test_timed_out_and_could_not_be_terminated_are_told_apart(weak: Rig) -> None:
    """In the record, in the log and in the figures: both runs are timeouts, one of them lives on."""
    weak.start([refused("stays", 6.0, executionTimeout=0.4, killTimeout=0.2),
                job("goes", "sleep 60", executionTimeout=0.4, killTimeout=0.2)])
    stays, goes = weak.fire("stays"), weak.fire("goes")
    weak.running(stays)
    for run, name, state, count in ((stays, "stays", "survivors", 1), (goes, "goes", "proven", 0)):
        record = weak.recorded(run)
        assert (record["exit_code"], record["stop"]["cause"], record["gone"]["state"]) == (-100, "timeout", state)
        assert (record["stop"]["confirmed_at"] is None) is bool(count)
        assert figure(weak, f'sexton_job_stops_total{{cause="timeout",job_name="{name}"}}') == 1
        assert figure(weak, f'sexton_job_unconfirmed_terminations_total{{job_name="{name}"}}') == count
    weak.logged("ERROR", stays, "could not be terminated")
    assert not any(goes in line and "could not be terminated" in line for line in weak.log().splitlines())


def test_the_slot_of_a_process_that_cannot_be_ended_is_kept(weak: Rig) -> None:
    """Another job of the pool waits until it has gone."""
    weak.start([refused("j", 3.0, executionTimeout=0.4, killTimeout=0.2, pool="p"), job("other", "true", pool="p")],
               pools={"p": {"slots": 1}})
    old = ask(weak, "j")
    pid = weak.running(old)
    assert weak.recorded(old)["gone"]["state"] == "survivors" and alive(pid)
    other = ask(weak, "other")
    always(lambda: not alive(pid) or weak.run(other)["phase"] == "queued", 1.0, "it waits")
    record = weak.recorded(other)
    assert record["outcome"] == "success" and not alive(pid)
    assert at(record["started_at"]) >= at(weak.run(old)["stop"]["confirmed_at"])


def test_a_place_can_be_given_up_from_the_command_line(weak: Rig) -> None:
    """`sexton abandon` says so, and the record has who and why."""
    weak.start([refused("j", 6.0, executionTimeout=0.4, killTimeout=0.2, concurrencyPolicy="Forbid")])
    old = weak.fire()
    pid = weak.running(old)
    weak.recorded(old)
    told = subprocess.run([sys.executable, "-m", "sexton", "--url", f"http://127.0.0.1:{weak.port}", "abandon", old,
                           "--reason", "the array is dead"], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told
    assert until(lambda: weak.run(old)["abandoned"], 5, "it is known")["reason"] == "the array is dead"
    assert weak.run(old)["abandoned"]["requested_by"] and weak.running(weak.fire()) != pid and alive(pid)

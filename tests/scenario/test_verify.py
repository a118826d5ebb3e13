"""The check of a run's result, in a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from page_kit import at, phase
from rig import Rig, alive, living, new_tag, until

NEVER = "0 0 1 1 *"


def checked(check: Any, command: str = "true", *, timeout: float = 20.0, **options: Any) -> dict[str, Any]:
    return {"name": "j", "command": command, "schedule": NEVER, "killTimeout": 0.5, "concurrencyPolicy": "Forbid",
            "verify": {"command": check, "timeout": timeout}, **options}


@pytest.mark.parametrize(("check", "outcome", "code", "reason"), [
    ("echo fine; echo odd >&2", "success", 0, None),
    ("exit 7", "failure", 7, "command exited with code 7"),
    ("kill -9 $$", "failure", -9, "command was ended by signal 9"),
    (["no-such-program-at-all"], "failure", 127, "could not be started"),
])
def test_the_check_decides(rig: Rig, check: Any, outcome: str, code: int, reason: str | None) -> None:
    """Exit 0 leaves the success; anything else makes the run a failure that keeps the command's own exit code. What a
    check writes is kept, and is no failure."""
    rig.start([checked(check)])
    record = rig.recorded(rig.fire())
    found = record["verification"]
    assert (record["outcome"], record["exit_code"]) == (outcome, 0)
    assert (found["outcome"], found["exit_code"]) == (outcome, code)
    if reason is None:
        assert found["stdout"] == "fine" and found["stderr"] == "odd" and record["fail_reason"] is None
    else:
        assert reason in found["fail_reason"] and record["fail_reason"].startswith("verification failed: ")
    assert record["gone"]["state"] == "proven" and at(record["finished_at"]) >= at(found["finished_at"])


@pytest.mark.parametrize(("command", "why"), [("exit 3", "command failed"), ("echo e >&2", "command failed")])
def test_what_has_failed_is_not_checked(rig: Rig, command: str, why: str) -> None:
    """The record says that the check was skipped, and why."""
    rig.start([checked(f"touch {rig.folder}/checked", command)])
    record = rig.recorded(rig.fire())
    assert record["outcome"] == "failure" and record["verification"]["outcome"] == "skipped"
    assert record["verification"]["fail_reason"] == why and not (rig.folder / "checked").exists()


@pytest.mark.parametrize("fails", [True, False])
def test_what_was_stopped_is_not_checked(rig: Rig, fails: bool) -> None:
    """A run that its deadline has ended is not checked, also where `failsWhen.timeout: false` makes it no failure; the
    record does not say that the command has failed."""
    rig.start([checked("true", "sleep 60", executionTimeout=0.3, failsWhen={"timeout": fails})])
    record = rig.recorded(rig.fire())
    assert record["outcome"] == ("failure" if fails else "success") and record["stop"]["cause"] == "timeout"
    assert record["verification"]["outcome"] == "skipped"
    assert record["verification"]["fail_reason"] == "the run was stopped"


def test_the_run_counts_as_running_while_it_is_checked(rig: Rig) -> None:
    """Forbid refuses beside the check; `pids` is the check's process; executionTimeout does not cover it."""
    tag = new_tag()
    rig.start([checked(f"sleep 1.5; true {tag}", executionTimeout=0.5)])
    run = rig.fire()
    view = phase(rig, run, "verifying")
    assert view["verification"]["outcome"] == "running" and rig.http("POST", "/jobs/j/start")[0] == 409
    pid = until(lambda: rig.job()["pids"], 5, "the check's process")[0]
    assert alive(pid) and b"sleep 1.5" in Path(f"/proc/{pid}/cmdline").read_bytes()
    record = rig.recorded(run)
    assert record["outcome"] == "success" and record["duration"] >= 1.5


def test_a_check_is_bounded(rig: Rig) -> None:
    """verify.timeout: the check is brought down with everything it started, by the job's killTimeout; -100."""
    tag = new_tag()
    rig.start([checked(f"trap '' TERM; setsid sleep {tag} & sleep {tag}", timeout=0.4)])
    run = rig.fire()
    record = rig.recorded(run)
    assert (record["outcome"], record["exit_code"], record["stop"]) == ("failure", 0, None)
    assert record["verification"]["exit_code"] == -100 and "timeout of 0.4 seconds" in record["fail_reason"]
    assert living(tag) == [] and record["gone"]["state"] == "proven" and record["duration"] >= 0.9


def test_a_cancel_stops_the_check(rig: Rig) -> None:
    """The run is cancelled, not failed; what its command had left behind is ended with it."""
    tag, left = new_tag(), new_tag()
    rig.start([checked(f"sleep {tag}", f"setsid sleep {left} >/dev/null 2>&1 & exit 0")])
    run = rig.fire()
    phase(rig, run, "verifying")
    until(lambda: living(tag), 5, "the check's process")
    status, answer = rig.http("POST", "/jobs/j/cancel", {"reason": "enough"})
    assert status == 200 and answer["instances"] == 1
    record = rig.recorded(run)
    assert record["outcome"] == "cancelled" and record["stop"]["reason"] == "enough"
    assert record["verification"]["outcome"] == "cancelled"
    assert living(tag) == living(left) == [] and record["gone"]["state"] == "proven"


def test_a_replacement_waits_for_the_check(rig: Rig) -> None:
    """Replace ends the check and starts after it is gone; the replaced run is no failure."""
    tag = new_tag()
    rig.start([checked(f"trap '' TERM; sleep {tag}", f"echo x >> {rig.folder}/starts", concurrencyPolicy="Replace")])
    old = rig.fire()
    pid = until(lambda: living(tag), 5, "the check")[0]
    phase(rig, old, "verifying")
    new = rig.fire()
    until(lambda: rig.run(new)["started_at"], 10, "the replacement")
    assert not alive(pid) and rig.recorded(old)["outcome"] == "replaced"
    rig.http("POST", f"/runs/{new}/cancel", {"force": True})


def test_a_daemon_that_dies_takes_the_check_with_it(rig: Rig) -> None:
    """kill -9: no process of the check is left, and the run is recorded once, as unknown."""
    tag = new_tag()
    rig.start([checked(f"setsid sleep {tag} & sleep {tag}")], state={"path": str(rig.folder / "state")})
    run = rig.fire()
    until(lambda: len(living(tag)) >= 2, 5, "the check")
    rig.kill9()
    until(lambda: living(tag) == [], 3, "nothing is left")
    rig.start()
    assert rig.recorded(run)["outcome"] == "unknown" and len(rig.runs()) == 1

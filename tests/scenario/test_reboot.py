"""`@reboot` jobs in a real daemon: once per boot, and what a pause does to their run."""

from __future__ import annotations

from typing import Any

from rig import Rig, always, until


def boot(rig: Rig, **options: Any) -> dict[str, Any]:
    return {"name": "j", "command": f"echo x >> {rig.folder}/boots; sleep 0.1", "schedule": "@reboot", **options}


def boots(rig: Rig) -> int:
    path = rig.folder / "boots"
    return len(path.read_text().splitlines()) if path.exists() else 0


def state(rig: Rig) -> dict[str, Any]:
    return {"state": {"path": str(rig.folder / "state")}}


def paused_before_its_run(rig: Rig, seconds: float, **options: Any) -> None:
    """A daemon that has a pause of the job from its predecessor, and no run of it in this boot."""
    rig.start([boot(rig, enabled=False)], **state(rig))
    assert rig.http("POST", "/jobs/j/pause", {"durationSeconds": seconds})[0] == 200
    rig.stop()
    rig.start([boot(rig, **options)], **state(rig))


def test_once_per_boot_of_the_machine(rig: Rig) -> None:
    """With a store a daemon that is started again, also after kill -9 in the middle of the run, does not run it again;
    a changed definition does."""
    rig.start([boot(rig, command=f"echo x >> {rig.folder}/boots; sleep 60")], **state(rig))
    until(lambda: boots(rig) == 1, 10, "the run")
    rig.kill9()
    rig.start()
    rig.logged("@reboot has had its run in this boot")
    assert rig.runs()[0]["outcome"] == "unknown" and len(rig.runs()) == 1 and boots(rig) == 1
    rig.stop()
    rig.start([boot(rig)], **state(rig))
    until(lambda: boots(rig) == 2, 10, "the run of the new definition")


def test_without_a_store_once_per_start(rig: Rig) -> None:
    """Nothing remembers the boot: each start of the daemon runs it."""
    rig.start([boot(rig)])
    until(lambda: rig.runs() and rig.runs()[0]["phase"] == "recorded", 10, "the run")
    rig.stop()
    rig.start()
    until(lambda: boots(rig) == 2, 10, "the second run")


def test_a_pause_holds_it_back_until_it_is_resumed(rig: Rig) -> None:
    """The run waits, visibly; a daemon that dies meanwhile leaves it to the next; after the resume it runs once."""
    paused_before_its_run(rig, 3600)
    rig.logged("the @reboot run is held back: paused until")
    assert rig.job()["rebootPending"] is True
    rig.kill9()
    rig.start()
    until(lambda: rig.job()["rebootPending"], 10, "held back again")
    always(lambda: boots(rig) == 0, 0.3, "no run during the pause")
    assert rig.http("POST", "/jobs/j/resume")[0] == 200
    until(lambda: rig.runs() and rig.runs()[0]["phase"] == "recorded", 10, "the run")
    assert rig.runs()[0]["trigger"] == "reboot" and rig.job()["rebootPending"] is False
    rig.stop()
    rig.start()
    rig.logged("@reboot has had its run in this boot")
    assert boots(rig) == 1


def test_the_end_of_a_pause_lets_it_run(rig: Rig) -> None:
    """Nobody need resume."""
    paused_before_its_run(rig, 4)
    until(lambda: boots(rig) == 1, 15, "the run")
    assert rig.job()["paused"] is None


def test_a_start_by_hand_counts_as_its_run(rig: Rig) -> None:
    """Whoever starts the paused job gives it the run of this boot: the end of the pause adds none."""
    paused_before_its_run(rig, 3600)
    until(lambda: rig.job()["rebootPending"], 10, "held back")
    rig.recorded(rig.fire())
    assert rig.job()["rebootPending"] is False
    assert rig.http("POST", "/jobs/j/resume")[0] == 200
    rig.stop()
    rig.start()
    rig.logged("@reboot has had its run in this boot")
    assert boots(rig) == 1


def test_a_job_that_is_no_boot_job_any_more(rig: Rig) -> None:
    """What was held back for a job that has another schedule by then is given up, visibly."""
    paused_before_its_run(rig, 3600)
    until(lambda: rig.job()["rebootPending"], 10, "held back")
    rig.write([boot(rig, schedule="0 0 1 1 *")], **state(rig))
    assert rig.http("POST", "/reload")[0] == 200
    assert rig.http("POST", "/jobs/j/resume")[0] == 200
    rig.logged("held back is given up")
    assert boots(rig) == 0 and rig.job()["rebootPending"] is False

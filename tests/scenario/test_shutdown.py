"""The end of the daemon: no new starts, a grace period for what runs, then the ladder; and what systemd is told."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from rig import NEVER, Rig, living, new_tag, until


def test_runs_that_end_in_time_are_waited_for(rig: Rig, tmp_path: Path) -> None:
    """After SIGTERM a running run ends by itself within shutdownTimeout; meanwhile the API answers, nothing new starts
    by schedule or by hand, and the record is there after a restart."""
    ticks = tmp_path / "ticks"
    rig.start([
        {"name": "j", "schedule": NEVER, "command": "sleep 2; exit 3"},
        {"name": "tick", "schedule": "* * * * * * *", "command": f"echo x >> {ticks}"},
    ], shutdownTimeout=20, state={"path": str(tmp_path / "state")})
    run = rig.fire()
    rig.running(run)
    rig.signal(signal.SIGTERM)
    until(lambda: rig.http("GET", "/health")[1]["status"] == "shutting down", 5, "it says so")
    count = ticks.read_text().count("x") if ticks.exists() else 0
    assert rig.http("POST", "/jobs/tick/start")[0] == 503
    assert rig.run(run)["phase"] == "running" and rig.run(run)["stop"] is None
    assert rig.wait(15) == 0
    after = ticks.read_text().count("x") if ticks.exists() else 0
    assert after <= count + 1, "at most the one that was being started"
    rig.start()
    assert [(r["id"], r["outcome"], r["exit_code"]) for r in rig.runs()] == [(run, "failure", 3)]


def test_the_others_are_cancelled_through_the_ladder(rig: Rig, tmp_path: Path) -> None:
    """What runs longer than shutdownTimeout is cancelled with cause shutdown: one that tidies up has its time for it,
    one that ignores the signal is forced, nothing is left."""
    tidy, tag = tmp_path / "tidy", new_tag()
    rig.start([
        {"name": "tidy", "schedule": NEVER, "killTimeout": 8,
         "command": f"trap 'sleep 0.5; echo cleaned >> {tidy}; exit 0' TERM; while :; do sleep 0.1; done"},
        {"name": "rude", "schedule": NEVER, "killTimeout": 1,
         "command": f"trap '' TERM; setsid sleep {tag} & sleep {tag}"},
    ], shutdownTimeout=0.5, state={"path": str(tmp_path / "state")})
    runs = {name: rig.fire(name) for name in ("tidy", "rude")}
    for run in runs.values():
        rig.running(run)
    asked = time.monotonic()
    rig.signal(signal.SIGTERM)
    assert rig.wait(20) == 0
    took = time.monotonic() - asked
    assert 1.4 <= took < 7 and tidy.read_text() == "cleaned\n" and living(tag) == []
    rig.start()
    records = {name: rig.run(run) for name, run in runs.items()}
    for record in records.values():
        assert record["stop"]["cause"] == "shutdown" and record["stop"]["confirmed_at"] is not None
        assert record["outcome"] == "cancelled" and record["gone"]["state"] == "proven"
    assert records["tidy"]["exit_code"] == 0 and records["rude"]["exit"]["signal"] == 9


def test_a_second_signal_cancels_at_once(rig: Rig) -> None:
    """The second SIGTERM ends the waiting; killTimeout is still granted."""
    tag = new_tag()
    rig.start([{"name": "j", "schedule": NEVER, "killTimeout": 5, "command": f"exec sleep {tag}"}], shutdownTimeout=60)
    rig.running(rig.fire())
    rig.signal(signal.SIGTERM)
    until(lambda: rig.http("GET", "/health")[1]["status"] == "shutting down", 5, "the first is taken")
    asked = time.monotonic()
    rig.signal(signal.SIGTERM)
    assert rig.wait(10) == 0 and time.monotonic() - asked < 4 and living(tag) == []


def test_a_replacement_that_waits_is_not_started_any_more(rig: Rig, tmp_path: Path) -> None:
    """A Replace that waits for its victim when the daemon is told to stop does not start after that."""
    tag, marks = new_tag(), tmp_path / "marks"
    rig.start([{
        "name": "j", "schedule": NEVER, "concurrencyPolicy": "Replace", "killTimeout": 1.5,
        "command": f"echo $SEXTON_RUN_ID >> {marks}; trap '' TERM; sleep {tag}; sleep {tag}",
    }], shutdownTimeout=15, state={"path": str(tmp_path / "state")})
    victim = rig.fire()
    rig.running(victim)
    until(lambda: marks.exists(), 5, "the victim's mark")
    waiting = rig.fire()
    until(lambda: rig.run(victim)["phase"] == "stopping", 5, "the victim is being stopped")
    rig.signal(signal.SIGTERM)
    assert rig.wait(12) == 0 and living(tag) == []
    assert marks.read_text().split() == [victim]
    rig.start()
    record = rig.run(waiting)
    assert record["started_at"] is None and record["outcome"] == "cancelled" and record["stop"]["cause"] == "shutdown"
    assert rig.run(victim)["outcome"] == "replaced"


def test_an_idle_daemon_ends_at_once(rig: Rig) -> None:
    """Without runs SIGTERM and SIGINT end it quickly with status 0, followers or not."""
    for number in (signal.SIGTERM, signal.SIGINT):
        rig.start([{"name": "j", "schedule": NEVER, "command": "true"}], shutdownTimeout=60)
        with socket.create_connection(("127.0.0.1", rig.port)) as idle:
            idle.sendall(b"GET /jobs/j/lo")
            asked = time.monotonic()
            rig.signal(number)
            assert rig.wait(10) == 0 and time.monotonic() - asked < 4


@contextlib.contextmanager
def listener(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(path))
        made.settimeout(10)
        yield made


def test_systemd_is_told(rig: Rig) -> None:
    """READY when the API answers, RELOADING (with the monotonic time) and READY again around a reload, STOPPING at the
    end."""
    path = Path("/tmp") / f"sexton-notify-{os.getpid()}.sock"
    rig.environment["NOTIFY_SOCKET"] = str(path)
    try:
        with listener(path) as heard:
            rig.start([{"name": "j", "schedule": NEVER, "command": "true"}])
            assert heard.recv(100) == b"READY=1"
            before = time.monotonic_ns() // 1000
            rig.signal(signal.SIGHUP)
            first, stamp = heard.recv(100).decode().split("\n")
            assert first == "RELOADING=1"
            assert before <= int(stamp.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000
            assert heard.recv(100) == b"READY=1"
            rig.signal(signal.SIGTERM)
            assert heard.recv(100) == b"STOPPING=1" and rig.wait() == 0
    finally:
        path.unlink(missing_ok=True)

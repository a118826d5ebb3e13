"""What each route answers, on a daemon at work."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from rig import NEVER, Rig, until

JOBS = [
    {"name": "ok", "schedule": NEVER, "command": "echo out; echo more", "captureStdout": True},
    {"name": "slow", "schedule": NEVER, "command": "trap '' TERM; sleep 60; sleep 60", "killTimeout": 30,
     "concurrencyPolicy": "Forbid"},
    {"name": "off", "schedule": NEVER, "command": "true", "enabled": False},
    {"name": "boot", "schedule": "@reboot", "command": "exit 3"},
    {"name": "never", "schedule": "0 0 30 2 *", "command": "true"},
    {"name": "hourly", "schedule": "7 * * * *", "command": "true"},
]


def test_reading(rig: Rig) -> None:
    """Version, status, jobs, health, previews: the fields that clients rely on."""
    rig.start(JOBS)
    status, version = rig.http("GET", "/version")
    assert status == 200 and version.count(".") == 2
    text = rig.http("GET", "/status")[1]
    assert "off: disabled" in text and "never: scheduled (never fires)" in text and "boot: " in text
    assert "hourly: scheduled (in " in text
    rows = {row["job"]: row for row in rig.http("GET", "/status", headers={"Accept": "application/json"})[1]}
    assert rows["off"]["status"] == "disabled" and rows["hourly"]["scheduled_in"] <= 3600
    views = {view["name"]: view for view in rig.http("GET", "/jobs")[1]}
    assert list(views) == [job["name"] for job in JOBS]
    assert views["never"]["never_fires"] is True and views["off"]["never_fires"] is False
    assert views["boot"]["scheduled_in"] == "@reboot" and views["hourly"]["scheduled_at"].endswith(":07:00Z")
    assert views["slow"]["concurrencyPolicy"] == "Forbid" and views["slow"]["killTimeout"] == 30
    hourly = rig.job("hourly")
    assert (hourly["schedule"], hourly["running"], hourly["pids"], hourly["runs"]) == ("7 * * * *", False, [], [])
    until(lambda: rig.job("boot")["last_run"], 10, "the @reboot run")
    assert rig.job("boot")["last_run"]["trigger"] == "reboot" and rig.job("boot")["last_run"]["exit_code"] == 3
    health = rig.http("GET", "/health")[1]
    assert health["status"] == "ok" and health["jobs"] == len(JOBS) and health["durable"] is False
    fires = rig.http("GET", "/jobs/hourly/next?count=3")[1]["fires"]
    assert len(fires) == 3 and all(fire["at"].endswith(":07:00Z") for fire in fires)
    assert fires[0]["at"] == views["hourly"]["scheduled_at"]
    assert rig.http("GET", "/schedule/next?within=4000")[1]["fires"][0]["job"] == "hourly"
    preview = rig.http("GET", "/schedule/preview?expr=0%200%20*%20*%20*&tz=Europe/Berlin&count=2")[1]
    assert preview["valid"] and len(preview["fires"]) == 2 and preview["fires"][0][11:16] in ("22:00", "23:00", "00:00")
    assert rig.http("GET", "/schedule/preview?expr=61%20*%20*%20*%20*")[1]["valid"] is False
    explained = rig.http("GET", "/jobs/hourly/explain?at=2026-01-01T00:07:00Z")[1]
    assert explained["fires"] is True


@pytest.mark.parametrize("path", [
    "/jobs?x=1", "/jobs/ok/runs?limit=1000", "/runs?limit=1", "/runs?outcome=success", "/schedule/next?limit=1",
])
def test_parameters_within_their_range(rig: Rig, path: str) -> None:
    """Parameters at their bounds are taken; unknown ones are passed over."""
    rig.start(JOBS)
    assert rig.http("GET", path)[0] == 200


def test_refusals(rig: Rig) -> None:
    """Each kind of request that cannot be served has its status and says why."""
    rig.start(JOBS)
    cases: dict[tuple[str, str], int] = {
        ("GET", "/jobs/none"): 404, ("GET", "/jobs/none/runs"): 404, ("GET", "/jobs/none/logs"): 404,
        ("POST", "/jobs/none/start"): 404, ("POST", "/jobs/none/cancel"): 404, ("GET", "/jobs/none/next"): 404,
        ("GET", "/jobs/none/explain"): 404, ("GET", "/runs/none"): 404, ("GET", "/runs/none/log"): 404,
        ("POST", "/runs/none/cancel"): 404, ("GET", "/nothing"): 404, ("GET", "/"): 404,
        ("POST", "/jobs/ok/cancel"): 409, ("POST", "/jobs/off/start"): 409, ("GET", "/jobs/boot/explain"): 409,
        ("GET", "/jobs/ok/runs?limit=0"): 400, ("GET", "/jobs/ok/runs?limit=1001"): 400,
        ("GET", "/jobs/ok/runs?limit=x"): 400, ("GET", "/runs?limit=nan"): 400, ("GET", "/runs?limit=inf"): 400,
        ("GET", "/runs?outcome=maybe"): 400, ("GET", "/jobs/hourly/next?count=0"): 400,
        ("GET", "/jobs/hourly/explain?at=now"): 400, ("GET", "/jobs/hourly/explain?at=2026-01-01T00:00:00"): 400,
        ("GET", "/jobs/hourly/explain?at=0001-01-01T00:00:00%2B14:00"): 400,
        ("GET", "/jobs/hourly/explain?at=9999-12-31T23:59:59-14:00"): 400,
        ("GET", "/schedule/preview"): 400, ("GET", "/schedule/preview?expr=*&tz=Mars"): 400,
        ("GET", "/schedule/preview?expr=*&tz=../../etc/passwd"): 400, ("GET", "/schedule/preview?expr=*&tz="): 400,
        ("GET", "/schedule/preview?expr=*&dayRule=xor"): 400, ("GET", "/schedule/next?within=-1"): 400,
        ("POST", "/jobs"): 405, ("DELETE", "/runs/none"): 405,
    }
    for (method, path), expected in cases.items():
        status, body = rig.http(method, path)
        assert status == expected and list(body) == ["error"] and body["error"], (method, path, status, body)


def test_a_cancel_can_be_watched(rig: Rig) -> None:
    """POST /runs/{id}/cancel answers 202 at once; asked, signalled, forced and confirmed are seen as they happen, and
    the first reason stays; forcing cuts the grace short; afterwards it is 409."""
    rig.start(JOBS)
    run = rig.fire("slow")
    pid = rig.running(run)
    assert rig.http("POST", "/jobs/slow/start")[0] == 409
    status, view = rig.http("POST", f"/runs/{run}/cancel", {"reason": "first", "requested_by": "ann"})
    assert status == 202 and view["id"] == run and view["outcome"] is None and view["finished_at"] is None
    view = until(lambda: v if (v := rig.run(run))["stop"] and v["stop"]["signalled_at"] else None, 5, "the signal")
    assert view["phase"] == "stopping" and view["pid"] == pid
    stop = view["stop"]
    assert stop["reason"] == "first" and stop["requested_by"] == "ann" and stop["forced_at"] is None
    assert rig.http("POST", f"/runs/{run}/cancel?wait=0.2", {"reason": "second"})[0] == 202
    status, view = rig.http("POST", f"/runs/{run}/cancel?wait=10", {"force": True, "requested_by": "bob"})
    assert status == 200 and view["gone"]["state"] == "proven"
    stop = rig.recorded(run)["stop"]
    assert stop["reason"] == "first" and stop["requested_by"] == "ann" and stop["cause"] == "cancel"
    assert stop["requested_at"] <= stop["signalled_at"] <= stop["forced_at"] <= stop["confirmed_at"]
    status, body = rig.http("POST", f"/runs/{run}/cancel")
    assert status == 409 and "has ended" in body["error"]


def test_runs_are_listed_in_pages(rig: Rig) -> None:
    """GET /runs goes from the newest to the oldest; `next` leads on; live runs are in it; filters hold."""
    rig.start(JOBS)
    made = [rig.fire("ok")]
    for _ in range(6):
        rig.recorded(made[-1])
        made.append(rig.fire("ok"))
    rig.recorded(made[-1])
    live = rig.fire("slow")
    rig.running(live)
    seen: list[str] = []
    path: str | None = "/runs?limit=3"
    while path is not None:
        page = rig.http("GET", path)[1]
        seen += [run["id"] for run in page["runs"]]
        path = f"/runs?limit=3&before={page['next']}" if page["next"] else None
    assert [run for run in seen if run in made or run == live] == [live, *reversed(made)]
    assert {run["job"] for run in rig.http("GET", "/runs?job=ok")[1]["runs"]} == {"ok"}
    assert rig.http("GET", "/runs?outcome=failure")[1]["runs"][0]["job"] == "boot"
    middle = rig.http("GET", f"/runs/{made[3]}")[1]["created_at"].replace("+", "%2B")
    assert [run["id"] for run in rig.http("GET", f"/runs?job=ok&since={middle}")[1]["runs"]] == made[:2:-1]
    assert [run["id"] for run in rig.http("GET", f"/runs?job=ok&until={middle}")[1]["runs"]] == made[2::-1]
    assert rig.http("GET", "/runs?node=elsewhere")[1]["runs"] == []
    assert rig.http("GET", "/runs?since=yesterday")[0] == rig.http("GET", "/runs?since=2026-01-01T00:00:00")[0] == 400
    stats = rig.http("GET", "/jobs/ok/runs?limit=2")[1]
    assert [run["id"] for run in stats["runs"]] == made[-2:] and stats["stats"]["total"] == 7
    assert stats["stats"]["success_rate"] == 1 and stats["stats"]["last_duration"] == stats["runs"][-1]["duration"]
    rig.http("POST", f"/runs/{live}/cancel?wait=5", {"force": True})


@pytest.mark.parametrize(("asked", "status", "text"), [
    ("bytes=0-2", 206, "out"), ("bytes=4-", 206, "more\n"), ("bytes=-5", 206, "more\n"), ("bytes=0-999", 206, None),
    ("bytes=9-", 416, None), ("bytes=5-2", 416, None), ("bytes=a-b", 200, "out\nmore\n"),
    ("bytes=-", 200, "out\nmore\n"),
    ("lines=1-2", 200, "out\nmore\n"), ("bytes=0-1,3-4", 200, "out\nmore\n"),
])
def test_ranges_of_a_log(rig: Rig, tmp_path: Path, asked: str, status: int, text: str | None) -> None:
    """One byte range is honoured, an impossible one refused, anything else gives the whole."""
    rig.start(JOBS, state={"path": str(tmp_path / "state")})
    run = rig.fire("ok")
    rig.recorded(run)
    got, body = rig.http("GET", f"/runs/{run}/log", headers={"Range": asked})
    assert got == status and (text is None or body == text)


def test_a_unix_socket(rig: Rig, tmp_path: Path) -> None:
    """The API on a unix socket: made for the owner alone, taken over from a daemon that was killed, any Host served."""
    import http.client
    import socket

    class Unix(http.client.HTTPConnection):
        def connect(self) -> None:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(str(path))

    def ask() -> Any:
        connection = Unix("anything.example")
        connection.request("GET", "/version")
        return connection.getresponse().status

    path = Path("/tmp") / f"sexton-test-{os.getpid()}.sock"
    web = {"listen": [f"http://127.0.0.1:{rig.port}", f"unix://{path}"]}
    try:
        rig.write([])
        rig.start(JOBS, web=web)
        assert ask() == 200 and stat.S_IMODE(path.stat().st_mode) == 0o600
        rig.kill9()
        rig.start()
        assert ask() == 200
    finally:
        rig.close()
        path.unlink(missing_ok=True)

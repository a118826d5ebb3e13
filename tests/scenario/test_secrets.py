"""Secrets of a job: in its environment, and nowhere else."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from rig import NEVER, Rig, until
from sinks import HookSink, MailSink

SECRET = "hunter2-7091"


def job(command: str, **options: Any) -> dict[str, Any]:
    return {"name": "s", "command": command, "schedule": NEVER, "captureStdout": True, **options}


def everything_below(folder: Path, but: set[str]) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name not in but)


def test_91_a_secret_is_seen_nowhere(rig: Rig, hooks: HookSink, mails: MailSink, tmp_path: Path) -> None:
    """91: A secret from a file reaches the command, and neither state, log, API, mail nor webhook."""
    (tmp_path / "secret").write_text(SECRET + "\n")
    mail = {"from": "a@example.org", "to": "b@example.org", "smtpHost": "127.0.0.1", "smtpPort": mails.port}
    rig.start([job(
        "echo using $TOKEN; echo ${#TOKEN} > length; ./no-such --password=$TOKEN",
        environment=[{"key": "TOKEN", "fromFile": "./secret"}], workingDirectory=str(tmp_path),
        onFailure={"report": {"mail": mail, "webhook": {"url": hooks.url("ok")}}},
    )], state={"path": str(tmp_path / "state")})
    run = rig.recorded(rig.fire("s"))
    assert run["exit_code"] == 127
    assert (tmp_path / "length").read_text() == f"{len(SECRET)}\n"
    until(lambda: hooks.requests and mails.messages, what="both reports")
    asked = [rig.http("GET", path)[1] for path in (
        "/jobs", "/jobs/s", "/jobs/s/runs", "/runs", f"/runs/{run['id']}", f"/runs/{run['id']}/log", "/metrics")]
    assert "using ***" in str(asked)
    assert "using ***" in rig.log()
    assert SECRET not in json.dumps(asked) + str(asked)
    assert SECRET not in mails.messages[0].get_content() + str(mails.lines)
    assert SECRET.encode() not in hooks.requests[0][2]
    rig.stop()
    assert SECRET.encode() not in everything_below(tmp_path, but={"secret"})


def test_split_over_writes_and_lines(rig: Rig, tmp_path: Path) -> None:
    """A secret that is written in pieces, and a key of several lines, are masked in the file, in memory and for live
    readers."""
    key = "line-one-of-it\nline-two-of-it"
    write = (
        "import os, time\n"
        "a, b = os.environ['A'], os.environ['B']\n"
        "for part in (a[:5], a[5:], '!\\n', b[:20], b[20:], '.\\n'):\n"
        "    os.write(1, part.encode()); time.sleep(0.15)\n"
        "for line in os.environ['B'].split('\\n'): print('>', line)\n"
    )
    rig.environment["FROM_ENV"] = SECRET
    secrets = [{"name": "A", "fromEnvVar": "FROM_ENV"}, {"name": "B", "value": key}]
    command = {"command": ["python3", "-c", write]}
    rig.start([job("", secrets=secrets) | command], state={"path": str(tmp_path / "state")})
    run = rig.fire("s")
    with urllib.request.urlopen(f"http://127.0.0.1:{rig.port}/jobs/s/logs", timeout=20) as live:
        streamed = live.read().decode()
    rig.recorded(run)
    shown = rig.http("GET", f"/runs/{run}/log")[1]
    assert shown == "***!\n***.\n> ***\n> ***\n"
    for told in (streamed, rig.log()):
        assert "***!" in told
        assert not any(part in told for part in (SECRET, SECRET[:5], SECRET[5:], "line-one", "line-two"))


@pytest.mark.parametrize(("secret", "words"), [
    ({"fromFile": "./none"}, "No such file"), ({"fromEnvVar": "NOT_SET"}, "NOT_SET is not set"),
])
def test_a_secret_that_is_not_there(rig: Rig, secret: dict[str, str], words: str) -> None:
    """The run is not started, with the reason in its record; the place of the secret is named."""
    rig.start([job("true", secrets=[{"name": "A", **secret}])])
    run = rig.recorded(rig.fire("s"))
    assert run["outcome"] == "failure"
    assert run["exit_code"] == 127
    assert words in run["fail_reason"]


def test_a_file_that_never_answers_holds_nobody_up(rig: Rig, tmp_path: Path) -> None:
    """A secret in a FIFO that nobody writes: its own run fails in time, other jobs start, the daemon ends."""
    os.mkfifo(tmp_path / "fifo")
    rig.start([job("true", secrets=[{"name": "A", "fromFile": str(tmp_path / "fifo")}]), job("true") | {"name": "t"}])
    stuck = rig.fire("s")
    assert rig.recorded(rig.fire("t"), 2.0)["outcome"] == "success"
    assert "did not answer" in rig.recorded(stuck, 10.0)["fail_reason"]
    assert rig.stop() == 0


def test_a_kept_run_masks_for_itself(rig: Rig, tmp_path: Path) -> None:
    """What outlives the daemon writes its own file, and takes the secret out of it; nothing of the secret is in what it
    keeps for a later daemon."""
    state = tmp_path / "state"
    rig.start([job("echo at $A; until test -e go; do sleep 0.05; done; echo again $A", onDaemonLoss="keep",
                   secrets=[{"name": "A", "value": SECRET}], workingDirectory=str(tmp_path),
                   onSuccess={"report": {"webhook": {"url": f"http://localhost:1/{SECRET}"}}})],
              state={"path": str(state)})
    run = rig.fire("s")
    until(lambda: b"at ***" in everything_below(state, set()), what="output in the file")
    rig.kill9()
    assert SECRET.encode() not in everything_below(state, set())
    rig.start()
    (tmp_path / "go").touch()
    assert rig.recorded(run)["outcome"] == "success"
    assert rig.http("GET", f"/runs/{run}/log")[1] == "at ***\nagain ***\n"
    rig.logged("could not be reported", seconds=10.0)
    assert SECRET not in rig.log()
    rig.stop()
    assert SECRET.encode() not in everything_below(tmp_path, {"jobs.yaml"})


def test_a_literal_in_the_command_is_not_shown(rig: Rig) -> None:
    """The API masks what the configuration itself calls a secret, also in a command."""
    rig.start([job(f"echo {SECRET}", secrets=[{"name": "A", "value": SECRET}])])
    assert rig.job("s")["command"] == "echo ***"
    run = rig.recorded(rig.fire("s"))
    assert rig.http("GET", "/jobs/s/runs")[1]["runs"][0]["id"] == run["id"]
    assert SECRET not in json.dumps(rig.http("GET", "/jobs")[1]) + rig.log()

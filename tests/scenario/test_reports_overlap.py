"""Kinds of fault that people reported of other schedulers: overlap, deadlines, processes that get away.

Numbers are those of the table in README.md.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from rig import NEVER, Rig, always, living, new_tag, until

EVERY_SECOND = "* * * * * * *"


def test_09_closed_streams_are_not_the_end(rig: Rig, tmp_path: Path) -> None:
    """A run that closes both captured streams early counts as running until its process has gone: Forbid starts no
    second one, and the fires that it drops are logged."""
    marks, tag = tmp_path / "marks", new_tag()
    rig.start([{
        "name": "j", "schedule": EVERY_SECOND, "concurrencyPolicy": "Forbid",
        "captureStdout": True, "captureStderr": True,
        "command": f"exec >/dev/null 2>&1; echo $(date +%s.%N) s >> {marks}; sleep 2.6; echo {tag} >/dev/null; "
                   f"echo $(date +%s.%N) e >> {marks}",
    }])
    until(lambda: marks.exists() and marks.read_text().count("s") >= 2, 15, "two runs")
    kinds = [line.split()[1] for line in marks.read_text().splitlines()]
    assert kinds[:3] == ["s", "e", "s"], "one run at a time"
    rig.logged("Job j", "is skipped", "Forbid")
    assert rig.job()["skipped"] >= 2
    until(lambda: len(living(tag)) == 1, 2, "one run; its shell is two processes while it forks")


def test_11_piled_up_copies_keep_to_themselves(rig: Rig, tmp_path: Path) -> None:
    """With Allow every copy has its own record and its own output; a change to Forbid counts the copies that run."""
    job = {
        "name": "pile", "schedule": EVERY_SECOND, "concurrencyPolicy": "Allow", "captureStdout": True,
        "captureStderr": True,
        "failsWhen": {"producesStderr": False},
        "command": "echo go $$; sleep 0.3; echo out $$; echo err $$ >&2; sleep 3; echo bye $$",
    }
    state = {"path": str(tmp_path / "state")}
    rig.start([job], state=state)
    until(lambda: len(rig.job("pile")["pids"]) >= 3, 10, "three copies at once")
    rig.write([{**job, "concurrencyPolicy": "Forbid"}], state=state)
    assert rig.http("POST", "/reload")[1]["changed"] == 1
    alive = rig.job("pile")["runs"]
    assert len(alive) >= 3 and rig.http("POST", "/jobs/pile/start")[0] == 409
    records = [rig.recorded(run) for run in alive]
    assert len({record["pid"] for record in records}) == len(alive)
    for record in records:
        status, text = rig.http("GET", f"/runs/{record['id']}/log")
        pid = record["pid"]
        assert status == 200 and sorted(text.splitlines()) == sorted(
            [f"go {pid}", f"out {pid}", f"err {pid}", f"bye {pid}"])
        assert record["outcome"] == "success" and record["output"]["stderr"]["bytes"] == len(f"err {pid}\n")
    until(lambda: len(rig.job("pile")["runs"]) == 1, 5, "one copy under Forbid")
    always(lambda: len(rig.job("pile")["runs"]) <= 1, 1.5, "one copy under Forbid")


def test_13_the_limit_reaches_below_the_shell(rig: Rig) -> None:
    """A deadline ends what the shell started too, records a timeout, and a Forbid job runs again."""
    tag = new_tag()
    rig.start([{
        "name": "hang", "schedule": EVERY_SECOND, "concurrencyPolicy": "Forbid", "captureStderr": True,
        "executionTimeout": 0.5, "killTimeout": 0.3, "command": f"sleep {tag}; echo never",
    }])
    runs = until(lambda: found if len(found := rig.runs("hang")) >= 2 else None, 15, "two records")
    for run in runs:
        assert run["exit_code"] == -100 and run["outcome"] == "failure" and run["stop"]["cause"] == "timeout"
        assert 0.5 <= run["duration"] < 3 and run["gone"]["state"] == "proven"
    assert "never" not in rig.log()
    assert len(living(tag)) <= 2, "a shell and its sleep, of the one run that may be there now"


def test_17_the_hard_step_needs_no_leader(rig: Rig) -> None:
    """The leader of the group dies of the first signal, stubborn members do not: the forced step reaches them, and the
    leader's exit ends the wait long before killTimeout."""
    tag = new_tag()
    rig.start([{
        "name": "j", "schedule": NEVER, "executionTimeout": 0.5, "killTimeout": 8,
        "command": f"sh -c 'trap \"\" TERM; sleep {tag}; sleep {tag}' &\nexec sleep {tag}",
    }])
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == -100 and record["exit"]["signal"] == 15
    assert record["duration"] < 4 and record["gone"]["state"] == "proven"
    assert living(tag) == []


def test_21_a_cancel_ends_the_whole_chain(rig: Rig, tmp_path: Path) -> None:
    """A cancel ends a program several shells down within the grace, no later step runs, and the slot is free at
    once."""
    tag, tail = new_tag(), tmp_path / "tail"
    rig.start([{
        "name": "deep", "schedule": NEVER, "killTimeout": 3, "concurrencyPolicy": "Forbid",
        "command": "sh -c 'sh -c \"python3 -c \\\"import subprocess; subprocess.run([\\\\\\\"sleep\\\\\\\",\\\\\\\""
                   f"{tag}\\\\\\\"])\\\"\"; echo tail >> {tail}'",
    }])
    run = rig.fire("deep")
    until(lambda: any(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in living(tag)), 10, "the sleep")
    asked = time.monotonic()
    status, body = rig.http("POST", "/jobs/deep/cancel")
    assert (status, body) == (200, {"cancelled": "deep", "instances": 1})
    assert time.monotonic() - asked < 3 and living(tag) == []
    again = rig.fire("deep")
    assert rig.recorded(run)["outcome"] == "cancelled" and not tail.exists()
    until(lambda: living(tag), 10, "the second run")
    until(lambda: rig.run(again)["phase"] == "running", what="its start is told")
    rig.http("POST", f"/runs/{again}/cancel?wait=10")
    assert living(tag) == []


def test_23_a_daemonised_grandchild_cannot_strand_the_run(rig: Rig) -> None:
    """A grandchild with its own session that holds the captured stream is ended at the deadline, without waiting for
    the bounds on held output; the next run starts."""
    tag = new_tag()
    program = (
        "import os, time\n"
        "if os.fork(): time.sleep(3600)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        f"os.execvp('sleep', ['sleep', '{tag}'])\n"
    )
    rig.start([{
        "name": "j", "schedule": NEVER, "command": ["python3", "-c", program], "concurrencyPolicy": "Forbid",
        "captureStdout": True, "executionTimeout": 0.8, "killTimeout": 0.3,
    }])
    run = rig.fire()
    record = rig.recorded(run)
    assert record["exit_code"] == -100 and record["gone"]["state"] == "proven" and not record["gone"]["survivors"]
    assert record["output"]["stdout"]["truncated"] is False and living(tag) == []
    again = rig.fire()
    assert rig.recorded(again)["exit_code"] == -100 and living(tag) == []


def test_25_a_server_in_the_background(rig: Rig) -> None:
    """With its streams redirected a started server is left alone, named in the record, and outlives the daemon's end;
    one that inherited the streams keeps the run running until the deadline, and is then ended."""
    clean, holds = new_tag(), new_tag() + "1"
    capture = {"schedule": NEVER, "captureStdout": True, "captureStderr": True}
    rig.start([
        {"name": "clean", **capture, "command": f"setsid sleep {clean} >/dev/null 2>&1 </dev/null & exit 0"},
        {"name": "holds", **capture, "command": f"setsid sleep {holds} & exit 0", "executionTimeout": 1.5,
         "killTimeout": 0.2},
    ])
    held = rig.fire("holds")
    record = rig.recorded(rig.fire("clean"), 5)
    servers = living(clean)
    assert record["outcome"] == "success" and record["duration"] < 2 and len(servers) == 1
    assert record["gone"]["state"] == "survivors" and [s["pid"] for s in record["gone"]["survivors"]] == servers
    until(lambda: rig.run(held)["phase"] == "draining", 5, "waiting for the held output is visible")
    late = rig.recorded(held)
    assert late["exit_code"] == -100 and late["exit"]["code"] == 0 and late["duration"] >= 1.5
    assert living(holds) == [] and living(clean) == servers
    assert rig.stop() == 0
    assert living(clean) == servers, "what was left alone is not ended with the daemon"
    for pid in servers:
        os.kill(pid, 9)


def test_49_a_lost_run_does_not_stay_running(rig: Rig) -> None:
    """The daemon is killed and the command with it: after the restart the old run is unknown and gone, nothing counts
    as running, and Forbid lets the next fire start."""
    tag = new_tag()
    rig.start([{"name": "long", "schedule": "*/2 * * * * * *", "command": f"exec sleep {tag}",
                "concurrencyPolicy": "Forbid", "killTimeout": 1}], state={"path": str(rig.folder / "state")})
    pid = until(lambda: living(tag), 10, "the first fire")[0]
    [lost] = rig.job("long")["runs"]
    rig.kill9()
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass  # its supervisor was faster
    rig.start()
    record = rig.run(lost)
    assert record["outcome"] == "unknown" and record["phase"] == "recorded" and record["gone"]["state"] == "proven"
    until(lambda: living(tag), 10, "the next fire")
    assert lost not in rig.job("long")["runs"] and rig.http("GET", "/health")[1]["running"] == 1
    assert [run["id"] for run in rig.runs("long")] == [lost]

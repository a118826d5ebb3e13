"""`onDaemonLoss: keep`: the daemon goes, the run goes on, and the next daemon has it as if it had started it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from keep_kit import cgroup_of, kept, nothing_left, runtime, state, supervisor_of
from probes import descendants, named
from rig import NEVER, Rig, alive, always, living, new_tag, until

pytestmark = pytest.mark.usefixtures("no_keepers_left")


def test_a_run_is_taken_over_with_everything(rig: Rig, tmp_path: Path) -> None:
    """After kill -9 the process lives on and writes on; the next daemon shows it with its pid, start and deadline,
    refuses a second one, follows its output and records its exit code, usage and whole output, once."""
    go = tmp_path / "go"
    tick = tmp_path / "tick"
    command = f"echo one; while [ ! -e {go} ]; do sleep 0.05; [ -e {tick} ] && echo two && rm {tick}; done; " \
              "echo three; exit 7"
    rig.start([kept(command, executionTimeout=60)], state=state(tmp_path))
    run = rig.fire()
    pid = rig.running(run)
    until(lambda: "one" in str(rig.http("GET", f"/runs/{run}/log")[1]), 5, "the first line")
    before = rig.run(run)
    rig.kill9()
    tick.touch()
    until(lambda: not tick.exists(), 5, "the job writes while nobody is there")
    assert alive(pid)
    rig.start()
    view = rig.run(run)
    assert view["phase"] == "running" and view["pid"] == pid and view["adopted"] == 1
    assert view["started_at"][:19] == before["started_at"][:19]
    assert view["deadline_at"][:19] == before["deadline_at"][:19]
    assert rig.http("POST", "/jobs/j/start")[0] == 409, "Forbid holds"
    assert rig.http("GET", f"/runs/{run}/log")[1] == "one\ntwo\n"
    go.touch()
    record = rig.recorded(run)
    assert record["exit_code"] == 7 and record["outcome"] == "failure" and record["gone"]["state"] == "proven"
    assert record["adopted"] == 1 and record["resources"] is not None and record["output"]["stdout"]["bytes"] == 14
    assert rig.http("GET", f"/runs/{run}/log")[1] == "one\ntwo\nthree\n"
    assert [r["id"] for r in rig.runs()] == [run] and runtime(tmp_path) == []


def test_a_run_that_ends_unwatched_keeps_its_outcome(rig: Rig, tmp_path: Path) -> None:
    """It ends while no daemon is there, with all that it wrote: the next start records its own exit code, output, usage
    and the instant at which it ended, and asks nobody to stay."""
    go = tmp_path / "go"
    rig.start([kept(f"echo begun; while [ ! -e {go} ]; do sleep 0.05; done; echo done; exit 5")], state=state(tmp_path))
    run = rig.fire()
    pid = rig.running(run)
    supervisor = supervisor_of(pid)
    rig.kill9()
    go.touch()
    until(lambda: not alive(supervisor), 5, "the supervisor has left word and gone")
    ended = time.time()
    assert runtime(tmp_path) == [f"{run}.end"]
    time.sleep(1.2)
    for _ in range(2):
        rig.start()
        record = rig.recorded(run)
        assert record["exit_code"] == 5 and record["outcome"] == "failure" and record["pid"] == pid
        assert record["gone"]["state"] == "proven" and record["resources"] is not None
        assert record["adopted"] == 1 and record["output"]["stdout"]["bytes"] == 11
        assert abs(_epoch(record["finished_at"]) - ended) < 1.0, "when it ended, not when it was heard of"
        assert rig.http("GET", f"/runs/{run}/log")[1] == "begun\ndone\n"
        assert [r["id"] for r in rig.runs()] == [run] and runtime(tmp_path) == []
        rig.kill9()


@pytest.mark.parametrize("watched", [True, False])
def test_a_run_without_captured_streams_keeps_its_outcome(rig: Rig, tmp_path: Path, watched: bool) -> None:
    """A run of which nothing is captured is over when its process is, in its own daemon and while none is there; its
    exit code is recorded."""
    go = tmp_path / "go"
    rig.start([kept(f"while [ ! -e {go} ]; do sleep 0.05; done; exit 5", captureStdout=False, captureStderr=False)],
              state=state(tmp_path))
    run = rig.fire()
    supervisor = supervisor_of(rig.running(run))
    if not watched:
        rig.kill9()
    go.touch()
    until(lambda: not alive(supervisor), 5, "the supervisor has gone")
    if not watched:
        rig.start()
    record = rig.recorded(run)
    assert (record["outcome"], record["exit_code"], record["gone"]["state"]) == ("failure", 5, "proven")
    assert "Traceback" not in rig.log()


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def test_the_deadline_holds_without_a_daemon(rig: Rig, tmp_path: Path) -> None:
    """Nobody is there when executionTimeout passes: the supervisor ends the tree by the ladder of the job, and the next
    daemon records a timeout, -100, with the steps and the proof."""
    tag = new_tag()
    rig.start([kept(f"trap '' TERM; setsid sleep {tag} & sleep {tag}", executionTimeout=1.5, killTimeout=0.5)],
              state=state(tmp_path))
    run = rig.fire()
    rig.running(run)
    rig.kill9()
    assert living(tag)
    until(lambda: not living(tag), 6, "the bound")
    until(lambda: runtime(tmp_path) == [f"{run}.end"], 5, "word is left")
    rig.start()
    record = rig.recorded(run)
    assert record["exit_code"] == -100 and record["stop"]["cause"] == "timeout" and record["outcome"] == "failure"
    stop = record["stop"]
    assert 0.4 <= _epoch(stop["forced_at"]) - _epoch(stop["signalled_at"]) < 1.5
    assert record["gone"]["state"] == "proven" and stop["confirmed_at"] is not None
    assert 1.9 <= record["duration"] < 4


def test_what_is_left_of_the_deadline_is_kept(rig: Rig, tmp_path: Path) -> None:
    """A run that was taken over is ended at the deadline that it had from the beginning."""
    tag = new_tag()
    rig.start([kept(f"sleep {tag}", executionTimeout=4)], state=state(tmp_path))
    run = rig.fire()
    rig.running(run)
    rig.kill9()
    rig.start()
    assert rig.run(run)["phase"] == "running"
    record = rig.recorded(run)
    assert record["exit_code"] == -100 and 3.9 <= record["duration"] < 5 and living(tag) == []


@pytest.mark.parametrize("force", [False, True])
def test_cancel_reaches_a_run_that_was_taken_over(rig: Rig, tmp_path: Path, force: bool) -> None:
    """Twice over: the whole tree goes, escaped and deaf processes included, and it is proven."""
    tag = new_tag()
    rig.start([kept(f"trap '' TERM; (setsid sh -c 'sleep {tag} & exit 0' &); env -i setsid sleep {tag} & sleep {tag}",
                    killTimeout=0.3)], state=state(tmp_path))
    run = rig.fire()
    rig.running(run)
    for _ in range(2):
        rig.kill9()
        rig.start()
    until(lambda: len(living(tag)) >= 3, 5, "all of them")
    status, view = rig.http("POST", f"/runs/{run}/cancel?wait=10", {"reason": "enough", "force": force})
    assert status == 200 and view["gone"]["state"] == "proven" and living(tag) == []
    record = rig.recorded(run)
    assert record["outcome"] == "cancelled" and record["adopted"] == 2 and record["stop"]["reason"] == "enough"


def test_a_stop_that_was_begun_is_brought_to_its_end(rig: Rig, tmp_path: Path) -> None:
    """The daemon dies between SIGTERM and SIGKILL: the supervisor goes on with the ladder, the job gets one SIGTERM,
    and the record says who cancelled and why."""
    tag, count = new_tag(), tmp_path / "terms"
    rig.start([kept(f"trap 'echo x >> {count}' TERM; while :; do sleep 0.1; : {tag}; done", killTimeout=3)],
              state=state(tmp_path))
    run = rig.fire()
    rig.running(run)
    rig.http("POST", f"/runs/{run}/cancel", {"reason": "disk is full", "requested_by": "ada"})
    until(count.exists, 5, "the graceful step")
    rig.kill9()
    rig.start()
    record = rig.recorded(run)
    nothing_left(tag)
    assert record["outcome"] == "cancelled" and record["exit"] == {"code": None, "signal": 9}
    assert record["stop"]["requested_by"] == "ada" and record["stop"]["reason"] == "disk is full"
    assert count.read_text() == "x\n" and record["gone"]["state"] == "proven"


def test_a_stop_goes_on_while_nobody_is_there(rig: Rig, tmp_path: Path) -> None:
    """The same, and the next daemon comes after the end of it."""
    tag = new_tag()
    rig.start([kept(f"trap '' TERM; sleep {tag}", killTimeout=1)], state=state(tmp_path))
    run = rig.fire()
    rig.running(run)
    rig.http("POST", f"/runs/{run}/cancel", {"requested_by": "ada"})
    until(lambda: rig.run(run)["stop"]["signalled_at"], 5, "the graceful step")
    rig.kill9()
    until(lambda: runtime(tmp_path) == [f"{run}.end"], 8, "word is left")
    assert living(tag) == []
    rig.start()
    record = rig.recorded(run)
    assert record["outcome"] == "cancelled" and record["stop"]["requested_by"] == "ada"
    assert record["stop"]["forced_at"] is not None and record["gone"]["state"] == "proven"


def test_replace_ends_a_run_that_was_taken_over(rig: Rig, tmp_path: Path) -> None:
    """The new instance starts when the old one is gone."""
    tag = new_tag()
    rig.start([kept(f"sleep {tag}", concurrencyPolicy="Replace")], state=state(tmp_path))
    old = rig.fire()
    rig.running(old)
    rig.kill9()
    rig.start()
    new = rig.fire()
    assert rig.recorded(old)["outcome"] == "replaced"
    rig.running(new)
    assert len(living(tag)) <= 2, "one instance: a shell and its child at most"


def test_not_a_byte_is_lost(rig: Rig, tmp_path: Path) -> None:
    """A job that writes without a pause through three daemons: its file has every line once and in order."""
    lines = 400_000
    script = f"import sys\nfor n in range({lines}):\n print(n)\nprint('end', file=sys.stderr)"
    (tmp_path / "w.py").write_text(script)
    rig.start([kept(f"{sys.executable} {tmp_path}/w.py; sleep 2", mirrorOutput=False,
                    failsWhen={"producesStderr": False})], state=state(tmp_path))
    run = rig.fire()
    rig.running(run)
    for pause in (0.02, 0.1):
        time.sleep(pause)
        rig.kill9()
        rig.start()
    record = rig.recorded(run, 30)
    assert record["outcome"] == "success", record
    status, text = rig.http("GET", f"/runs/{run}/log")
    assert status == 200 and text.replace("end\n", "") == "".join(f"{n}\n" for n in range(lines))
    assert record["output"]["stdout"]["bytes"] == len(text) - 4 and record["output"]["stderr"]["bytes"] == 4
    assert record["output"]["log_dropped_bytes"] == 0


def test_sigterm_leaves_it(rig: Rig, tmp_path: Path) -> None:
    """A clean shutdown ends the other runs, and leaves this one to the next daemon; it ends at once where nothing else
    runs."""
    tag, other = new_tag(), new_tag()
    rig.start([kept(f"sleep {tag}; exit 4"),
               {"name": "k", "schedule": NEVER, "command": f"sleep {other}", "killTimeout": 1}],
              state=state(tmp_path), shutdownTimeout=0.5)
    run, doomed = rig.fire(), rig.fire("k")
    pid = rig.running(run)
    rig.running(doomed)
    rig.signal(signal.SIGTERM)
    assert rig.wait(10) == 0 and alive(pid) and living(other) == []
    rig.start()
    assert rig.recorded(doomed)["stop"]["cause"] == "shutdown"
    assert rig.run(run)["pid"] == pid and rig.run(run)["adopted"] == 1
    began = time.monotonic()
    rig.signal(signal.SIGTERM)
    assert rig.wait(10) == 0 and time.monotonic() - began < 3 and alive(pid)
    rig.start()
    assert rig.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
    assert living(tag) == [] and rig.recorded(run)["adopted"] == 2


def test_sigterm_leaves_one_that_is_just_being_started(rig: Rig, tmp_path: Path) -> None:
    """SIGTERM comes when the run is in the hands of a supervisor that has not said yet that it has started: it starts,
    and is left to the next daemon."""
    tag = new_tag()
    rig.start([kept(f"exec sleep {tag}"), {"name": "k", "schedule": NEVER, "command": "true"}], state=state(tmp_path),
              shutdownTimeout=0)
    rig.recorded(rig.fire("k"))
    warm = named(rig.pid, "sexton-run")
    assert warm
    for pid in warm:
        os.kill(pid, signal.SIGSTOP)
    run = rig.fire()
    rig.signal(signal.SIGTERM)
    rig.logged("Shutting down")
    for pid in warm:
        os.kill(pid, signal.SIGCONT)
    assert rig.wait(10) == 0 and len(living(tag)) == 1
    rig.start()
    assert rig.run(run)["adopted"] == 1
    assert rig.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200 and living(tag) == []


def test_a_deleted_socket_is_made_again(rig: Rig, tmp_path: Path) -> None:
    """A job that deletes the runtime directory is taken over all the same."""
    tag = new_tag()
    rig.start([kept(f"rm -rf {tmp_path}/state/default/kept; sleep {tag}")], state=state(tmp_path))
    run = rig.fire()
    pid = rig.running(run)
    until(lambda: living(tag), 5, "the job is past that")
    rig.kill9()
    rig.start()
    assert rig.run(run)["pid"] == pid and rig.run(run)["phase"] == "running"
    assert rig.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
    nothing_left(tag)


def test_a_stopped_supervisor_is_set_going(rig: Rig, tmp_path: Path) -> None:
    """One that was stopped while nobody was there is roused by the next daemon."""
    tag = new_tag()
    rig.start([kept(f"sleep {tag}")], state=state(tmp_path))
    run = rig.fire()
    supervisor = supervisor_of(rig.running(run))
    os.kill(supervisor, signal.SIGSTOP)
    rig.kill9()
    rig.start()
    assert rig.run(run)["phase"] == "running" and rig.run(run)["adopted"] == 1
    assert rig.http("POST", f"/runs/{run}/cancel?wait=10")[0] == 200
    nothing_left(tag)


def test_a_frozen_supervisor_is_waited_for(rig: Rig, tmp_path: Path) -> None:
    """It cannot answer the next daemon: its run counts as running all the same, and is taken over when it can."""
    tag = new_tag()
    rig.start([kept(f"echo begun; sleep {tag}")], state=state(tmp_path))
    run = rig.fire()
    freezer = cgroup_of(rig.running(run))
    if freezer is None:
        pytest.skip("no writable cgroup v2 here")
    (freezer / "cgroup.freeze").write_text("1")
    until(lambda: "frozen 1" in (freezer / "cgroup.events").read_text(), 5, "it is frozen")
    rig.kill9()
    rig.start()
    rig.logged("cannot be talked to", "does not answer")
    assert rig.run(run)["phase"] == "running" and rig.http("POST", "/jobs/j/start")[0] == 409
    (freezer / "cgroup.freeze").write_text("0")
    rig.logged("is taken over", seconds=15)
    status, view = rig.http("POST", f"/runs/{run}/cancel?wait=10")
    assert status == 200 and view["gone"]["state"] == "proven"
    nothing_left(tag)
    record = rig.recorded(run)
    assert record["outcome"] == "cancelled" and record["output"]["stdout"]["bytes"] == 6


@pytest.mark.parametrize("zygote_too", [False, True])
def test_a_supervisor_that_is_killed_later(rig: Rig, tmp_path: Path, zygote_too: bool) -> None:
    """The supervisor of a run that was taken over is killed: its zygote has stayed and ends the rest, which is proof;
    with the zygote dead as well nobody can vouch, except an empty cgroup."""
    tag = new_tag()
    rig.start([kept(f"setsid sleep {tag} & sleep {tag}")], state=state(tmp_path))
    run = rig.fire()
    pid = rig.running(run)
    supervisor = supervisor_of(pid)
    zygote = supervisor_of(supervisor)
    rig.kill9()
    rig.start()
    if zygote_too:
        os.kill(zygote, signal.SIGKILL)
    os.kill(supervisor, signal.SIGKILL)
    record = rig.recorded(run, 20)
    assert record["outcome"] == "unknown" and "supervisor" in record["fail_reason"]
    if record["containment"] == "supervisor+cgroup" or not zygote_too:
        nothing_left(tag)
        assert record["gone"] == {"state": "proven", "witnesses": ["cgroup" if zygote_too else "sweep"],
                                  "survivors": []}
    else:
        assert record["gone"]["state"] == "unknown"


def test_a_supervisor_that_was_killed_unseen(rig: Rig, tmp_path: Path) -> None:
    """Supervisor and daemon are both killed: the run is interrupted, recorded once as unknown, and nothing is left."""
    tag = new_tag()
    rig.start([kept(f"setsid sleep {tag} & sleep {tag}")], state=state(tmp_path))
    run = rig.fire()
    supervisor = supervisor_of(rig.running(run))
    rig.kill9()
    os.kill(supervisor, signal.SIGKILL)
    nothing_left(tag)
    rig.start()
    record = rig.recorded(run)
    assert record["outcome"] == "unknown" and record["gone"]["state"] == "proven" and runtime(tmp_path) == []
    assert [r["id"] for r in rig.runs()] == [run]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_other_daemons_leave_it_alone(rig: Rig, tmp_path: Path, elsewhere: bool) -> None:
    """A daemon with another state starts on this machine, also in a pid namespace where our pids mean nothing, while
    ours is dead: its sweep passes the run over, and ours takes it."""
    tool = shutil.which("unshare")
    prefix = (str(tool), "--pid", "--fork", "--kill-child", "--mount-proc") if elsewhere else ()
    if elsewhere and (tool is None or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode):
        pytest.skip("pid namespaces are not permitted here")
    tag = new_tag()
    rig.start([kept(f"setsid sleep {tag} & sleep {tag}")], state=state(tmp_path))
    pid = rig.running(run := rig.fire())
    until(lambda: len(living(tag)) >= 3, 5, "all of it")
    count = len(living(tag))
    rig.kill9()
    (tmp_path / "other").mkdir()
    other = Rig(tmp_path / "other", prefix)
    try:
        other.start([{"name": "k", "schedule": NEVER, "command": "true"}])
        other.recorded(other.fire("k"))
        assert alive(pid) and len(living(tag)) == count
    finally:
        if elsewhere:
            for child in descendants(other.pid)[:1]:
                os.kill(child, signal.SIGTERM)
        other.close()
    rig.start()
    assert rig.run(run)["pid"] == pid
    assert rig.http("POST", f"/runs/{run}/cancel?wait=10")[1]["gone"]["state"] == "proven"
    nothing_left(tag)


def test_one_of_another_version_is_held_and_not_killed(rig: Rig, tmp_path: Path) -> None:
    """A supervisor whose story the daemon does not know: the run is reported, Forbid holds, its process lives, and
    SIGKILL is not for the daemon to send; when it has ended the record says why nothing is known."""
    tag = new_tag()
    rig.start([kept(f"sleep {tag}"), {"name": "k", "schedule": NEVER, "command": "true"}], state=state(tmp_path))
    run = rig.fire()
    pid = rig.running(run)
    rig.recorded(rig.fire("k"))  # then the ledger has the pid, too
    rig.kill9()
    program = ("import sexton.execution.story as s, runpy, sys; s.VERSION = 99; sys.argv[0] = 'sexton'; "
               "runpy.run_module('sexton', run_name='__main__')")
    rig.command = ("-c", program)
    rig.start()
    rig.logged("cannot be talked to", "version")
    assert rig.run(run)["phase"] == "running" and rig.run(run)["pid"] == pid
    assert rig.http("POST", "/jobs/j/start")[0] == 409
    always(lambda: alive(pid), 0.5, "it is left alone")
    for process in living(tag):
        os.kill(process, signal.SIGKILL)
    record = rig.recorded(run, 10)
    assert record["outcome"] == "unknown" and "version" in record["fail_reason"]


def test_a_forged_socket_is_not_listened_to(rig: Rig, tmp_path: Path) -> None:
    """A socket of another user's process in the place of a supervisor's: it is refused, the run is interrupted."""
    if os.geteuid() != 0:
        pytest.skip("needs root to be somebody else")
    rig.start([kept("sleep 60")], state=state(tmp_path))
    run = rig.fire()
    supervisor = supervisor_of(rig.running(run))
    rig.kill9()
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: not alive(supervisor), 5, "its end")
    directory = tmp_path / "state" / "default" / "kept"
    (directory / f"{run}.sock").unlink()
    forged = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.chdir(directory)
    try:
        forged.bind(f"{run}.sock")
    finally:
        os.chdir("/")
    os.seteuid(65534)
    try:
        forged.listen(4)
    finally:
        os.seteuid(0)
    rig.start()
    forged.close()
    assert rig.recorded(run)["outcome"] == "unknown"
    rig.logged("not listened to")


def test_without_state_it_is_refused(rig: Rig) -> None:
    """There would be no place where a later daemon finds the run."""
    rig.write([kept("true")])
    process = rig.spawn()
    assert process.wait(20) == 1
    assert "onDaemonLoss keep requires a `state` section" in rig.log()


def test_in_its_first_daemon_it_is_like_any_other(rig: Rig, tmp_path: Path) -> None:
    """Followed while it runs, recorded when it ends, with its whole output; what is beyond the cap is counted."""
    rig.start([kept("seq 100000; echo bad >&2; exit 3", mirrorOutput=False)], state={**state(tmp_path),
                                                                                      "maxOutputBytes": 60_000})
    record = rig.recorded(rig.fire(), 10)
    whole = len("".join(f"{n}\n" for n in range(1, 100_001)))
    assert record["exit_code"] == 3 and record["adopted"] == 0 and record["gone"]["state"] == "proven"
    assert record["output"]["stdout"]["bytes"] == whole and record["output"]["stderr"]["bytes"] == 4
    text = rig.http("GET", f"/runs/{record['id']}/log")[1]
    dropped = record["output"]["log_dropped_bytes"]
    assert whole - 60_000 <= dropped < whole - 40_000 and f"{dropped} bytes dropped" in text
    assert text.startswith("1\n2\n") and "100000\n" in text[-20:]
    until(lambda: runtime(tmp_path) == [], 5, "the runtime directory is empty")


def test_nothing_stays_of_runs_that_are_recorded(rig: Rig, tmp_path: Path) -> None:
    """Fifty of them: no socket, no file and no supervisor is left, and the zygote has none but warm ones."""
    rig.start([kept("exit 0", concurrencyPolicy="Allow")], state=state(tmp_path))
    runs = [rig.fire() for _ in range(50)]
    for run in runs:
        assert rig.recorded(run)["outcome"] == "success"
    until(lambda: runtime(tmp_path) == [], 5, "the runtime directory is empty")
    until(lambda: not named(rig.pid, "sexton-keep"), 5, "no supervisor stays")


def test_a_start_that_fails_is_recorded_as_such(rig: Rig, tmp_path: Path) -> None:
    """127, with nothing left of it."""
    rig.start([{**kept("x"), "command": ["/no/such/program"]}], state=state(tmp_path))
    record = rig.recorded(rig.fire())
    assert record["exit_code"] == 127 and "could not be started" in record["fail_reason"]
    until(lambda: runtime(tmp_path) == [], 5, "the runtime directory is empty")


def test_a_memory_cap_holds_without_a_daemon(rig: Rig, tmp_path: Path) -> None:
    """The run reaches its cap while nobody is there: it is ended whole, and the record says so, with the cap."""
    go = tmp_path / "go"
    script = tmp_path / "eat.py"
    script.write_text(f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\n"
                      "held = [bytearray(1 << 20) for _ in range(200)]\ntime.sleep(60)\n")
    job = kept(f"{sys.executable} {script}", resourceLimits={"memory": "48Mi"}, monitorResources=True)
    rig.start([job], state=state(tmp_path))
    run = rig.fire()
    rig.running(run)
    if not rig.run(run)["limits"]["enforced"]:
        rig.http("POST", f"/runs/{run}/cancel?wait=10", {"force": True})
        pytest.skip("no memory controller that may be used here")
    rig.kill9()
    other = Rig(tmp_path / "other")
    other.folder.mkdir()
    try:
        other.start([{"name": "k", "schedule": NEVER, "command": "true"}])
        go.touch()
        until(lambda: runtime(tmp_path) == [f"{run}.end"], 20, "word is left")
    finally:
        other.close()
    rig.start()
    record = rig.recorded(run)
    assert record["exit_code"] == -9 and record["stop"]["cause"] == "limits"
    assert record["fail_reason"].startswith("memory limit exceeded") and record["gone"]["state"] == "proven"
    assert record["limits"]["enforced"] is True and record["resources"]["cpu_seconds"] > 0


@pytest.mark.parametrize(("option", "left"), [({}, True), ({"leftovers": "kill"}, False)])
def test_leftovers_of_an_unwatched_end(rig: Rig, tmp_path: Path, option: dict[str, str], left: bool) -> None:
    """What the job says of processes that a run leaves behind holds while nobody is there."""
    tag, go = new_tag(), tmp_path / "go"
    child = f"setsid sleep {tag} > /dev/null 2>&1"
    command = f"while [ ! -e {go} ]; do sleep 0.05; done; {child} & sleep 0.2; exit 0"
    rig.start([kept(command, **option)], state=state(tmp_path))
    run = rig.fire()
    rig.running(run)
    rig.kill9()
    go.touch()
    until(lambda: runtime(tmp_path) == [f"{run}.end"], 5, "word is left")
    assert bool(living(tag)) is left
    rig.start()
    record = rig.recorded(run)
    assert record["outcome"] == "success" and record["exit_code"] == 0
    assert record["gone"]["state"] == ("survivors" if left else "proven")
    assert [process["pid"] for process in record["gone"]["survivors"]] == living(tag)
    for pid in living(tag):
        os.kill(pid, signal.SIGKILL)


def test_a_grace_period_for_the_tree_holds_without_a_daemon(rig: Rig, tmp_path: Path) -> None:
    """killWaitsFor: tree. The shell is gone at once, its child has its time to tidy up."""
    tidy, ready = tmp_path / "tidy", tmp_path / "ready"
    child = f"trap 'sleep 0.7; echo tidy > {tidy}; exit 0' TERM; touch {ready}; while :; do sleep 0.05; done"
    rig.start([kept(f"sh -c \"{child}\"; true", executionTimeout=1.5, killTimeout=5, killWaitsFor="tree")],
              state=state(tmp_path))
    run = rig.fire()
    rig.running(run)
    until(ready.exists, 5, "the trap")
    rig.kill9()
    until(lambda: runtime(tmp_path) == [f"{run}.end"], 10, "word is left")
    assert tidy.exists()
    rig.start()
    assert rig.recorded(run)["exit_code"] == -100

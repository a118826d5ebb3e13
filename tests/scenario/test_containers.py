"""The daemon where containers put it: process 1, read-only cgroups, no capabilities, no /proc to speak of. A run is
ended and proven gone in each of them; `sexton doctor` says what each of them gives."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from probes import descendants, holdings, zombies
from rig import NEVER, Rig, living, new_tag, until

UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
READ_ONLY = ('for m in $(awk \'$3 ~ /^cgroup2?$/ {print $2}\' /proc/mounts); do '
             'mount -o remount,bind,ro "$m" || exit 9; done; exec "$@"')
BARE = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--inh-caps=-all",
        "--ambient-caps=-all", "--bounding-set=-all")


def exposing() -> tuple[str, ...]:
    """Where the interpreter lies in somebody's closed home: open the way to it, in the mount namespace only."""
    closed = next((p for p in reversed(Path(sys.executable).resolve().parents) if p.stat().st_mode & 0o5 != 0o5), None)
    if closed is None:
        return ()
    inner = Path(sys.executable).resolve().relative_to(closed).parts[0]
    script = ('mount -t tmpfs -o mode=755 none /mnt && mkdir "/mnt/$2" && mount --bind "$1/$2" "/mnt/$2" && '
              'mount --rbind /mnt "$1" && shift 2 && exec "$@"')
    return ("sh", "-c", script, "sh", str(closed), inner)


KINDS: dict[str, tuple[str, ...]] = {
    "process 1": UNSHARE,
    "read-only cgroups": (*UNSHARE, "sh", "-c", READ_ONLY, "sh"),
    "no capabilities": (*UNSHARE, "sh", "-c", READ_ONLY, "sh", *exposing(), *BARE),
}


def available(prefix: tuple[str, ...]) -> None:
    """Skip where this machine cannot make such surroundings."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        pytest.skip("namespaces need root, unshare and setpriv")
    probe = [*prefix, sys.executable, "-c", "import sys, subprocess, yaml; subprocess.run([sys.executable, '-V'])"]
    answer = subprocess.run(probe, capture_output=True, check=False)
    if answer.returncode:
        pytest.skip(f"not to be had here: {answer.stderr.decode()[-200:]}")


def doctor(prefix: tuple[str, ...], *arguments: str, **options: Any) -> tuple[int, Any, str]:
    """Exit status, the diagnosis, and what was said on standard error."""
    answer = subprocess.run([*prefix, sys.executable, "-m", "sexton", "doctor", "--json", *arguments],
                            capture_output=True, text=True, timeout=60, check=False, **options)
    return answer.returncode, json.loads(answer.stdout), answer.stderr


def level(diagnosis: Any, area: str, name: str) -> tuple[str, str]:
    [line] = [line for line in diagnosis["lines"] if (line["area"], line["name"]) == (area, name)]
    return line["level"], line["change"] or ""


def escape_artist(tag: str) -> str:
    return (f"trap '' TERM; sleep {tag} & setsid sleep {tag} & (setsid sh -c 'sleep {tag} & exit 0' &) ; "
            f"env -i setsid sleep {tag} & wait; sleep {tag}")


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that any user may enter and write."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder.stat().st_mode & 0o5 != 0o5 and "pytest" in str(folder):
            folder.chmod(folder.stat().st_mode | 0o755)
    tmp_path.chmod(0o777)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_runs_end_and_are_proven_gone(kind: str, open_folder: Path) -> None:
    """As process 1: an escaped tree is ended and proven gone, orphans of runs and strangers are reaped, TERM stops the
    daemon and what runs, and the state is there for the next one. The level and the change are in log and health."""
    prefix = KINDS[kind]
    available(prefix)
    tag = new_tag()
    rig = Rig(open_folder, prefix)
    try:
        rig.start([
            {"name": "j", "schedule": NEVER, "command": escape_artist(tag), "killTimeout": 0.3},
            {"name": "orphans", "schedule": NEVER, "command": "for i in 1 2 3; do (setsid sleep 0.1 &) ; done; exit 4"},
        ], state={"path": str(open_folder / "state")}, shutdownTimeout=0.1)
        one = until(lambda: next(iter(descendants(rig.pid)), None), 5, "process 1") or 0
        health = rig.http("GET", "/health")[1]
        if kind == "process 1":
            assert health["containment_advice"] is None or health["containment"] == "supervisor"
        else:
            assert health["containment"] == "supervisor" and "read-only" in health["containment_advice"]
            assert "for a stronger level" in rig.logged("containment supervisor")
        assert rig.recorded(rig.fire("orphans"))["exit_code"] == 4
        run = rig.fire()
        until(lambda: len(living(tag)) >= 5, 10, "the tree")
        status, view = rig.http("POST", f"/runs/{run}/cancel?wait=20")
        assert status == 200 and view["gone"]["state"] == "proven" and living(tag) == []
        if (enter := shutil.which("nsenter")) is not None:
            subprocess.run([enter, "-t", str(one), "-p", "sh", "-c", "for i in 1 2 3; do (setsid sleep 0.1 &) ; done"],
                           check=True)
        until(lambda: zombies(one) == [] and holdings(one).children <= 2, 15, "all orphans are reaped")
        last = rig.fire()
        until(lambda: len(living(tag)) >= 5, 10, "the tree")
        os.kill(one, signal.SIGTERM)
        assert rig.wait(20) == 0 and living(tag) == []
        rig.start()
        record = rig.run(last)
        assert record["stop"]["cause"] == "shutdown" and record["gone"]["state"] == "proven"
        os.kill(next(iter(descendants(rig.pid))), signal.SIGTERM)
        assert rig.wait(20) == 0
        assert "Traceback" not in rig.log()
    finally:
        rig.close()


def refuse_signalfd() -> None:
    """In a child: a seccomp filter, as sandboxes have, answers EPERM to signalfd and signalfd4 of x86-64."""
    load, equal, give = 0x20, 0x15, 0x06
    program = b"".join(struct.pack("HBBI", *step) for step in (
        (load, 0, 0, 0), (equal, 1, 0, 282), (equal, 0, 1, 289), (give, 0, 0, 0x00050000 | errno.EPERM),
        (give, 0, 0, 0x7FFF0000)))
    steps = ctypes.create_string_buffer(program)
    libc = ctypes.CDLL(None, use_errno=True)
    filtering = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(steps))
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filtering, 0, 0) == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter knows the numbers of one machine")
def test_a_filter_that_refuses_signalfd_costs_nothing(rig: Rig) -> None:
    """Ends are heard of all the same: runs are recorded, and an escaped tree is ended and proven gone."""
    tag = new_tag()
    rig.popen["preexec_fn"] = refuse_signalfd
    rig.start([{"name": "j", "schedule": NEVER, "command": escape_artist(tag), "killTimeout": 0.1},
               {"name": "quick", "schedule": NEVER, "command": "exit 4"}])
    assert [rig.recorded(rig.fire("quick"))["exit_code"] for _ in range(3)] == [4, 4, 4]
    run = rig.fire()
    until(lambda: len(living(tag)) >= 5, 10, "the tree")
    status, view = rig.http("POST", f"/runs/{run}/cancel?wait=20")
    assert status == 200 and view["gone"]["state"] == "proven" and living(tag) == []
    assert "Traceback" not in rig.log()


@pytest.mark.parametrize("kind", KINDS)
def test_the_doctor_in_a_container(kind: str) -> None:
    """It says what is weaker, names one change, ends with 0 because every promise is kept, and says nothing else."""
    available(KINDS[kind])
    status, found, said = doctor(KINDS[kind])
    missing = [line for line in found["lines"] if line["level"] == "missing"]
    assert status == (1 if missing else 0) and found["sound"] is not bool(missing) and said == ""
    assert [line for line in missing if line["area"] == "containment"] == []
    assert level(found, "containment", "subreaper")[0] == "ok"
    if kind != "process 1":
        assert found["containment"] == "supervisor"
        assert level(found, "containment", "cgroup v2")[0] == "weaker"
        assert "writable-cgroups" in level(found, "containment", "cgroup v2")[1]
        assert level(found, "limits", "cpu")[0] == "weaker"
    if kind == "no capabilities":
        assert level(found, "users", "user of a job")[0] == "weaker"
        assert level(found, "users", "signals")[0] == "ok", "no_new_privs: nobody changes user"
        assert level(found, "users", "setuid programs")[0] == "weaker"


def test_the_doctor_without_proc() -> None:
    """It says what is missing and ends with 1; there is no traceback."""
    prefix = ("unshare", "--mount", "sh", "-c", 'umount -l /proc; exec "$@"', "sh")
    available(prefix)
    status, found, said = doctor(prefix)
    assert status == 1 and said == "" and found["sound"] is False
    assert level(found, "containment", "/proc") == ("missing", "mount -t proc proc /proc")


def test_the_doctor_changes_nothing_that_stays(open_folder: Path) -> None:
    """No file, cgroup or process is left, and the state directory is not made."""
    (open_folder / "jobs.yaml").write_text(json.dumps({
        "state": {"path": str(open_folder / "state")}, "jobs": [{"name": "j", "schedule": NEVER, "command": "true"}]}))

    def cgroups() -> set[str]:
        found = subprocess.run(["find", "/sys/fs/cgroup", "-name", "sexton-[dl]o*"], capture_output=True, text=True)
        return set(found.stdout.split())

    before = cgroups()
    status, found, said = doctor((), "-c", str(open_folder / "jobs.yaml"))
    assert said == "" and {line["area"] for line in found["lines"]} >= {"state", "jobs", "containment", "clocks"}
    assert sorted(os.listdir(open_folder)) == ["jobs.yaml"] and cgroups() <= before
    assert status == (0 if found["sound"] else 1)


@pytest.mark.parametrize(("job", "words"), [
    ({"user": "nosuch"}, "'nosuch' is not known"),
    ({"workingDirectory": "/no/such"}, "cannot be entered"),
    ({"shell": "/bin/nosuch"}, "cannot be executed: not found"),
    ({"command": ["nosuch"]}, "cannot be executed: not found"),
    ({"command": ["/etc/passwd"]}, "cannot be executed: permission denied"),
    ({"command": ["tool"], "environment": [{"key": "PATH", "value": "{folder}"}]}, None),
    ({"enabled": False, "command": ["nosuch"]}, None),
])
def test_the_doctor_tries_what_jobs_need(open_folder: Path, job: dict[str, Any], words: str | None) -> None:
    """What a run would fail on is said beforehand, with the place; what works, or is switched off, is not."""
    tool = open_folder / "tool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    text = json.dumps({"jobs": [{"name": "j", "schedule": NEVER, "command": "true", **job}]})
    config = open_folder / "jobs.yaml"
    config.write_text(text.replace("{folder}", str(open_folder)))
    if "user" in job and os.geteuid() != 0:
        pytest.skip("users need root")
    _, found, _ = doctor((), "-c", str(config))
    mine = [line for line in found["lines"] if line["area"] == "jobs" and line["level"] == "missing"]
    if words is None:
        assert mine == []
    else:
        assert [line["name"] for line in mine] == ["j"] and words in mine[0]["found"]
        assert mine[0]["change"].startswith(f"correct {config}:1:")


def test_the_doctor_on_a_bad_configuration(open_folder: Path) -> None:
    """It refers to `check`, and tries the machine all the same."""
    config = open_folder / "jobs.yaml"
    config.write_text("jobs: 7\n")
    status, found, said = doctor((), "-c", str(config))
    assert status == 1 and said == ""
    assert level(found, "jobs", "configuration") == ("missing", f"sexton check {config} names them")
    assert level(found, "containment", "subreaper")[0] == "ok"

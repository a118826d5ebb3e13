"""Kinds of fault that people reported of other schedulers: held pipes; huge, binary and endless output; what a job
inherits. Numbers are those of the table in README.md."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from probes import holdings, peak_rss
from rig import NEVER, Rig, living, new_tag, until

BOTH = {"schedule": NEVER, "captureStdout": True, "captureStderr": True}


def events(text: str) -> list[tuple[str, Any]]:
    """Server-sent events of a whole answer, checked for their form."""
    found = []
    for block in text.split("\n\n"):
        if not block or block.startswith(":"):
            continue
        first, second = block.split("\n")
        assert first.startswith("event: ") and second.startswith("data: ")
        found.append((first[7:], json.loads(second[6:])))
    return found


def lines_of(rig: Rig, job: str) -> list[str]:
    return [data["line"] for kind, data in events(rig.http("GET", f"/jobs/{job}/logs")[1]) if kind == "line"]


def test_27_29_held_pipes_are_let_go(rig: Rig) -> None:
    """A cancelled run with a grandchild on its pipes, and timed-out runs of which only one stream is held, are over at
    once: the free stream is whole, nothing waits, and the daemon's descriptors return to what they were."""
    tag = new_tag()
    rig.start([
        {"name": "held", **BOTH, "killTimeout": 1, "command": f"echo first; setsid sleep {tag} & exec sleep {tag}"},
        {"name": "onlyerr", **BOTH, "executionTimeout": 0.7, "killTimeout": 0.3,
         "command": f"echo whole; (setsid sleep {tag} >/dev/null &) ; sleep {tag}"},
        {"name": "onlyout", **BOTH, "executionTimeout": 0.7, "killTimeout": 0.3,
         "command": f"echo whole >&2; (setsid sleep {tag} 2>/dev/null &) ; sleep {tag}"},
    ])
    rig.recorded(rig.fire("onlyout"))
    before = holdings(rig.pid)
    runs = {name: rig.fire(name) for name in ("held", "onlyerr", "onlyout")}
    until(lambda: len(lines_of_live(rig, runs["held"])) == 1, 10, "the first line")
    asked = time.monotonic()
    assert rig.http("POST", "/jobs/held/cancel")[0] == 200
    record = rig.recorded(runs["held"], 10)
    assert time.monotonic() - asked < 5 and record["outcome"] == "cancelled" and record["gone"]["state"] == "proven"
    assert lines_of(rig, "held") == ["first"]
    for name in ("onlyerr", "onlyout"):
        record = rig.recorded(runs[name], 10)
        assert record["exit_code"] == -100 and record["duration"] < 5 and lines_of(rig, name) == ["whole"]
    assert living(tag) == [] and "did not reach end-of-file" not in rig.log()
    until(lambda: holdings(rig.pid).fds <= before.fds, 5, "the descriptors are back")
    assert holdings(rig.pid).zombies == 0


def lines_of_live(rig: Rig, run: str) -> list[str]:
    status, text = rig.http("GET", f"/runs/{run}/log")
    return str(text).splitlines() if status == 200 else []


@pytest.mark.parametrize(("size", "limit"), [(300_000, None), (17 * 1024 * 1024, None), (300_000, 10)])
def test_31_a_very_long_line(rig: Rig, tmp_path: Path, size: int, limit: int | None) -> None:
    """A line of any length is shown cut, with a mark; reading goes on after it, the exit status stays, and the log
    has it whole."""
    job = {"name": "wide", "schedule": NEVER, "captureStdout": True,
           "command": ["python3", "-c", f"print('a'*{size}); print('after'); import sys; sys.exit(4)"]}
    rig.start([job | ({"maxLineLength": limit} if limit else {})], state={"path": str(tmp_path / "state")})
    run = rig.fire("wide")
    record = rig.recorded(run)
    assert record["exit_code"] == 4 and record["output"]["stdout"]["bytes"] == size + len("\nafter\n")
    *_, long, after = lines_of(rig, "wide")
    assert after == "after" and long.lstrip("a") == " [.... line cut ....]"
    assert (limit or 60_000) <= long.index(" ") <= (limit or 65_536) and "Traceback" not in rig.log()
    status, text = rig.http("GET", f"/runs/{run}/log")
    assert status == 200 and text == "a" * size + "\nafter\n"


def test_33_floods_are_bounded(rig: Rig, tmp_path: Path) -> None:
    """A flood on two jobs at once grows neither the daemon (less than 64 MiB) nor the files beyond their cap; both end
    as they should."""
    state = tmp_path / "state"
    rig.popen = {"stdout": open(os.devnull, "wb")}  # noqa: SIM115
    rig.start([
        {"name": "flood", "schedule": NEVER, "captureStdout": True,
         "command": "yes 0123456789 | head -c 400000000"},
        {"name": "endless", "schedule": NEVER, "captureStdout": True, "executionTimeout": 2, "killTimeout": 0.3,
         "command": "exec yes no-end"},
    ], state={"path": str(state), "maxOutputBytes": 4 * 1024 * 1024})
    before = peak_rss(rig.pid)
    flood, endless = rig.fire("flood"), rig.fire("endless")
    late, whole = rig.recorded(endless, 20), rig.recorded(flood, 60)
    assert late["exit_code"] == -100 and late["duration"] < 8
    assert whole["outcome"] == "success" and whole["output"]["stdout"]["bytes"] == 400_000_000
    assert whole["output"]["log_dropped_bytes"] >= 400_000_000 - 6 * 1024 * 1024
    assert peak_rss(rig.pid) - before < 64 * 1024 * 1024
    for run in (flood, endless):
        assert sum(part.stat().st_size for part in state.rglob(f"{run}.log*")) < 6 * 1024 * 1024


def test_35_any_byte_passes(rig: Rig, tmp_path: Path) -> None:
    """Random bytes, terminal control and a letter split over two writes: answers stay valid, the log stays exact, and
    the viewer on a terminal gets no control byte."""
    output = tmp_path / "random"
    output.write_bytes(os.urandom(200_000))
    rig.start([{
        "name": "bytes", **BOTH,
        "command": f"cat {output}; printf '\\n\\377\\376\\000\\033[2J\\033]52;c;Zm9v\\007\\r\\n'; "
                   "printf '\\303'; sleep 0.5; printf '\\251\\n'",
    }], state={"path": str(tmp_path / "state")})
    run = rig.fire("bytes")
    assert rig.recorded(run)["outcome"] == "success"
    lines = lines_of(rig, "bytes")
    assert lines[-1] == "é" and lines[-2].endswith("\x1b[2J\x1b]52;c;Zm9v\x07")
    assert rig.runs("bytes")[0]["output"]["stdout"]["bytes"] > 200_000
    status, text = rig.http("GET", f"/runs/{run}/log", headers={"Range": "bytes=-3"})
    assert status == 206 and text == "é\n"


def test_37_a_percent_sign(rig: Rig, tmp_path: Path) -> None:
    """In YAML a percent stays as written; in a cron table `\\%` is a percent and a bare one begins the standard input,
    which `check` says."""
    table = tmp_path / "table.crontab"
    table.write_text(f"* * * * * touch {tmp_path}/c-$(date +\\%Y)\n* * * * * cat > {tmp_path}/in%line one%line two\n")
    rig.write([{"name": "stamp", "schedule": NEVER, "command": f"D=`date +%Y%m`; touch {tmp_path}/s-$D"}],
              include=["table.crontab"])
    rig.start()
    names = [job["name"] for job in rig.http("GET", "/jobs")[1]]
    for name in names:
        assert rig.recorded(rig.fire(name.replace(" ", "%20").replace("/", "%2F").replace("#", "%23")))
    assert (tmp_path / time.strftime("s-%Y%m")).exists() and (tmp_path / time.strftime("c-%Y")).exists()
    assert (tmp_path / "in").read_text() == "line one\nline two\n"
    assert any("%" in warning for warning in rig.http("GET", "/health")[1]["configuration_warnings"])


INHERITED = [
    {"name": "in", "schedule": NEVER, "captureStdout": True, "executionTimeout": 5,
     "command": ["python3", "-c", "import sys; print(repr(sys.stdin.read()))"]},
    {"name": "fds", "schedule": NEVER, "captureStdout": True, "command": "ls -l /proc/self/fd"},
    {"name": "bare", "schedule": NEVER, "command": "ls -l /proc/self/fd > found; cat >> found"},
]


def check_inherited(rig: Rig) -> None:
    for name in ("in", "fds", "bare"):
        assert rig.recorded(rig.fire(name))["outcome"] == "success", name
    assert lines_of(rig, "in") == ["''"]
    for text in ("\n".join(lines_of(rig, "fds")), (rig.folder / "found").read_text()):
        numbers = sorted(line.partition(" -> ")[0].split()[-1] for line in text.splitlines() if " -> " in line)
        assert numbers == ["0", "1", "2", "3"], "3 is the listing's own"
        assert "0 -> /dev/null" in text and "socket" not in text and "sexton" not in text


@pytest.mark.parametrize("closed", [(0,), (1, 2), (0, 1, 2)], ids=str)
def test_39_closed_descriptors(rig: Rig, tmp_path: Path, closed: tuple[int, ...]) -> None:
    """A daemon started without standard descriptors gives its jobs valid ones, opens none of its own files in their
    place, and keeps its store sound."""
    def close() -> None:
        for fd in closed:
            os.close(fd)

    rig.popen = {"preexec_fn": close}
    jobs: list[dict[str, Any]] = [{**job, "workingDirectory": str(tmp_path)} for job in INHERITED]
    rig.start(jobs, state={"path": str(tmp_path / "state")})
    for fd in closed:
        assert os.readlink(f"/proc/{rig.pid}/fd/{fd}") == "/dev/null"
    check_inherited(rig)
    assert rig.stop() == 0
    rig.popen = {}
    rig.start()
    assert [run["outcome"] for run in rig.runs("in")] == ["success"]


def test_39_a_standard_input_that_hangs(rig: Rig, tmp_path: Path) -> None:
    """A pipe on the daemon's standard input that nobody writes to is not the jobs' business."""
    read, write = os.pipe()
    rig.popen = {"stdin": read}
    try:
        rig.start([{**job, "workingDirectory": str(tmp_path)} for job in INHERITED])
        check_inherited(rig)
    finally:
        os.close(read)
        os.close(write)

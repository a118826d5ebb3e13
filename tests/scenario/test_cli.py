"""The command line against a real daemon: every command and exit status, as a person or a script runs it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

SEXTON = [sys.executable, "-m", "sexton"]
BOUND = 120.0
"""Against a hang only: on a machine that is busy with much else a start of the interpreter alone takes seconds."""
RUN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def configuration(folder: Path, port: int, *more: dict[str, Any], ticking: bool = False) -> str:
    """JSON is YAML, and `json` knows how to quote a shell script."""
    yearly = "0 0 1 1 *"
    gate = f"echo before; read word < {folder}/gate; echo after $word"
    stubborn = "trap '' TERM; echo ready; setsid sleep 86397 & sleep 86398"
    jobs = [
        {"name": "hello", "command": "echo hello", "schedule": "0 9 * * *", "timezone": "Europe/Berlin"},
        {"name": "fails", "command": "exit 3", "schedule": yearly},
        {"name": "stubborn", "command": stubborn, "schedule": yearly, "killTimeout": 0.1},
        {"name": "single", "command": gate, "schedule": yearly, "concurrencyPolicy": "Forbid"},
        {"name": "noisy", "command": r"printf '\033[31mred\n'", "schedule": yearly},
        {"name": "ticker", "command": "echo tick", "schedule": "* * * * * * *", "enabled": ticking},
        {"name": "boot", "command": "true", "schedule": "@reboot"},
    ]
    return json.dumps({
        "web": {"listen": [f"http://127.0.0.1:{port}", f"unix://{folder}/s.sock"]},
        "state": {"path": f"{folder}/state"}, "shutdownTimeout": 1, "defaults": {"captureStdout": True},
        "jobs": [*jobs, *more],
    }, indent=1)  # fmt: skip


class Result:
    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.status, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Place:
    """A folder with a configuration, and the daemon that runs it."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        self.config = folder / "jobs.yaml"
        self._port = port
        self.environment = {k: v for k, v in os.environ.items() if k != "SEXTON_URL"} | {"TZ": "UTC"}
        self.configure()

    def configure(self, *more: dict[str, Any], ticking: bool = False) -> None:
        self.config.write_text(configuration(self.folder, self._port, *more, ticking=ticking))

    def run(self, *words: str, url: bool = True) -> Result:
        """One command to its end. It never shows a traceback."""
        where = ["--url", self.url] if url else []
        result = Result(subprocess.run(
            [*SEXTON, *where, *words], env=self.environment, cwd=self.folder, capture_output=True, text=True,
            timeout=BOUND, stdin=subprocess.DEVNULL, check=False,
        ))  # fmt: skip
        assert "Traceback" not in result.err
        return result

    def open(self, *words: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        """A command that goes on while the test does something."""
        return subprocess.Popen(
            [*SEXTON, "--url", self.url, *words], env=self.environment, stdout=stdout, stderr=subprocess.PIPE,
            text=True, stdin=subprocess.DEVNULL, bufsize=1,
        )  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("cli")
    os.mkfifo(folder / "gate")
    place = Place(folder, free_port())
    daemon = subprocess.Popen(
        [*SEXTON, "-c", str(place.config)], env=place.environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    ready = threading.Event()
    log: list[str] = []

    def read() -> None:
        assert daemon.stdout is not None
        for line in daemon.stdout:
            log.append(line)
            if "API on unix:" in line:
                ready.set()
        ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert ready.wait(BOUND) and daemon.poll() is None, "".join(log)
        yield place
    finally:
        daemon.terminate()
        try:
            daemon.wait(BOUND)
        finally:
            daemon.kill()
            reader.join(BOUND)


@pytest.fixture
def held(place: Place) -> Iterator[str]:
    """A run of `single`, which waits at the gate until the test is over."""
    run = place.run("start", "single").out.strip()
    yield run
    place.run("cancel", run, "--force")


def open_gate(place: Place, word: str) -> None:
    (place.folder / "gate").write_text(f"{word}\n")


# ---------------------------------------------------------------- looking


def test_jobs_lists_every_job(place: Place) -> None:
    """One row for each, with its state and when it is due."""
    rows = {line.split()[0]: line for line in place.run("jobs").out.splitlines()}
    assert {"NAME", "hello", "fails", "stubborn", "single", "noisy", "ticker", "boot"} <= set(rows)
    assert "disabled" in rows["ticker"]
    assert "@reboot" in rows["boot"]
    assert " +00:00" in rows["hello"]


def test_json_is_what_the_api_says(place: Place) -> None:
    """For programs nothing is left out or renamed."""
    job = next(job for job in place.run("jobs", "--json").json if job["name"] == "single")
    assert job["concurrencyPolicy"] == "Forbid"
    assert place.run("show", "single", "--json").json["killTimeout"] == 30.0


def test_every_way_to_name_the_daemon_works(place: Place) -> None:
    """Option before or after the command, environment, unix socket, configuration."""
    assert place.run("jobs").status == 0
    assert place.run("jobs", "--url", place.url, url=False).status == 0
    assert place.run("jobs", "--url", f"unix://{place.folder}/s.sock", url=False).status == 0
    assert place.run("jobs", "-c", str(place.config), url=False).status == 0
    assert place.run("-c", str(place.config), "health", url=False).status == 0
    place.environment["SEXTON_URL"] = place.url
    try:
        assert place.run("jobs", url=False).status == 0
    finally:
        del place.environment["SEXTON_URL"]


def test_health_says_ok(place: Place) -> None:
    """With the facts behind it."""
    told = place.run("health")
    assert told.status == 0
    assert re.search(r"^status +ok$", told.out, re.MULTILINE)
    assert re.search(r"^records +kept on disk$", told.out, re.MULTILINE)
    assert place.run("health", "--json").json["status"] == "ok"


# ---------------------------------------------------------------- starting


def test_start_prints_the_id_alone(place: Place) -> None:
    """A script takes it as it is; the record says who asked."""
    started = place.run("start", "hello", "--by", "the tests")
    assert started.status == 0
    assert RUN_ID.fullmatch(started.out.strip())
    assert place.run("show", started.out.strip(), "--json").json["requested_by"] == "the tests"


def test_start_and_wait_tells_success_from_failure(place: Place) -> None:
    """By the words and by the exit status."""
    good, bad = place.run("start", "hello", "--wait"), place.run("start", "fails", "--wait", "20")
    assert (good.status, bad.status) == (0, 1)
    assert good.out.splitlines()[1].startswith("success after ")
    assert "command exited with code 3" in bad.out.splitlines()[1]
    assert place.run("start", "fails", "--wait", "--json").json["exit_code"] == 3


def test_a_wait_that_is_over_says_that_the_run_goes_on(place: Place) -> None:
    """Status 1, and the run is not touched."""
    waited = place.run("start", "single", "--wait", "0.01")
    assert waited.status == 1
    assert "it goes on" in waited.err
    cancelled = place.run("cancel", "single", "--reason", "the test is over")
    assert cancelled.status == 0
    assert "the test is over" in cancelled.out


def test_a_refused_start_is_one_line(place: Place, held: str) -> None:
    """Status 1 with the daemon's reason; the skip is counted in the table of jobs."""
    refused = place.run("start", "single")
    assert refused.status == 1
    assert refused.err.count("\n") == 1
    row = next(line for line in place.run("jobs").out.splitlines() if line.startswith("single"))
    assert "running" in row
    assert not row.endswith(" 0")


def test_interrupting_a_wait_is_quiet(place: Place) -> None:
    """Ctrl-C ends the command with status 130; the run goes on."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    with place.open("start", "stubborn", "--wait") as waiting:
        assert waiting.stdout is not None and waiting.stderr is not None
        run = waiting.stdout.readline().strip()
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(BOUND) == 130
        assert waiting.stderr.read() == ""
    assert place.run("show", run, "--json").json["outcome"] is None
    assert place.run("cancel", run, "--force").status == 0


# ---------------------------------------------------------------- stopping


def test_cancel_proves_that_a_stubborn_job_is_gone(place: Place) -> None:
    """It ignores SIGTERM and leaves a session of its own; `show` tells every step."""
    run = place.run("start", "stubborn").out.strip()
    cancelled = place.run("cancel", "stubborn", "--reason", "enough", "--by", "me")
    assert cancelled.status == 0
    assert f"run {run}: cancelled" in cancelled.out
    assert "gone: proven: nothing of the run is left" in cancelled.out
    told = place.run("show", run).out
    assert "cancelled by me: enough" in told
    for step in ("requested", "signalled", "forced", "confirmed"):
        assert re.search(rf"^  {step} +20\d\d-", told, re.MULTILINE), told


def test_cancel_need_not_wait(place: Place) -> None:
    """`--wait 0` asks and comes back; a later one with `--force` cuts the grace period short."""
    run = place.run("start", "stubborn").out.strip()
    assert place.run("cancel", run, "--wait", "0", "--by", "me").status == 0
    place.run("cancel", run, "--force")
    with place.open("logs", "-f", run) as following:
        assert following.wait(BOUND) == 0
    ended = place.run("cancel", run)
    assert (ended.status, ended.err) == (1, f"sexton: run {run} has ended\n")


def test_cancelling_a_job_tells_of_each_run(place: Place) -> None:
    """All instances are stopped; JSON is a list of them."""
    runs = {place.run("start", "stubborn").out.strip() for _ in range(2)}
    stopped = place.run("cancel", "stubborn", "--json")
    assert stopped.status == 0
    assert {run["id"] for run in stopped.json} == runs
    assert all(run["gone"]["state"] == "proven" for run in stopped.json)


def test_nothing_to_cancel_is_refused(place: Place) -> None:
    """Status 1, one line."""
    refused = place.run("cancel", "hello")
    assert (refused.status, refused.err) == (1, "sexton: job 'hello' is not running\n")


# ---------------------------------------------------------------- output


def test_runs_can_be_chosen(place: Place) -> None:
    """By job, by outcome, by number."""
    failed = place.run("start", "fails", "--wait").out.split()[0]
    assert place.run("runs", "--job", "fails", "--outcome", "failure", "--limit", "1").out.count(failed) == 1
    assert len(place.run("runs", "--limit", "2", "--json").json["runs"]) == 2
    assert "no such runs" in place.run("runs", "--job", "fails", "--outcome", "skipped").out
    made = place.run("show", failed, "--json").json["created_at"]
    assert failed in place.run("runs", "--since", made, "--node", socket.gethostname()).out
    assert failed not in place.run("runs", "--until", made).out
    assert "no such runs" in place.run("runs", "--node", "elsewhere").out


def test_the_job_set_id_is_that_of_the_daemon(place: Place) -> None:
    """From the files and from the daemon; a configuration with errors has none."""
    told = place.run("-c", str(place.config), "--job-set-id", url=False)
    assert (told.status, told.err) == (0, "")
    assert told.out.strip() == place.run("nodes", "--json").json["nodes"][0]["job_set_id"]
    (place.folder / "bad.yaml").write_text("jobs: 1\n")
    assert place.run("-c", "bad.yaml", "--job-set-id", url=False).status == 1


def test_the_nodes_of_a_store_of_its_own_are_this_one(place: Place) -> None:
    """One line, and a word on how there could be more."""
    told = place.run("nodes").out
    assert f"{socket.gethostname()} (this one)" in told and "store is its own" in told
    (node,) = place.run("nodes", "--json").json["nodes"]
    assert node["self"] and node["state"] == "alive" and node["same_jobs"]


def test_logs_of_a_run_and_of_a_job(place: Place) -> None:
    """The last run's output, byte for byte when it is no terminal that reads it."""
    run = place.run("start", "noisy", "--wait").out.split()[0]
    assert place.run("logs", run).out == place.run("logs", "noisy").out == "\x1b[31mred\n"
    assert "not run yet" in place.run("logs", "ticker").out


def test_a_terminal_gets_no_escape_sequence_from_a_job(place: Place) -> None:
    """They are written out."""
    place.run("start", "noisy", "--wait")
    here, there = pty.openpty()
    with place.open("logs", "noisy", stdout=there) as showing:
        os.close(there)
        assert showing.wait(BOUND) == 0
    assert select.select([here], [], [], BOUND)[0]
    shown = os.read(here, 4096)
    os.close(here)
    assert shown == b"\\x1b[31mred\r\n"


def test_following_a_run_ends_with_it(place: Place) -> None:
    """Lines come as they are written, and status 0 at the end."""
    run = place.run("start", "single").out.strip()
    with place.open("logs", run, "-f") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "before\n"
        open_gate(place, "dawn")
        assert following.stdout.readline() == "after dawn\n"
        assert following.wait(BOUND) == 0


def test_following_a_job_goes_on_with_later_runs(place: Place) -> None:
    """Each run below a line with its id; a reader that leaves ends it quietly, with status 141."""
    place.configure(ticking=True)
    assert place.run("reload").status == 0
    try:
        with place.open("logs", "ticker", "-f") as following:
            assert following.stdout is not None and following.stderr is not None
            lines = [following.stdout.readline() for _ in range(4)]
            following.stdout.close()
            assert following.wait(BOUND) == 141
            assert following.stderr.read() == ""
        ids = [found[0] for line in lines if (found := RUN_ID.search(line))]
        assert len(set(ids)) == 2
        assert lines[1::2] == ["tick\n", "tick\n"]
    finally:
        place.configure()
        place.run("reload")


# ---------------------------------------------------------------- schedules


def test_next_of_a_daemon_and_of_a_file_agree(place: Place) -> None:
    """The same engine answers, with and without a daemon."""
    asked = place.run("next", "hello", "--count", "3", "--json").json
    read = place.run("next", "hello", "--count", "3", "--json", "--file", str(place.config), url=False).json
    assert [fire["at"] for fire in asked["fires"]] == [fire["at"] for fire in read["fires"]]
    assert len(asked["fires"]) == 3
    assert "hello" in place.run("next").out
    assert place.run("next", "-c", str(place.config), "--within", "36500d", url=False).out.count("\n") == 6
    assert "Nothing is due" in place.run("next", "--within", "0").out


def test_explain_goes_field_by_field(place: Place) -> None:
    """In the zone of the job; daemon and file say the same."""
    words = ("explain", "hello", "--at", "2026-10-05T08:30:00+00:00")
    asked = place.run(*words)
    assert "at 2026-10-05 10:30:00 +02:00: not due" in asked.out
    assert re.search(r"^hour +9 .* 10 +does not match$", asked.out, re.MULTILINE)
    assert asked.out == place.run(*words, "--file", str(place.config), url=False).out
    assert ": due" in place.run("explain", "hello", "--at", "2026-10-05T07:00:00").out
    assert "disabled" in place.run("explain", "ticker").out


def test_a_job_without_times_is_not_explained(place: Place) -> None:
    """Status 1, from a daemon and from a file."""
    for words in ((), ("--file", str(place.config))):
        refused = place.run("explain", "boot", *words, url=not words)
        assert refused.status == 1
        assert "@reboot" in refused.err


# ---------------------------------------------------------------- configuration


def test_reload_takes_up_or_refuses(place: Place) -> None:
    """A refused one is status 1, shows every error, and `health` tells until it is repaired."""
    place.configure({"name": "new", "command": "date", "schedule": "@daily"})
    taken = place.run("reload")
    # The daemon watches the file, too, and may have been first.
    assert taken.status == 0
    counts = "1 added, 0 changed, 0 removed, 7", "0 added, 0 changed, 0 removed, 8"
    assert taken.out in [f"Taken up: {count} unchanged\n" for count in counts]
    place.configure({"name": "new", "comand": "date", "schedule": "@daily"})
    refused = place.run("reload")
    assert refused.status == 1
    assert "did you mean" in refused.err and str(place.config) in refused.err
    assert place.run("health").status == 1
    place.configure()
    assert place.run("reload", "--json").json["removed"] == 1
    assert place.run("health").status == 0


def test_check_takes_several_paths(place: Place, tmp_path: Path) -> None:
    """Status 1 if one of them has an error; JSON has a verdict for each."""
    broken = tmp_path / "broken.yaml"
    broken.write_text("jobs: [{name: x, command: date, schedule: '61 * * * *'}]\n")
    assert place.run("check", str(place.config), url=False).status == 0
    assert place.run("-c", str(place.config), "-v", url=False).out.startswith("Configuration is valid.")
    both = place.run("check", str(place.config), str(broken), url=False)
    assert both.status == 1
    assert f"{broken}:1:" in both.err and f"{place.config}: Configuration is valid." in both.out
    good, bad = place.run("check", str(place.config), str(broken), "--json", url=False).json
    assert (good["valid"], bad["valid"], bad["findings"][0]["line"]) == (True, False, 1)


# ---------------------------------------------------------------- failing


@pytest.mark.parametrize("words", [("show", "helo"), ("start", "helo"), ("cancel", "helo"), ("logs", "helo"),
                                   ("next", "helo"), ("explain", "helo"),
                                   ("runs", "--job", "helo")])  # fmt: skip
def test_an_unknown_job_is_status_4(place: Place, words: tuple[str, ...]) -> None:
    """With the name that was probably meant."""
    missing = place.run(*words)
    assert (missing.status, missing.err) == (4, "sexton: no job is named 'helo' (did you mean 'hello'?)\n")


@pytest.mark.parametrize("command", ["show", "cancel", "logs"])
def test_an_unknown_run_is_status_4(place: Place, command: str) -> None:
    """An id that nobody gave."""
    assert place.run(command, "00000000-0000-7000-8000-000000000000").status == 4


def test_no_daemon_is_status_3(place: Place, tmp_path: Path) -> None:
    """One line that says what to try."""
    for url in (f"http://127.0.0.1:{free_port()}", f"unix://{tmp_path}/nothing.sock"):
        silent = place.run("jobs", "--url", url, url=False)
        assert silent.status == 3
        assert silent.err.startswith(f"sexton: no daemon at {url} (is it running?")


def test_another_server_is_not_taken_for_a_daemon(place: Place) -> None:
    """What does not present itself as Sexton is status 3 too."""
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
        threading.Thread(target=other.handle_request, daemon=True).start()
        told = place.run("jobs", "--url", f"http://127.0.0.1:{other.server_port}", url=False)
    assert told.status == 3
    assert "is not Sexton" in told.err


@pytest.mark.parametrize(
    "words",
    [("start", "--wait", "hello"), ("jobs", "--url", "nonsense"), ("runs", "--limit", "0"), ("nonsense",),
     ("next", "--file", "x", "--url", "http://127.0.0.1:1"), ("explain", "hello", "--at", "noon"),
     ("jobs", "-v", "x"), ("-v", "jobs"),
     ("show", "\udcff")],
)  # fmt: skip
def test_misuse_is_status_2(place: Place, words: tuple[str, ...]) -> None:
    """Whoever notices it, the parser or the command."""
    assert place.run(*words, url=False).status == 2

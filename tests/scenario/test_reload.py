"""Taking up a changed configuration: on SIGHUP, by file change, by API; whole or not at all."""

from __future__ import annotations

import json
import shutil
import signal
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

from rig import NEVER, Rig, always, living, new_tag, until

YEARLY = {"name": "yearly", "schedule": NEVER, "command": "true"}


def names(rig: Rig) -> list[str]:
    return [job["name"] for job in rig.http("GET", "/jobs")[1]]


def metric(rig: Rig, name: str) -> float:
    line = next(line for line in rig.http("GET", "/metrics")[1].splitlines() if line.startswith(name + " "))
    return float(line.split()[1])


def test_three_ways_to_reload(rig: Rig) -> None:
    """SIGHUP, a changed file and POST /reload each take up what the file says, and say what changed."""
    rig.start([YEARLY])
    rig.write([YEARLY, {**YEARLY, "name": "hup"}])
    rig.signal(signal.SIGHUP)
    until(lambda: "hup" in names(rig), 10, "the reload by signal")
    rig.write([YEARLY, {**YEARLY, "name": "file"}])
    until(lambda: names(rig) == ["yearly", "file"], 15, "the reload by the change of the file")
    rig.write([{**YEARLY, "command": "false"}])
    status, result = rig.http("POST", "/reload")
    assert status == 200 and result["ok"] is True
    assert (result["added"], result["changed"], result["removed"], result["unchanged"]) == (0, 1, 1, 0)
    assert rig.job("yearly")["command"] == "false"
    rig.logged("configuration taken up", "1 changed")


def test_a_folder_whose_content_is_swapped_by_a_link(rig: Rig, tmp_path: Path) -> None:
    """As a ConfigMap volume does it: files that are links into a hidden folder, which is itself a link that is
    replaced. The change is taken up, and the hidden folders are not read as well."""
    def version(name: str, *jobs: dict[str, Any]) -> None:
        (folder / name).mkdir()
        web = {"web": {"listen": [f"http://127.0.0.1:{rig.port}"]}}
        (folder / name / "jobs.yaml").write_text(json.dumps({**web, "jobs": list(jobs)}))
        (folder / "..new").symlink_to(name)
        (folder / "..new").replace(folder / "..data")

    folder = tmp_path / "volume"
    folder.mkdir()
    version("..1", YEARLY)
    (folder / "jobs.yaml").symlink_to("..data/jobs.yaml")
    rig.config = folder
    rig.start()
    assert names(rig) == ["yearly"]
    version("..2", YEARLY, {**YEARLY, "name": "new"})
    until(lambda: names(rig) == ["yearly", "new"], 15, "the reload by the change of the link")
    shutil.rmtree(folder / "..1")
    assert rig.http("POST", "/reload")[1]["unchanged"] == 2


def test_a_bad_file_changes_nothing(rig: Rig, tmp_path: Path) -> None:
    """Errors, a directory or nothing in the place of the file, bytes: the old configuration stays in force and runs;
    API, health, metrics and log say so; the next good file is taken up."""
    ticks = tmp_path / "ticks"
    beat = {"name": "beat", "schedule": "* * * * * * *", "command": f"echo x >> {ticks}"}
    rig.start([beat, YEARLY])
    before = metric(rig, "sexton_config_reload_failures_total")
    failures = 0

    def refused(word: str) -> None:
        nonlocal failures
        failures += 1
        status, result = rig.http("POST", "/reload")
        assert status == 422 and result["ok"] is False and any(word in text for text in result["findings"]), result
        health = rig.http("GET", "/health")[1]
        assert health["status"] == "degraded" and health["last_reload"]["ok"] is False
        assert metric(rig, "sexton_config_last_reload_successful") == 0
        assert metric(rig, "sexton_config_reload_failures_total") >= before + failures
        assert names(rig) == ["beat", "yearly"]

    rig.write([{**beat, "schedul": "x"}, {**YEARLY, "command": "false"}])
    refused("schedul")
    rig.logged("configuration not taken up", "schedul")
    rig.write([beat, beat])
    refused("beat")
    rig.write_text("jobs: [\n")
    refused("jobs.yaml")
    rig.config.unlink()
    refused("jobs.yaml")
    rig.config.mkdir()
    status, result = rig.http("POST", "/reload")
    assert status == 200 and "no configuration file in this folder" in result["findings"][0], "valid, and said"
    rig.config.rmdir()
    rig.config.write_bytes(b"\x00\xff\xfe jobs")
    status, result = rig.http("POST", "/reload")
    assert status == 422
    rig.write([beat, {**YEARLY, "name": "good"}])
    assert rig.http("POST", "/reload")[0] == 200 and names(rig) == ["beat", "good"]
    assert rig.http("GET", "/health")[1]["status"] == "ok" and metric(rig, "sexton_config_last_reload_successful") == 1
    until(lambda: ticks.exists() and ticks.read_text().count("x") >= 2, 5, "the job goes on")


def test_running_runs_are_not_touched(rig: Rig) -> None:
    """A run of a changed job ends under the definition that it began with; a run of a removed job can be seen and
    cancelled, and its record is there when the job comes back."""
    tag = new_tag()
    slow = {"name": "slow", "schedule": NEVER, "command": f"trap 'exit 0' TERM; sleep {tag} & wait", "killTimeout": 5}
    rig.start([slow, {**slow, "name": "changed", "command": "sleep 1.5; exit 3"}, YEARLY])
    removed, changed = rig.fire("slow"), rig.fire("changed")
    pid = rig.running(removed)
    rig.running(changed)
    rig.write([YEARLY, {**slow, "name": "changed", "command": "exit 4"}])
    assert rig.http("POST", "/reload")[1]["removed"] == 1
    assert rig.http("GET", "/jobs/slow")[0] == 404 and living(tag)
    assert rig.run(removed)["pid"] == pid and rig.run(removed)["phase"] == "running"
    assert removed in [run["id"] for run in rig.http("GET", "/runs")[1]["runs"]]
    assert rig.http("GET", "/health")[1]["running"] == 2
    assert rig.recorded(changed)["exit_code"] == 3
    status, _ = rig.http("POST", f"/runs/{removed}/cancel?wait=10", {"reason": "job is gone"})
    assert status == 200 and rig.recorded(removed)["stop"]["reason"] == "job is gone" and living(tag) == []
    assert rig.recorded(rig.fire("changed"))["exit_code"] == 4
    rig.write([slow, YEARLY])
    assert rig.http("POST", "/reload")[0] == 200
    assert [run["id"] for run in rig.runs("slow")] == [removed]


def test_a_removed_job_that_runs_still_forbids_itself(rig: Rig) -> None:
    """Removed while it runs and added again, a Forbid job still has its instance: no second one starts."""
    tag = new_tag()
    job = {"name": "j", "schedule": NEVER, "command": f"sleep {tag}", "concurrencyPolicy": "Forbid", "killTimeout": 0.2}
    rig.start([job, YEARLY])
    run = rig.fire()
    pid = rig.running(run)
    for jobs in ([YEARLY], [job, YEARLY]):
        rig.write(jobs)
        assert rig.http("POST", "/reload")[0] == 200
    assert rig.job()["pids"] == [pid] and rig.http("POST", "/jobs/j/start")[0] == 409
    rig.http("POST", "/jobs/j/cancel")


def test_unchanged_jobs_keep_their_times(rig: Rig, tmp_path: Path) -> None:
    """Reloads all the time, each adding or removing another job, neither repeat nor lose an occurrence of an unchanged
    job, and its next fire stays."""
    fires = tmp_path / "fires"
    beat = {"name": "beat", "schedule": "* * * * * * *", "concurrencyPolicy": "Allow",
            "command": f"echo $SEXTON_SCHEDULED_AT >> {fires}"}
    hourly = {"name": "hourly", "schedule": "17 * * * *", "command": "true"}
    rig.start([beat, hourly])
    until(lambda: fires.exists(), 5, "the first fire")
    next_fire = rig.job("hourly")["scheduled_at"]
    for number in range(8):
        rig.write([beat, hourly, *({**YEARLY, "name": f"more{n}"} for n in range(number % 3))])
        assert rig.http("POST", "/reload")[1]["unchanged"] >= 2
    assert rig.job("hourly")["scheduled_at"] == next_fire
    count = len(fires.read_text().split())
    until(lambda: len(fires.read_text().split()) > count + 1, 5, "it goes on")
    seen = sorted(fires.read_text().split())
    assert len(seen) == len(set(seen)), "no occurrence fires twice"
    seconds = [int(text[17:19]) for text in seen]
    assert all((b - a) % 60 == 1 for a, b in pairwise(seconds)), "none is lost"


def test_reloads_at_once(rig: Rig) -> None:
    """Many reloads at the same moment, by API and by signal: each is answered, one after the other, and the last file
    is in force."""
    rig.start([YEARLY])
    rig.write([YEARLY, {**YEARLY, "name": "new"}])
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(rig.http("POST", "/reload"))) for _ in range(6)]
    for thread in threads:
        thread.start()
        rig.signal(signal.SIGHUP)
    for thread in threads:
        thread.join(60)
    assert [status for status, _ in answers] == [200] * 6
    assert sum(body["added"] for _, body in answers) <= 1 and names(rig) == ["yearly", "new"]


def test_last_states_come_with_a_job_that_is_added(rig: Rig, tmp_path: Path) -> None:
    """A job that is removed and comes back by reload shows its last run again, as it would after a restart."""
    rig.start([YEARLY, {**YEARLY, "name": "j", "command": "exit 3"}], state={"path": str(tmp_path / "state")})
    run = rig.fire()
    rig.recorded(run)
    rig.write([YEARLY])
    rig.http("POST", "/reload")
    rig.write([YEARLY, {**YEARLY, "name": "j", "command": "exit 3"}])
    rig.http("POST", "/reload")
    last = rig.job()["last_run"]
    assert last is not None and last["id"] == run


def test_a_large_reload_delays_nobody(rig: Rig, tmp_path: Path) -> None:
    """A thousand jobs are added while another runs every second, and a Replace waits for a victim that ignores signals:
    no start of the per-second job is later than half a second beyond its interval."""
    marks, tag = tmp_path / "marks", new_tag()
    beat = {"name": "beat", "schedule": "* * * * * * *", "concurrencyPolicy": "Allow",
            "command": f"date +%s.%N >> {marks}"}
    stubborn = {"name": "stubborn", "schedule": NEVER, "concurrencyPolicy": "Replace", "killTimeout": 4,
                "command": f"trap '' TERM; sleep {tag}; sleep {tag}"}
    rig.start([beat, stubborn])
    rig.running(rig.fire("stubborn"))
    until(lambda: marks.exists() and len(marks.read_text().split()) >= 2, 10, "the beat")
    first = len(marks.read_text().split())
    replacement = rig.fire("stubborn")
    many = [{**YEARLY, "name": f"n{n}", "schedule": f"{n % 60} {n % 24} * * *"} for n in range(1000)]
    rig.write([beat, stubborn, *many])
    assert rig.http("POST", "/reload")[1]["added"] == 1000
    rig.running(replacement, 15)
    always(lambda: True, 1.1)
    times = [float(line) for line in marks.read_text().split()[first - 1:]]
    assert len(times) >= 4
    assert max(b - a for a, b in pairwise(times)) < 1.5
    rig.http("POST", f"/runs/{replacement}/cancel?wait=10", {"force": True})
    assert living(tag) == []

"""The daemon's own lines, as the `logging` section wants them."""

from __future__ import annotations

import json
from pathlib import Path

from rig import NEVER, Rig


def test_json_lines(rig: Rig, tmp_path: Path) -> None:
    """Every line on standard error is an object; those of a run name job, run and node."""
    with (tmp_path / "stderr").open("wb") as stderr:
        rig.popen = {"stderr": stderr}
        rig.start([{"name": "j", "command": "exit 3", "schedule": NEVER}], logging={"format": "json"})
        run = rig.fire()
        rig.recorded(run)
        rig.stop()
    lines = [json.loads(text) for text in (tmp_path / "stderr").read_text().splitlines()]
    of_run = {line["event"]: line for line in lines if line.get("run") == run}
    assert {"run.starting", "run.ended"} <= set(of_run)
    assert {line["job"] for line in of_run.values()} == {"j"}
    assert all(line["node"] and line["time"] and line["message"] for line in lines)
    assert "daemon.started" in {line["event"] for line in lines}


def test_repeated_warnings_are_limited(rig: Rig) -> None:
    """A flood of refused starts writes few lines and their number; the count is in the metrics."""
    rig.start([{"name": "j", "command": "sleep 600", "schedule": NEVER, "concurrencyPolicy": "Forbid"}])
    rig.running(rig.fire())
    for _ in range(60):
        assert rig.http("POST", "/jobs/j/start")[0] == 409
    rig.logged("40 more lines like this one", seconds=15.0)
    assert rig.log().count("still running") == 21
    assert "sexton_log_lines_suppressed_total 40.0" in rig.http("GET", "/metrics")[1]


def test_a_dict_config_may_use_our_lines(rig: Rig, tmp_path: Path) -> None:
    """The reference daemon's form still counts, with our formatter in it."""
    to = tmp_path / "lines"
    rig.start([{"name": "j", "command": "true", "schedule": NEVER}], logging={
        "version": 1, "formatters": {"f": {"()": "sexton.daemon.loglines.JsonLines", "node": "here"}},
        "handlers": {"h": {"class": "logging.FileHandler", "filename": str(to), "formatter": "f"}},
        "root": {"level": "INFO", "handlers": ["h"]}})
    rig.recorded(rig.fire())
    rig.stop()
    lines = [json.loads(text) for text in to.read_text().splitlines()]
    assert {line["event"] for line in lines if line.get("job") == "j"} >= {"run.starting", "run.ended"}
    assert {line["node"] for line in lines} == {"here"}

"""What the metrics say, read by another reader than ours; statsd datagrams."""

from __future__ import annotations

import re
import socket
from collections import defaultdict
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from rig import NEVER, Rig, until

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()


def families(rig: Rig) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(rig.http("GET", "/metrics")[1])}


def values(rig: Rig) -> dict[str, dict[tuple[str, ...], float]]:
    found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for family in families(rig).values():
        for sample in family.samples:
            found[sample.name][tuple(sample.labels[label] for label in sorted(sample.labels))] = sample.value
    return found


def test_the_page_lists_them_all(rig: Rig) -> None:
    """Every metric of the scrape stands on the page with its labels, and no other does."""
    rig.start([{"name": "j", "command": "true", "schedule": "* * * * *", "monitorResources": True,
                "resourceLimits": {"memory": "1G", "cpu": 1, "processes": 100}},
               {"name": "k", "command": "exit 1", "schedule": NEVER, "sla": {"maxRuntimeSeconds": 9},
                "concurrencyPolicy": "Forbid", "concurrencyScope": "cluster"}],
              state={"path": str(rig.folder / "state")})
    rig.recorded(rig.fire("j"))
    rig.recorded(rig.fire("k"))
    listed = dict(re.findall(r"^\| `(sexton\w+)` \| ([^|]*)\|", PAGE, re.M))
    found = families(rig)
    names = {family.samples[0].name.removesuffix("_total") if family.type in ("info", "gauge") else name
             for name, family in found.items() if family.samples}
    assert names == set(listed)
    for name, family in found.items():
        own = {label for sample in family.samples for label in sample.labels} - {"job_name"}
        key = name if name in listed else f"{name}_info"
        if family.samples:
            assert own == set(re.findall(r"`(\w+)`", listed[key])), name


def test_stops_by_cause_and_time_to_proof(rig: Rig) -> None:
    """A cancel, a timeout and a Replace are counted by cause, and each has one observation of the time to proof."""
    rig.start([{"name": "j", "command": "exec sleep 600", "schedule": NEVER, "concurrencyPolicy": "Replace"},
               {"name": "t", "command": "exec sleep 600", "schedule": NEVER, "executionTimeout": 0.2}])
    before = values(rig)
    assert before["sexton_job_stops_total"]["cancel", "j"] == 0
    first = rig.fire("j")
    rig.running(first)
    second = rig.fire("j")
    rig.recorded(first)
    rig.running(second)
    rig.http("POST", f"/runs/{second}/cancel")
    rig.recorded(second)
    rig.recorded(rig.fire("t"))
    after = values(rig)
    assert after["sexton_job_stops_total"]["cancel", "j"] == after["sexton_job_stops_total"]["replaced", "j"] == 1
    assert after["sexton_job_stops_total"]["timeout", "t"] == 1
    for cause in ("cancel", "replaced", "timeout"):
        assert after["sexton_stop_to_proof_seconds_count"][cause,] == 1
        assert after["sexton_stop_to_proof_seconds_bucket"][cause, "5"] == 1
    assert after["sexton_job_duration_seconds_count"]["j",] == 2


def test_lateness_of_scheduled_starts(rig: Rig) -> None:
    """A scheduled start is observed; one by hand is not."""
    rig.start([{"name": "j", "command": "true", "schedule": {"second": "*"}},
               {"name": "k", "command": "true", "schedule": NEVER}])
    rig.recorded(rig.fire("k"))
    until(lambda: values(rig)["sexton_start_lateness_seconds_count"][()] >= 1, what="an observation")
    assert values(rig)["sexton_start_lateness_seconds_bucket"]["1",] >= 1


def test_statsd(rig: Rig) -> None:
    """One datagram at the start and one at the end of each run, with the reference daemon's figures."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(10)
        where = {"prefix": "p.j", "host": "127.0.0.1", "port": server.getsockname()[1]}
        rig.start([{"name": "j", "command": "sleep 0.1; exit 1", "schedule": NEVER, "statsd": where}])
        rig.fire()
        assert server.recv(1000) == b"p.j.start:1|g"
        lines = server.recv(1000).decode().splitlines()
    assert lines[:2] == ["p.j.stop:1|g", "p.j.success:0|g"]
    assert [re.sub(r":\d+", ":N", line) for line in lines[2:]] == [
        "p.j.duration:N|ms", "p.j.cpu:N|ms", "p.j.max_rss:N|g"]


def test_statsd_that_has_no_address_delays_nobody(rig: Rig) -> None:
    """A name that cannot be resolved is told once, and counted."""
    where = {"prefix": "p", "host": "no-such-host.invalid", "port": 8125}
    rig.start([{"name": "j", "command": "true", "schedule": NEVER, "statsd": where}])
    assert rig.recorded(rig.fire(), 3.0)["outcome"] == "success"
    assert rig.recorded(rig.fire(), 3.0)["outcome"] == "success"
    until(lambda: values(rig)["sexton_statsd_dropped_total"][()] == 4, 30.0, "the count")
    assert rig.log().count("cannot be resolved") == 1

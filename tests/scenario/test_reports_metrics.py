"""Kind of fault: series that appear only after their first event. Number 97 of the table in README.md."""

from __future__ import annotations

from collections import defaultdict
from urllib.parse import quote

from prometheus_client.parser import text_string_to_metric_families
from rig import NEVER, Rig, until

LABELS = {"job_name", "status", "cause", "le", "mode", "channel", "result", "state", "schedule", "policy", "version",
          "node", "durable", "shared"}
WEIRD = 'we"ird\\name {job="x"} é'


def scrape(rig: Rig) -> dict[str, dict[tuple[str, ...], float]]:
    """Sample name -> label values -> value; the text is parsed by another reader than ours."""
    status, text = rig.http("GET", "/metrics")
    assert status == 200
    found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert set(sample.labels) <= LABELS, "no run ids and no error texts among the labels"
            found[sample.name][tuple(sample.labels.values())] = sample.value
    return found


def test_97_every_job_has_its_series_from_the_start(rig: Rig) -> None:
    """All outcomes of all jobs are there with zero at the first scrape, whatever the names; they only rise; their sum
    is the number of starts; the gauge of running runs returns to zero, also after a start that failed; a removed job
    goes."""
    jobs = [
        {"name": "yearly", "schedule": NEVER, "command": "true"},
        {"name": WEIRD, "schedule": NEVER, "command": "false"},
        {"name": "slow", "schedule": NEVER, "concurrencyPolicy": "Replace", "command": "exec sleep 600",
         "killTimeout": 2},
        {"name": "late", "schedule": NEVER, "command": "exec sleep 600", "executionTimeout": 0.3, "killTimeout": 2},
        {"name": "nope", "schedule": NEVER, "command": ["./nope"]},
        {"name": "once", "schedule": NEVER, "concurrencyPolicy": "Forbid", "command": "exec sleep 600"},
    ]
    rig.start(jobs)
    first = scrape(rig)
    outcomes = {status for _, status in first["sexton_job_runs_total"]}
    assert {"success", "failure", "cancelled", "replaced", "unknown"} <= outcomes
    for job in jobs:
        assert {first["sexton_job_runs_total"][job["name"], outcome] for outcome in outcomes} == {0}
        for name in ("sexton_job_timeouts_total", "sexton_job_skipped_total", "sexton_job_running",
                     "sexton_job_unconfirmed_terminations_total"):
            assert first[name][job["name"],] == 0
    weird = f"/jobs/{quote(WEIRD)}"
    runs = [rig.fire("yearly"), rig.http("POST", f"{weird}/start")[1]["run"], rig.fire("late"), rig.fire("nope")]
    victim = rig.fire("slow")
    rig.running(victim)
    runs += [victim, replacement := rig.fire("slow")]
    rig.running(replacement)
    assert scrape(rig)["sexton_job_running"]["slow",] == 1
    rig.http("POST", "/jobs/slow/cancel")
    runs.append(rig.fire("once"))
    assert rig.http("POST", "/jobs/once/start")[0] == 409
    rig.http("POST", "/jobs/once/cancel")
    for run in runs:
        rig.recorded(run)
    last = until(lambda: s if sum((s := scrape(rig))["sexton_job_running"].values()) == 0 else None, 5, "none running")
    totals = last["sexton_job_runs_total"]
    assert sum(totals.values()) == len(runs)
    assert totals["yearly", "success"] == 1 and totals[WEIRD, "failure"] == 1 and totals["nope", "failure"] == 1
    assert totals["slow", "replaced"] == 1 and totals["slow", "cancelled"] == 1
    assert totals["late", "failure"] == 1 and last["sexton_job_timeouts_total"]["late",] == 1
    assert last["sexton_job_skipped_total"]["once",] == 1
    rig.write(jobs[:1])
    rig.http("POST", "/reload")
    assert {name for name, *_ in scrape(rig)["sexton_job_runs_total"]} == {"yearly"}

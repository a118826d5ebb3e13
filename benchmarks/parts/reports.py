"""Many jobs that fail at the same second, each with reports to places that never answer: what that costs the starts.

Beside it the same jobs without reports. The mail server and the web server take connections and never say a word; the
command of the third report sleeps.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from functools import partial

from harness.configuration import due_at, job
from harness.program import stamp_count, stamps
from harness.samples import spread
from harness.scale import Scale
from harness.stage import Case, Contestant, Metrics, Stage, require

from parts.burst import QUIET, RUN_SECONDS, SETTLE

ATTEMPTS = 3
FAILING = {"producesStdout": False, "always": True}


def cases(scale: Scale) -> Iterator[Case]:
    count = scale.burst
    for label, told in (("", False), (", every report hanging", True)):
        yield Case(f"reports: {count} failing jobs at one second{label}", partial(_measure, count, told), None,
                   scale.rounds)


def _measure(count: int, told: bool, stage: Stage, who: Contestant) -> Metrics:
    lead = QUIET + 4 + count / 150
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as silent:
        for _ in range(ATTEMPTS):
            options: dict[str, object] = {"failsWhen": FAILING}
            if told:
                options["onFailure"] = {"report": _report(silent.getsockname()[1])}
            found = _attempt(count, lead, options, stage, who)
            if found is not None:
                return found
            lead *= 2
    raise TimeoutError(f"not up in {lead / 2:g} s")


def _report(port: int) -> dict[str, object]:
    return {
        "mail": {"from": "a@example.org", "to": "b@example.org", "smtpHost": "127.0.0.1", "smtpPort": port},
        "webhook": {"url": {"value": f"http://127.0.0.1:{port}/"}},
        "shell": {"command": "exec sleep 120"},
    }


def _attempt(
    count: int, lead: float, options: dict[str, object], stage: Stage, who: Contestant,
) -> Metrics | None:
    path, due = stage.path("reports"), int(time.time() + lead) + 1
    words = stage.program.argv("stamp", path)
    jobs = [job(f"job-{number:05d}", words, due_at(due), **options) for number in range(count)]
    with stage.daemon(who, jobs, capture=True) as running:
        if time.time() > due - QUIET:
            return None
        before = running.cpu()
        time.sleep(max(0.0, due - time.time()))
        require(lambda: stamp_count(path) >= count, RUN_SECONDS, f"{count} starts", 0.02)
        time.sleep(SETTLE)
        after = running.cpu()
    late = [stamp.at - due for stamp in stamps(path)]
    return {
        "first job ms": late[0] * 1000,
        **spread("lateness", late),
        "CPU ms/job, daemon": (after.daemon - before.daemon) * 1000 / count,
    }

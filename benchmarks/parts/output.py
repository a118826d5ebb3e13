"""One job that writes lines of 100 bytes as fast as it is let; all of it is captured. Bare reads the pipe.

The daemon's own output, where captured lines may be repeated, goes to /dev/null.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from functools import partial

from harness import processes
from harness.client import Client
from harness.configuration import job
from harness.program import stamp_count, stamps
from harness.samples import spread
from harness.scale import Scale
from harness.stage import Case, Contestant, Metrics, Stage, until

OUTPUT_SECONDS = 600.0
ASK_EVERY = 0.02
SETTLE = 0.3
BLOCK = 1 << 20


def cases(scale: Scale) -> Iterator[Case]:
    size = scale.output_mebibytes
    for label, state in (("", False), (", with state", True)):
        measure, bare = partial(_measure, size, state), partial(_bare, size)
        yield Case(f"output: {size} MiB captured{label}", measure, bare, scale.rounds)


def _measure(size: int, state: bool, stage: Stage, who: Contestant) -> Metrics:
    path = stage.path("output")
    jobs = [job("flood", stage.program.argv("flood", path, size), captureStdout=True)]
    answers: list[float] = []
    store = stage.path("state") if state else None
    with stage.daemon(who, jobs, state=store, output=subprocess.DEVNULL) as running:
        probe = Client(running.port)
        before, held = running.cpu(), processes.peak(running.pid)
        running.client.start("flood")

        def ended() -> bool:
            began = time.monotonic()
            probe.request("GET", "/version")
            answers.append(time.monotonic() - began)
            return stamp_count(path) >= 2

        if not until(ended, OUTPUT_SECONDS, ASK_EVERY):
            raise TimeoutError(f"{size} MiB were not taken within {OUTPUT_SECONDS:g} s")
        time.sleep(SETTLE)
        after, grown = running.cpu(), processes.peak(running.pid) - held
        probe.close()
    first, last = stamps(path)
    return {
        "MiB/s": size / (last.at - first.at),
        "CPU s/GiB": (after.all - before.all) * 1024 / size,
        "growth of peak RSS MiB": grown,
        **spread("GET /version meanwhile", answers),
    }


def _bare(size: int, stage: Stage) -> Metrics:
    path = stage.path("output")
    work = time.process_time()
    with subprocess.Popen(stage.program.argv("flood", path, size), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        file = process.stdout.fileno()
        while os.read(file, BLOCK):
            pass
    spent = time.process_time() - work
    first, last = stamps(path)
    return {"MiB/s": size / (last.at - first.at), "CPU s/GiB": spent * 1024 / size}

"""From exec to the first answer of the API, what the daemon then holds in memory, and how long a check takes.

Bare is a Python process that reads the jobs from JSON and answers on a socket.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from harness import processes
from harness.configuration import NEVER, job
from harness.scale import Scale
from harness.stage import START_SECONDS, Case, Contestant, Metrics, Running, Stage, free_port

SETTLE = 0.5

BARE_SERVER = """
import asyncio, json, sys
with open(sys.argv[1]) as file:
    jobs = json.load(file)
class Answer(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
async def serve():
    server = await asyncio.get_running_loop().create_server(Answer, "127.0.0.1", int(sys.argv[2]))
    await server.serve_forever()
asyncio.run(serve())
"""
BARE_CHECK = "import json, sys; json.load(open(sys.argv[1]))"


def cases(scale: Scale) -> Iterator[Case]:
    for count in scale.start:
        rounds = scale.rounds if count <= scale.start_often else 1
        yield Case(f"start: {count} jobs", partial(_measure, count), partial(_bare, count), rounds)


def _settled(running: Running) -> Metrics:
    time.sleep(SETTLE)
    return {
        "exec to API s": running.started_in,
        "RSS of the tree MiB": processes.resident(running.pid),
        "PSS of the tree MiB": processes.proportional(running.pid),
        "peak RSS of the daemon MiB": processes.peak(running.pid),
    }


def _check(argv: list[str]) -> float:
    began = time.monotonic()
    subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=START_SECONDS, check=True)
    return time.monotonic() - began


def _measure(count: int, stage: Stage, who: Contestant) -> Metrics:
    words = stage.program.argv("stamp", "/dev/null")
    jobs = [job(f"job-{number:05d}", words) for number in range(count)]
    with stage.daemon(who, jobs) as running:
        found = _settled(running)
    return {**found, "check s": _check(who.check_argv(str(running.config)))}


def _bare(count: int, stage: Stage) -> Metrics:
    config = Path(stage.path("bare")) / "jobs.json"
    config.parent.mkdir()
    words = stage.program.argv("stamp", "/dev/null")
    jobs = [{"name": f"job-{number:05d}", "command": words, "schedule": NEVER} for number in range(count)]
    config.write_text(json.dumps(jobs))
    port = free_port()
    argv = [sys.executable, "-c", BARE_SERVER, str(config), str(port)]
    with stage.launched(argv, config, port) as running:
        found = _settled(running)
    return {**found, "check s": _check([sys.executable, "-c", BARE_CHECK, str(config)])}

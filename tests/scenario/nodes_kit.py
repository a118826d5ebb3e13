"""For tests of several nodes: daemons that share a store, each in a folder of its own."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from keep_kit import end_processes_in
from rig import NEVER, Rig, until

TTL = 5
"""Seconds; the least that the configuration allows."""
START_SECONDS = 60.0
DIRECTORY, POSTGRES = "directory", "postgres"
STORES = (DIRECTORY, POSTGRES)


class Node(Rig):
    """A daemon that calls itself by a name of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.name = name
        self.environment["NODE"] = name
        self.state: dict[str, Any] = {}

    def start_on(self, job: dict[str, Any] | list[dict[str, Any]], **state: Any) -> Node:
        """Start with these jobs; `state` is added to the section of the store."""
        self.write_jobs(job, **state)
        self.start()
        return self

    def write_jobs(self, job: dict[str, Any] | list[dict[str, Any]], **state: Any) -> None:
        jobs = job if isinstance(job, list) else [job]
        self.write(jobs, state={"slotTtlSeconds": TTL, "nodeName": self.name, **self.state, **state})

    def live(self, job: str = "j") -> list[str]:
        found: list[str] = self.job(job)["runs"]
        return found

    def start_job(self, job: str = "j", **body: Any) -> tuple[int, Any]:
        return self.http("POST", f"/jobs/{job}/start", body or None)

    def slot(self, job: str = "j") -> Any:
        return self.job(job)["slot"]

    def lines(self, words: str) -> list[str]:
        """Log lines with the words."""
        return [line for line in self.log().splitlines() if words in line]


class Nodes:
    """Daemons `a`, `b`, `c` on one store. What they do is written with its time to one file."""

    def __init__(self, folder: Path, kind: str, place: str) -> None:
        self.folder = folder
        self.marks = folder / "marks"
        self.kind = kind
        self.place = place
        self.all: list[Node] = []

    def node(self, name: str, **state: Any) -> Node:
        made = Node(self.folder / name, name)
        made.state = {**self.section(), **state}
        self.all.append(made)
        return made

    def section(self) -> dict[str, Any]:
        if self.kind == POSTGRES:
            return {"url": self.place, "localPath": str(self.folder / "local")}
        return {"path": self.place, "topology": "shared"}

    def start(self, job: dict[str, Any] | list[dict[str, Any]], names: str = "ab", **state: Any) -> list[Node]:
        """Start nodes of these one-letter names, side by side."""
        made = [self.node(name) for name in names]
        for one in made:
            one.write_jobs(job, **state)
            one.spawn()
        for one in made:
            until(one._answers, START_SECONDS, f"node {one.name}")
        for one in made:
            until(lambda one=one: one.http("GET", "/nodes")[0] == 200, START_SECONDS, f"{one.name} among the nodes")
        return made

    def mark(self, what: str) -> str:
        """Shell: note what has happened, on which node, and when."""
        return f'echo "$NODE {what} $(date +%s.%N)" >> {self.marks}'

    def marked(self, what: str | None = None, node: str | None = None) -> list[tuple[str, str, float]]:
        """(node, what, when) in order of time."""
        if not self.marks.exists():
            return []
        lines = map(re.compile(r"(\S+) (\S+) ([\d.]+)").fullmatch, self.marks.read_text().splitlines())
        found = [(line[1], line[2], float(line[3])) for line in lines if line is not None]
        return sorted((one for one in found if what in (None, one[1]) and node in (None, one[0])),
                      key=lambda one: one[2])

    def job(self, policy: str = "Forbid", seconds: float = 60, **more: Any) -> dict[str, Any]:
        """A cluster-scoped job that marks its start, and its end unless it is killed."""
        command = f"{self.mark('start')}\nsleep {seconds:g} & wait $!\n{self.mark('end')}"
        return {"name": "j", "schedule": NEVER, "command": command, "concurrencyPolicy": policy, "killTimeout": 2,
                "concurrencyScope": "cluster", **more}

    def close(self) -> None:
        for one in self.all:
            if one.process is not None and one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
            one.close()
            end_processes_in(one.folder)  # also runs that outlive a daemon


@contextmanager
def nodes_on(folder: Path, kind: str, place: str) -> Iterator[Nodes]:
    made = Nodes(folder, kind, place)
    try:
        yield made
    finally:
        made.close()


def start_until(node: Node, status: int, seconds: float, job: str = "j") -> tuple[float, Any]:
    """Start the job by hand again and again until the answer has this status; when that was, and what it said."""
    end = time.monotonic() + seconds
    while True:
        found, body = node.start_job(job)
        if found == status:
            return time.time(), body
        assert time.monotonic() < end, (found, body)
        time.sleep(0.1)

"""`sexton nodes`: who shares the store, what each node runs and holds, and how far off its clock is."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

import msgspec

from sexton.cli.client import Client, decoded
from sexton.cli.exits import Exit
from sexton.cli.terminal import Cell, Screen, Tone
from sexton.cli.times import span

_HEADS = ("NODE", "STATE", "HEARTBEAT", "CLOCK", "RUNS", "SLOTS", "JOBS", "JOB SET", "VERSION", "UP")
FAR_OFF_SECONDS = 5.0


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    self: bool = False
    state: str
    version: str
    started_at: datetime
    heartbeat_age: float
    clock_offset: float = 0.0
    job_set_id: str = ""
    same_jobs: bool = True
    jobs: int = 0
    runs: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()


class NodesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    shared: bool
    problem: str | None = None
    nodes: tuple[NodeAnswer, ...] = ()


def nodes(options: Namespace, client: Client, screen: Screen) -> int:
    """All nodes at the last look of the one that is asked."""
    raw = client.get("/nodes")
    if options.json:
        screen.json(raw)
        return Exit.OK
    found = decoded(raw, NodesAnswer)
    now = datetime.now(UTC)
    screen.table(_HEADS, [_row(node, now) for node in found.nodes])
    if found.problem is not None:
        screen.line(Cell(f"The other nodes are not seen now: {found.problem}", Tone.WARN))
    if not found.shared:
        screen.line(Cell("This node's store is its own; other nodes can share a folder on a mount, or a database.",
                         Tone.FAINT))
    if any(not node.same_jobs for node in found.nodes):
        screen.line(Cell("Not all nodes have loaded the same jobs.", Tone.WARN))
    return Exit.OK


def _row(node: NodeAnswer, now: datetime) -> tuple[Cell, ...]:
    alive = node.state == "alive"
    off = abs(node.clock_offset) > FAR_OFF_SECONDS
    return (
        Cell(node.name + (" (this one)" if node.self else "")),
        Cell(node.state, Tone.LIVE if alive else Tone.WARN),
        Cell(f"{span(node.heartbeat_age)} ago"),
        Cell(f"{node.clock_offset:+.1f} s", Tone.WARN if off else Tone.FAINT),
        Cell(str(len(node.runs)), Tone.LIVE if node.runs else Tone.FAINT),
        Cell(", ".join(node.slots) or "-", Tone.PLAIN if node.slots else Tone.FAINT),
        Cell(str(node.jobs)),
        Cell(node.job_set_id, Tone.PLAIN if node.same_jobs else Tone.WARN),
        Cell(node.version, Tone.FAINT),
        Cell(span(max(0.0, (now - node.started_at).total_seconds())), Tone.FAINT),
    )

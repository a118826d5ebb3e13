"""Routes about the nodes that share the store."""

from __future__ import annotations

from datetime import datetime

import msgspec
from aiohttp import web

from sexton.api.routes import Answer, Media, Route, answer, control_of
from sexton.daemon.fleet import Fleet
from sexton.store.coordination import Presence


class NodeView(msgspec.Struct, kw_only=True):
    """A node at the last look of the one that is asked."""

    id: str
    name: str
    self: bool
    state: str
    """`alive`, or `silent`: it has missed its heartbeats for longer than a slot lives."""
    version: str
    started_at: datetime
    heartbeat_age: float
    """Seconds since its last heartbeat, by the store's clock."""
    clock_offset: float
    """Seconds that its clock was ahead of the store's."""
    job_set_id: str
    same_jobs: bool
    """It has loaded the same jobs as the one that is asked."""
    jobs: int
    runs: list[str]
    slots: list[str]


class NodeList(msgspec.Struct, kw_only=True):
    shared: bool
    """Several nodes can use this store."""
    problem: str | None
    """Why the other nodes are not seen now: the list is then an old one."""
    nodes: list[NodeView]


class JobSet(msgspec.Struct, kw_only=True):
    job_set_id: str
    jobs: int


async def list_nodes(request: web.Request) -> web.Response:
    fleet = control_of(request).fleet
    await fleet.look()
    mine = await fleet.job_set_id()
    nodes = [_view(fleet, presence, mine) for presence in fleet.seen()]
    nodes.sort(key=lambda node: (node.name, node.id))
    return answer(NodeList(shared=fleet.shared, problem=fleet.problem, nodes=nodes))


async def job_set_id(request: web.Request) -> web.Response:
    """Text, as the reference has it; JSON for whoever accepts it."""
    fleet = control_of(request).fleet
    digest = await fleet.job_set_id()
    if "application/json" in request.headers.get("Accept", ""):
        return answer(JobSet(job_set_id=digest, jobs=fleet.facts().jobs))
    return web.Response(text=digest)


def _view(fleet: Fleet, presence: Presence, mine: str) -> NodeView:
    facts = presence.facts
    return NodeView(
        id=facts.identity.id, name=facts.identity.name, self=facts.identity.id == fleet.me.id,
        state="silent" if fleet.is_silent(presence) else "alive", version=facts.version, started_at=facts.started_at,
        heartbeat_age=round(max(0.0, presence.silent_for), 3), clock_offset=round(presence.clock_offset, 3),
        job_set_id=facts.job_set_id, same_jobs=facts.job_set_id == mine, jobs=facts.jobs,
        runs=list(facts.runs), slots=[name.removeprefix("slots/") for name in facts.slots],
    )


ROUTES = (
    Route("GET", "/nodes", list_nodes, "The nodes that share the store, with what they run and hold",
          {200: Answer("Nodes", NodeList)}),
    Route("GET", "/job-set-id", job_set_id, "A digest of the loaded jobs: nodes with another one have other jobs",
          {200: Answer("Digest", JobSet, Media.TEXT)}),
)

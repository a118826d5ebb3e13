"""Routes below /pools: who holds slots, and who waits for some. Names are those of the reference daemon where it has
them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from aiohttp import web

from sexton.api.bodies import StopBody
from sexton.api.routes import BODY_PROBLEMS, Answer, Route, answer, control_of, problem, read_body
from sexton.daemon.control import Control
from sexton.run.pools import Entry, Holding, Pool


class PoolView(msgspec.Struct, kw_only=True):
    """One pool. Counts are since the start of the daemon."""

    name: str
    slots: int
    inUse: int
    free: int
    queued: int
    maxQueued: int
    removed: bool
    """The configuration has it no more; runs still hold slots of it."""
    draining: bool
    """More slots are held than there are now: nobody gets any until enough are free."""
    admitted: int
    refused: int
    """Launches that found the queue full."""
    expired: int
    """Runs that waited too long and were skipped."""
    waitedSeconds: float
    """That all admitted runs have waited, together."""


class EntryView(msgspec.Struct, kw_only=True):
    """A run that holds slots (`state` is `running`) or waits for some (`queued`)."""

    id: str
    job: str
    state: str
    slots: int
    priority: int | None
    queuedAt: datetime | None
    expiresAt: datetime | None
    waitedSeconds: float | None
    trigger: str
    requested_by: str | None
    reason: str | None
    """Why it waits."""
    overtakenSlots: int
    """Slots that were given to others behind it while it waited for slots."""


class PoolDetail(PoolView, kw_only=True):
    holders: list[EntryView]
    entries: list[EntryView]
    """Those who wait, in the order of their turns."""


class EntryCancelled(msgspec.Struct, kw_only=True):
    id: str
    state: str


def pool_view(pool: Pool) -> PoolView:
    return PoolView(**_facts(pool))


def _facts(pool: Pool) -> dict[str, Any]:
    return {
        "name": pool.name, "slots": pool.capacity, "inUse": pool.used, "free": max(0, pool.capacity - pool.used),
        "queued": len(pool.entries), "maxQueued": pool.settings.max_queued if pool.settings is not None else 0,
        "removed": pool.settings is None, "draining": pool.used > pool.capacity, "admitted": pool.admitted,
        "refused": pool.refused, "expired": pool.expired, "waitedSeconds": round(pool.waited_seconds, 3),
    }


def pool_detail(control: Control, pool: Pool) -> PoolDetail:
    now = control.clock.now()
    return PoolDetail(
        **_facts(pool), holders=[_holder(holding) for holding in pool.holdings.values()],
        entries=[_entry(control, pool, entry, now) for entry in pool.queue()],
    )


def _holder(holding: Holding) -> EntryView:
    run = holding.run
    ticket = run.launch.ticket
    waited = (run.admitted_at - run.launch.created_at).total_seconds() if run.admitted_at is not None else None
    return EntryView(
        id=run.id, job=run.job.name, state="running", slots=holding.slots, priority=ticket.priority if ticket else None,
        queuedAt=run.launch.created_at, expiresAt=None, waitedSeconds=waited, trigger=run.launch.trigger.value,
        requested_by=run.launch.requested_by, overtakenSlots=0,
        reason="it could not be terminated and keeps its slots" if run.unconfirmed else None,
    )


def _entry(control: Control, pool: Pool, entry: Entry, now: datetime) -> EntryView:
    run, ticket = entry.run, entry.ticket
    return EntryView(
        id=run.id, job=run.job.name, state="queued", slots=ticket.slots, priority=ticket.priority,
        queuedAt=run.launch.created_at, expiresAt=ticket.expires_at,
        waitedSeconds=round(max(0.0, (now - run.launch.created_at).total_seconds()), 3),
        trigger=run.launch.trigger.value, requested_by=run.launch.requested_by,
        reason=control.pools.why_it_waits(pool, entry), overtakenSlots=entry.overtaken,
    )


async def list_pools(request: web.Request) -> web.Response:
    return answer([pool_view(pool) for pool in control_of(request).pools])


async def get_pool(request: web.Request) -> web.Response:
    control = control_of(request)
    return answer(pool_detail(control, control.pool(request.match_info["name"])))


async def cancel_entry(request: web.Request) -> web.Response:
    body = await read_body(request, StopBody)
    run = await control_of(request).cancel_queued(
        request.match_info["name"], request.match_info["key"], reason=body.reason,
        requested_by=body.requested_by or "api",
    )
    return answer(EntryCancelled(id=run.id, state="cancelled"))


ROUTES = (
    Route("GET", "/pools", list_pools, "All pools with their slots and the length of their queues",
          {200: Answer("Pools", list[PoolView])}),
    Route("GET", "/pools/{name}", get_pool, "One pool: who holds its slots, who waits for some and why",
          {200: Answer("The pool", PoolDetail), 404: problem("There is no such pool")}),
    Route("POST", "/pools/{name}/queue/{key}/cancel", cancel_entry, "Take a waiting run, by its id, out of the queue",
          {200: Answer("It will not start", EntryCancelled), 404: problem("There is no such pool, or no such run"),
           409: problem("It does not wait any more"), **BODY_PROBLEMS},
          body=StopBody),
)

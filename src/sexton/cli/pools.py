"""`sexton pools`: slots, who holds them, who waits."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

import msgspec

from sexton.cli.client import Client, decoded, route
from sexton.cli.exits import Exit
from sexton.cli.terminal import Cell, Screen, Tone
from sexton.cli.times import span

_HEADS = ("NAME", "SLOTS", "IN USE", "QUEUED", "AT MOST", "ADMITTED", "EXPIRED", "REFUSED")
_ENTRY_HEADS = ("RUN", "JOB", "STATE", "SLOTS", "PRIORITY", "WAITED", "EXPIRES IN", "WHY")


class PoolAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    slots: int
    in_use: int
    queued: int
    max_queued: int = 0
    removed: bool = False
    draining: bool = False
    admitted: int = 0
    expired: int = 0
    refused: int = 0


class Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    job: str
    state: str
    slots: int
    priority: int | None = None
    expires_at: datetime | None = None
    waited_seconds: float | None = None
    reason: str | None = None


class PoolDetailAnswer(PoolAnswer, frozen=True, kw_only=True, rename="camel"):
    holders: tuple[Entry, ...] = ()
    entries: tuple[Entry, ...] = ()


def pools(options: Namespace, client: Client, screen: Screen) -> int:
    """All pools, or everybody in one."""
    if options.pool is not None:
        return _one(options, client, screen)
    raw = client.get("/pools")
    if options.json:
        screen.json(raw)
        return Exit.OK
    found = decoded(raw, list[PoolAnswer])
    if not found:
        screen.line(Cell("There are no pools.", Tone.FAINT))
        return Exit.OK
    screen.table(_HEADS, [_row(pool) for pool in found])
    return Exit.OK


def _row(pool: PoolAnswer) -> tuple[Cell, ...]:
    return (
        Cell(pool.name + (" (removed)" if pool.removed else " (draining)" if pool.draining else "")),
        Cell(str(pool.slots)),
        Cell(str(pool.in_use), Tone.LIVE if pool.in_use else Tone.FAINT),
        Cell(str(pool.queued), Tone.WARN if pool.queued else Tone.FAINT),
        Cell(str(pool.max_queued)),
        *(Cell(str(count), Tone.FAINT) for count in (pool.admitted,)),
        *(Cell(str(count), Tone.WARN if count else Tone.FAINT) for count in (pool.expired, pool.refused)),
    )


def _one(options: Namespace, client: Client, screen: Screen) -> int:
    raw = client.get(route("pools", options.pool))
    if options.json:
        screen.json(raw)
        return Exit.OK
    pool = decoded(raw, PoolDetailAnswer)
    state = "; it drains first" if pool.draining else ""
    screen.line(f"{pool.name}: {pool.in_use} of {pool.slots} slots in use, {pool.queued} run(s) wait{state}")
    if pool.holders or pool.entries:
        now = datetime.now(UTC)
        screen.table(_ENTRY_HEADS, [_entry(one, now) for one in (*pool.holders, *pool.entries)])
    return Exit.OK


def _entry(one: Entry, now: datetime) -> tuple[Cell, ...]:
    left = max(0.0, (one.expires_at - now).total_seconds()) if one.expires_at is not None else None
    return (
        Cell(one.id),
        Cell(one.job),
        Cell(one.state, Tone.LIVE if one.state == "running" else Tone.WARN),
        Cell(str(one.slots)),
        Cell("" if one.priority is None else str(one.priority)),
        Cell("" if one.waited_seconds is None else span(one.waited_seconds)),
        Cell("" if left is None else span(left)),
        Cell(one.reason or ""),
    )

"""Leases, signals, nodes and fires in the database. Each is one statement, decided by the server and its clock."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from sexton.model.errors import StoreError
from sexton.model.node import NodeFacts, NodeIdentity
from sexton.store.coordination import Claimed, Denied, Fire, Granted, Lease, Occurrence, Presence, Signal
from sexton.store.postgres import statements
from sexton.store.postgres.database import Database, with_patience

ATTEMPTS = 20
"""At a claim that is denied by a lease which is gone at the next look."""
LOOK_SECONDS = 1.0
"""How often mail is looked for whether or not anybody was told of it: behind a pooler nobody is."""
LISTEN_AGAIN, LISTEN_LATEST = 1.0, 60.0
REMEMBERED = 1000

_facts = msgspec.json.Decoder(NodeFacts).decode
_signal = msgspec.json.Decoder(Signal).decode
_encode = msgspec.json.Encoder().encode


class Coordinator:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._channel = f"{database.schema}_signals"
        self._arrived: dict[str, asyncio.Event] = {}
        self._listening: asyncio.Task[None] | None = None
        self._taken: deque[int] = deque(maxlen=REMEMBERED)

    def begin(self) -> None:
        listen = lambda: self._database.listen(self._channel, self._heard)  # noqa: E731 (a name is what it needs)
        self._listening = asyncio.get_running_loop().create_task(
            with_patience(listen, LISTEN_AGAIN, LISTEN_LATEST), name="postgres notifications")

    async def end(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})

    # ---------------------------------------------------------------- leases

    async def claim(self, name: str, holder: str, node: str, ttl: float, heir_of: str | None) -> Granted | Denied:
        values = {"name": name, "holder": holder, "node": node, "ttl": ttl, "heir_of": heir_of}
        for _ in range(ATTEMPTS):
            rows = await self._database.rows(statements.CLAIM, values)
            if rows:
                fence, silent, silent_node, silent_fence = rows[0]
                lease = Lease(name=name, holder=holder, node=node, fence=fence)
                silent_lease = None if silent is None else Lease(
                    name=name, holder=silent, node=silent_node, fence=silent_fence)
                return Granted(lease=lease, taken_from=silent_lease)
            if (held := await self.read(name)) is not None:
                return held
        raise StoreError(f"the lease {name} changes all the time")

    async def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        values = {"name": lease.name, "holder": lease.holder, "fence": lease.fence, "ttl": ttl}
        if await self._database.rows(statements.RENEW, values):
            return Granted(lease=lease)
        await self._database.rows(statements.RAISE_FENCE, (lease.name, lease.node, lease.fence))
        return await self.claim(lease.name, lease.holder, lease.node, ttl, None)

    async def release(self, lease: Lease) -> bool:
        return bool(await self._database.rows(statements.RELEASE, (lease.name, lease.holder, lease.fence)))

    async def raise_fence(self, name: str, fence: int) -> None:
        await self._database.rows(statements.RAISE_FENCE, (name, "", fence))

    async def read(self, name: str) -> Denied | None:
        rows = await self._database.rows(statements.READ, (name,))
        if not rows or rows[0][3] <= 0:
            return None
        holder, node, fence, left = rows[0]
        return Denied(by=Lease(name=name, holder=holder, node=node, fence=fence), lapses_in=left)

    # ---------------------------------------------------------------- signals

    async def send(self, signal: Signal) -> None:
        values = {"to": signal.to, "body": _encode(signal).decode(), "channel": self._channel}
        await self._database.rows(statements.SEND, values)

    async def take(self, me: str) -> Sequence[Signal]:
        """Deleted only when they are here: a connection that breaks in between costs nobody a request, and what was
        taken already is known by its number."""
        rows = [row for row in await self._database.rows(statements.ARRIVED, (me,)) if row[0] not in self._taken]
        if not rows:
            return []
        self._taken.extend(row[0] for row in rows)
        await self._database.rows(statements.TAKEN, ([row[0] for row in rows],))
        return [_signal(row[1]) for row in rows]

    async def signalled(self, me: str, within: float) -> None:
        arrived = self._arrived.setdefault(me, asyncio.Event())
        try:
            async with asyncio.timeout(min(within, LOOK_SECONDS)):
                await arrived.wait()
        except TimeoutError:
            pass
        arrived.clear()

    def _heard(self, recipient: str) -> None:
        if (arrived := self._arrived.get(recipient)) is not None:
            arrived.set()

    # ---------------------------------------------------------------- nodes and fires

    async def announce(self, facts: NodeFacts) -> None:
        values = {"id": facts.identity.id, "clock": facts.clock, "body": _encode(facts).decode()}
        await self._database.rows(statements.ANNOUNCE, values)

    async def leave(self, node: str) -> None:
        await self._database.rows(statements.LEAVE, {"id": node})

    async def nodes(self) -> Sequence[Presence]:
        return [Presence(facts=_facts(body), silent_for=silent, clock_offset=offset)
                for body, silent, offset in await self._database.rows(statements.NODES)]

    async def claim_fire(self, job: str, scheduled_for: datetime, by: NodeIdentity) -> bool:
        rows = await self._database.rows(statements.CLAIM_FIRE, (job, scheduled_for, by.id))
        return bool(rows[0][0] == by.id)

    async def claim_fires(self, wanted: Sequence[Occurrence], by: NodeIdentity, most: int) -> Claimed:
        values = {"jobs": [one.job for one in wanted], "instants": [one.scheduled_for for one in wanted],
                  "by": by.id, "most": most}
        rows = await self._database.rows(statements.CLAIM_FIRES, values)
        owners = {Occurrence(job, at.astimezone(UTC)): owner for job, at, owner in rows}
        ours = frozenset(one for one, owner in owners.items() if owner == by.id)
        return Claimed(ours, frozenset(owners.keys() - ours))

    async def fired(self, job: str, since: datetime) -> Sequence[Fire]:
        rows = await self._database.rows(statements.FIRED, (job, since))
        return [Fire(scheduled_for=at.astimezone(UTC), by=by) for at, by in rows]

    async def forget_fires(self, before: datetime) -> None:
        await self._database.rows(statements.FORGET_FIRES, (before,))

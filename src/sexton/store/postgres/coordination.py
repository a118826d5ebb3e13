"""Leases, signals, nodes and fires in the database. Each is one statement, decided by the server and its clock."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
import psycopg

from sexton.model.errors import StoreError
from sexton.model.node import NodeFacts, NodeIdentity
from sexton.store.coordination import Claimed, Denied, Fire, Granted, Lease, Occurrence, Presence, Signal
from sexton.store.postgres import statements
from sexton.store.postgres.database import Database, with_patience

log = logging.getLogger(__name__)

ATTEMPTS = 20
"""At a claim that is denied by a lease which is gone at the next look."""
LOOK_SECONDS = 1.0
"""How often mail is looked for whether or not anybody was told of it: behind a pooler nobody is."""
LISTEN_AGAIN, LISTEN_LATEST = 1.0, 60.0
REMEMBERED = 1000

CLAIM_MAY_BE_LOST = "the database has failed over since, and may have lost another node's claim"

_facts = msgspec.json.Decoder(NodeFacts).decode
_signal = msgspec.json.Decoder(Signal).decode
_encode = msgspec.json.Encoder().encode


class Coordinator:
    def __init__(self, database: Database, *, wary: bool = False) -> None:
        """`wary` after a failover of the server: see `PostgresStore`."""
        self._database = database
        self._wary = wary
        self._timeline: int | None = None
        self.on_failover: Callable[[], None] = lambda: None
        """What was committed last may be missing."""
        self._channel = f"{database.schema}_signals"
        self._arrived: dict[str, asyncio.Event] = {}
        self._listening: asyncio.Task[None] | None = None
        self._taken: deque[int] = deque(maxlen=REMEMBERED)

    async def look_at_timeline(self) -> None:
        """A server that does not tell (some services do not) is taken for one that never loses a commit. Raises
        StoreError."""
        try:
            await self._notice()
        except StoreError as failure:
            if not isinstance(failure.__cause__, psycopg.Error) or isinstance(
                    failure.__cause__, psycopg.OperationalError | psycopg.InterfaceError):
                raise
            self._wary = False
            log.warning("this database does not tell when it has failed over to a standby (%s): leases may be granted "
                        "twice then, if it loses commits", failure)

    async def _notice(self) -> None:
        before = self._timeline
        for (number,) in await self._database.rows(statements.NOTICE):
            self._timeline = number
            if before not in (None, number):
                self.on_failover()
                log.warning("the database has failed over, or was restored (timeline %d): what was committed last "
                            "before that may be missing%s", number,
                            "; no slot is granted before all have lapsed that were" if self._wary else "")

    def begin(self) -> None:
        listen = lambda: self._database.listen(self._channel, self._heard)  # noqa: E731 (a name is what it needs)
        self._listening = asyncio.get_running_loop().create_task(
            with_patience(listen, LISTEN_AGAIN, LISTEN_LATEST), name="postgres notifications")

    async def end(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})

    # ---------------------------------------------------------------- leases

    async def claim(
        self, name: str, holder: str, node: str, ttl: float, heir_of: str | None, shown: int = 0,
    ) -> Granted | Denied:
        """`shown` is the fence of a lease that the claimant has and the server does not know."""
        values = {"name": name, "holder": holder, "node": node, "ttl": ttl, "heir_of": heir_of, "shown": shown,
                  "wary": self._wary and not shown}
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
            if values["wary"]:
                await self._refuse_after_failover(ttl)
        raise StoreError(f"the lease {name} changes all the time")

    async def _refuse_after_failover(self, ttl: float) -> None:
        """Raises StoreError for as long as a lease may live that this server has never heard of."""
        await self._notice()
        for elapsed, _ in await self._database.rows(statements.NOTICED):
            if elapsed <= ttl:
                raise StoreError("the database has failed over and may have lost leases that were granted before; "
                                 f"those have lapsed in {ttl - elapsed:.0f} s")

    async def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        values = {"name": lease.name, "holder": lease.holder, "fence": lease.fence, "ttl": ttl}
        if await self._database.rows(statements.RENEW, values):
            return Granted(lease=lease)
        return await self.claim(lease.name, lease.holder, lease.node, ttl, None, shown=lease.fence)

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
        if self._timeline is not None:
            await self._notice()
        values = {"id": facts.identity.id, "clock": facts.clock, "body": _encode(facts).decode()}
        await self._database.rows(statements.ANNOUNCE, values)

    async def leave(self, node: str) -> None:
        await self._database.rows(statements.LEAVE, {"id": node})

    async def nodes(self) -> Sequence[Presence]:
        return [Presence(facts=_facts(body), silent_for=silent, clock_offset=offset)
                for body, silent, offset in await self._database.rows(statements.NODES)]

    async def claim_fire(self, job: str, scheduled_for: datetime, by: NodeIdentity) -> bool:
        """Raises StoreError, where wary, for one that was due before a failover: its claim may be lost."""
        if await self._doubtful([Occurrence(job, scheduled_for)]):
            raise StoreError(CLAIM_MAY_BE_LOST)
        rows = await self._database.rows(statements.CLAIM_FIRE, (job, scheduled_for, by.id))
        return bool(rows[0][0] == by.id)

    async def claim_fires(self, wanted: Sequence[Occurrence], by: NodeIdentity, most: int) -> Claimed:
        doubtful = await self._doubtful(wanted)
        asked = [one for one in wanted if one not in doubtful]
        values = {"jobs": [one.job for one in asked], "instants": [one.scheduled_for for one in asked],
                  "by": by.id, "most": most}
        rows = await self._database.rows(statements.CLAIM_FIRES, values) if asked else []
        owners = {Occurrence(job, at.astimezone(UTC)): owner for job, at, owner in rows}
        ours = frozenset(one for one, owner in owners.items() if owner == by.id)
        return Claimed(ours, frozenset(owners.keys() - ours), doubtful)

    async def _doubtful(self, wanted: Sequence[Occurrence]) -> frozenset[Occurrence]:
        """Where wary: those that were due before a failover, and that nobody has as far as this server knows."""
        if not self._wary:
            return frozenset()
        await self._notice()
        found: set[Occurrence] = set()
        for _, since in await self._database.rows(statements.NOTICED):
            for one in wanted:
                if one.scheduled_for <= since and not await self._is_claimed(one):
                    found.add(one)
        return frozenset(found)

    async def _is_claimed(self, one: Occurrence) -> bool:
        return any(fire.scheduled_for == one.scheduled_for for fire in await self.fired(one.job, one.scheduled_for))

    async def fired(self, job: str, since: datetime) -> Sequence[Fire]:
        rows = await self._database.rows(statements.FIRED, (job, since))
        return [Fire(scheduled_for=at.astimezone(UTC), by=by) for at, by in rows]

    async def forget_fires(self, before: datetime) -> None:
        await self._database.rows(statements.FORGET_FIRES, (before,))

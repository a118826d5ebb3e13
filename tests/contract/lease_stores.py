"""The lease rules of PostgreSQL and of one process in a simulated world: the real code, over a server that is a model
(or a real one whose clock is the world's)."""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
from lease_nodes import Node
from lease_world import NAME, Standing, World
from psycopg import sql

from sexton.model.node import NodeIdentity
from sexton.store.coordination import Denied, Granted, Lease
from sexton.store.local import LocalCoordination
from sexton.store.postgres import statements
from sexton.store.postgres.coordination import Coordinator
from sexton.store.postgres.schema import migrations

# -------------------------------------------------------------------- PostgreSQL


class Row(msgspec.Struct):
    holder: str | None
    node: str
    fence: int
    lapses_at: float
    silent_holder: str | None = None
    silent_node: str | None = None
    silent_fence: int | None = None


class ModelServer:
    """What the statements on leases do, each at one instant of the server's clock."""

    check_fence = True

    def __init__(self) -> None:
        self.leases: dict[str, Row] = {}

    def rows(self, now: float, text: str, values: Any) -> list[tuple[Any, ...]]:
        if text is statements.CLAIM:
            return self._claim(now, values)
        if text is statements.RENEW:
            row = self.leases.get(values["name"])
            if row is None or (row.holder, row.fence) != (values["holder"], values["fence"]):
                return []
            row.lapses_at = max(row.lapses_at, now + values["ttl"])
            return [(row.fence,)]
        if text is statements.RELEASE:
            name, holder, fence = values
            row = self.leases.get(name)
            if row is None or row.holder != holder or (self.check_fence and row.fence != fence):
                return []
            row.holder, row.lapses_at = None, now
            return [(row.fence,)]
        assert text is statements.READ
        row = self.leases.get(values[0])
        return [] if row is None or row.holder is None else [(row.holder, row.node, row.fence, row.lapses_at - now)]

    def _claim(self, now: float, values: Any) -> list[tuple[Any, ...]]:
        holder, heir_of, shown = values["holder"], values["heir_of"], values["shown"]
        row = self.leases.get(values["name"])
        if row is None:
            self.leases[values["name"]] = Row(holder, values["node"], shown + 1, now + values["ttl"])
            return [(shown + 1, None, None, None)]
        inherited = heir_of is not None and row.holder == heir_of
        if not (row.holder is None or row.holder == holder or inherited or row.lapses_at <= now or shown > row.fence):
            return []
        silent = row.holder if row.holder != holder and row.holder != heir_of else None
        fence = row.fence if row.holder == holder else row.fence + 1
        if shown > row.fence:
            fence = shown + 1
        lapses_at = max(now + values["ttl"], row.lapses_at if row.holder == holder else 0.0)
        self.leases[values["name"]] = new = Row(holder, values["node"], fence, lapses_at, silent, row.node, row.fence)
        return [(fence, silent, new.silent_node, new.silent_fence)]


class RealServer(ModelServer):
    """The same questions to a real server whose clock is the world's, and to the model: they must agree."""

    SCHEMA = "histories"

    def __init__(self, url: str) -> None:
        super().__init__()
        self.connection = psycopg.connect(url, autocommit=True, options="-c search_path=simulated,pg_catalog")
        self.connection.execute("CREATE SCHEMA simulated")
        self.connection.execute("CREATE TABLE simulated.present (at timestamptz NOT NULL)")
        self.connection.execute("INSERT INTO simulated.present VALUES (now())")
        self.connection.execute("CREATE FUNCTION simulated.clock_timestamp() RETURNS timestamptz LANGUAGE sql "
                                "AS 'SELECT at FROM simulated.present'")
        self.connection.execute(f"CREATE SCHEMA {self.SCHEMA}")
        for step in migrations():
            self.connection.execute(self._composed(step.sql))
        self.asked = 0

    def clear(self) -> None:
        """For the next history."""
        self.leases.clear()
        self.connection.execute(self._composed("TRUNCATE {schema}.lease"))

    def rows(self, now: float, text: str, values: Any) -> list[tuple[Any, ...]]:
        self.connection.execute("UPDATE simulated.present SET at = to_timestamp(%s)", (now,))
        cursor = self.connection.execute(self._composed(text), values)
        found = cursor.fetchall() if cursor.description is not None else []
        expected = super().rows(now, text, values)
        self.asked += 1
        assert len(found) == len(expected) and all(map(_alike, found, expected)), (text, values, found, expected)
        return found

    def _composed(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(schema=sql.Identifier(self.SCHEMA))


def _alike(found: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """But for what a timestamp has no room for."""
    return all(abs(one - other) < 1e-3 if isinstance(other, float) else one == other
               for one, other in zip(found, expected, strict=True))


class _Client:
    """`postgres.Database`, as far as leases need one."""

    schema = "histories"

    def __init__(self, world: World, node: Node, server: ModelServer) -> None:
        self._world, self._node, self._server = world, node, server

    async def rows(self, text: str, values: Any = ()) -> list[tuple[Any, ...]]:
        world = self._world
        found: list[tuple[Any, ...]] = await world.exchange(
            self._node, lambda answer: self._server.rows(world.store_clock(), text, values))
        return found


class _Through:
    """`Leases` by a Coordinator, as PostgresStore asks it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def claim(self, name: str, by: NodeIdentity, ttl: float, *, heir_of: str | None = None) -> Granted | Denied:
        return await self._coordinator.claim(name, by.id, by.name, ttl, heir_of)

    async def renew(self, lease: Lease, ttl: float) -> Granted | Denied:
        return await self._coordinator.renew(lease, ttl)

    async def release(self, lease: Lease) -> bool:
        return await self._coordinator.release(lease)

    async def read(self, name: str) -> Denied | None:
        return await self._coordinator.read(name)


class DatabaseStore:
    def __init__(self, world: World, server: ModelServer | None = None) -> None:
        self._world = world
        self._server = ModelServer() if server is None else server

    def leases_of(self, node: Node) -> _Through:
        client: Any = _Client(self._world, node, self._server)
        return _Through(Coordinator(client))

    def standing(self) -> Standing:
        row = self._server.leases.get(NAME)
        return Standing(None, 0) if row is None else Standing(row.holder, row.fence)

    def release_now(self, lease: Lease) -> bool:
        values = lease.name, lease.holder, lease.fence
        return bool(self._server.rows(self._world.store_clock(), statements.RELEASE, values))


# -------------------------------------------------------------------- the memory of one process


class LocalStore:
    """Its contenders are tasks of one process; what is asked of it is done at one instant."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fences: dict[str, int] = {}
        self.rules = LocalCoordination(self._keep, world.store_clock)

    async def _keep(self, name: str, fence: int) -> None:
        self._fences[name] = fence

    def leases_of(self, node: Node) -> Any:
        return _Asking(self._world, node, self.rules)

    def standing(self) -> Standing:
        term = self.rules._terms.get(NAME)
        return Standing(None if term is None else term.lease.holder, self._fences.get(NAME, 0))

    def release_now(self, lease: Lease) -> bool:
        return bool(_at_once(self.rules.release(lease)))


class _Asking:
    """`Leases` whose every call is one exchange."""

    def __init__(self, world: World, node: Node, rules: LocalCoordination) -> None:
        self._world, self._node, self._rules = world, node, rules

    async def claim(self, name: str, by: NodeIdentity, ttl: float, *, heir_of: str | None = None) -> Any:
        return await self._ask(lambda: self._rules.claim(name, by, ttl, heir_of=heir_of))

    async def renew(self, lease: Lease, ttl: float) -> Any:
        return await self._ask(lambda: self._rules.renew(lease, ttl))

    async def release(self, lease: Lease) -> Any:
        return await self._ask(lambda: self._rules.release(lease))

    async def read(self, name: str) -> Any:
        return await self._ask(lambda: self._rules.read(name))

    async def _ask(self, work: Any) -> Any:
        return await self._world.exchange(self._node, lambda answer: _at_once(work()))


def _at_once(coroutine: Any) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits for something")

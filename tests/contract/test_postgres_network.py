"""The PostgreSQL store when the network swallows what is sent, or the database comes back after a while."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from gate import Gate
from ledger_samples import ids, opened, recorded, run_id
from test_coordination import A, B, granted
from test_postgres_faults import works_again

from postgres_server import PostgresServer
from sexton.model.errors import StoreError
from sexton.store.coordination import Granted
from sexton.store.postgres import PostgresStore, writer
from sexton.store.postgres import database as module


@pytest.fixture
def gate(postgres: PostgresServer) -> Iterator[Gate]:
    made = Gate(postgres.port)
    yield made
    made.close()


@pytest.fixture
def through(database: str, postgres: PostgresServer, gate: Gate) -> str:
    return database.replace(f":{postgres.port}/", f":{gate.port}/")


@pytest.fixture
async def cut(through: str) -> AsyncIterator[PostgresStore]:
    """The store of a node that may be cut off."""
    store = PostgresStore(through, close_timeout=1.0)
    await store.open()
    yield store
    try:
        await store.close()
    except StoreError:
        pass


@pytest.mark.parametrize("heard", [False, True], ids=["commit-lost", "answer-lost"])
async def test_a_node_that_is_cut_off_in_mid_transaction_stands_in_nobody_s_way(
    gate: Gate, cut: PostgresStore, database: str, heard: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its half transaction holds locks, and the server is told of no end: it is let go within seconds, and others write
    records of the same job. The cut node is told that it knows nothing; what it offers again is there once."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 4.0)
    monkeypatch.setattr(writer, "LET_GO", module.LET_GO.replace("5s", "1s"))
    async with opened(PostgresStore(database)) as other:
        gate.shut_at(b"COMMIT", let_through=heard)
        asked = asyncio.ensure_future(cut.record(recorded(1)))
        while gate.passing:
            await asyncio.sleep(0.01)
        await other.record(recorded(2))
        with pytest.raises(StoreError, match="did not answer"):
            await asked
        assert ids(await other.runs(limit=9)) == [run_id(2), run_id(1)][: 2 if heard else 1] or heard
        assert (await other.get(run_id(1)) is not None) is heard
        gate.open()
        await works_again(cut)
        await cut.record(recorded(1))
        assert sorted(ids(await other.runs(limit=9))) == sorted(run_id(number) for number in (1, 2, 900))
        assert sum((await other.history("backup", 9)).totals.values()) == 3


async def test_a_claim_whose_answer_is_lost_is_the_claimant_s(
    gate: Gate, cut: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store has granted it and nobody heard: asked again, it is the same lease with the same fence, and nobody
    else's meanwhile."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 1.0)
    gate.shut_at(b"INSERT", let_through=True)
    with pytest.raises(StoreError, match="did not answer"):
        await cut.claim("slots/x", A, 60.0)
    async with opened(PostgresStore(database)) as other:
        assert not isinstance(await other.claim("slots/x", B, 60.0), Granted)
        gate.open()
        await works_again(cut)
        assert (await granted(cut, "slots/x", A, 60.0)).fence == 1


async def test_it_is_found_again_soon_however_long_it_was_away(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who tries again ever more rarely finds a database that was away for a minute a minute later: with every slot lost
    by then. It takes seconds."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    async with opened(PostgresStore(database)) as store:
        await store.record(recorded(1))
        postgres.kill()
        try:
            end = time.monotonic() + 8
            while time.monotonic() < end:
                with pytest.raises(StoreError):
                    await store.claim("slots/x", A, 30.0)
        finally:
            postgres.start()
        async with asyncio.timeout(5.5):
            await asyncio.gather(works_again(store), claimed(store))


async def claimed(store: PostgresStore) -> None:
    while True:
        try:
            await store.claim("slots/x", A, 30.0)
            return
        except StoreError:
            await asyncio.sleep(0.05)


async def test_a_connection_that_cannot_be_had_costs_no_descriptor(gate: Gate, through: str) -> None:
    """One that times out is closed then, and not when garbage is collected: that may be hours later."""
    gate.shut()
    gc.collect()
    gc.disable()
    try:
        before = os.listdir("/proc/self/fd")
        with pytest.raises(psycopg.OperationalError):
            await module._Link.connect(through, connect_timeout=2)
        after = os.listdir("/proc/self/fd")
    finally:
        gc.enable()
    assert len(after) <= len(before) + 1, "the gate's own end of it"


async def test_names_that_cannot_be_resolved_take_no_threads_from_others(
    postgres: PostgresServer, database: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the network the name server goes, and nothing bounds how long a name takes. The rest of the daemon keeps
    threads of the event loop's pool: to read files, to answer."""
    answers, asked = threading.Event(), []
    resolve = socket.getaddrinfo

    def slow(host: str, *args: object, **more: object) -> object:
        if host == "localhost" and not answers.is_set():
            asked.append(host)
            answers.wait(30)
        return resolve(host, *args, **more)  # type: ignore[arg-type]

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(5))
    async with opened(PostgresStore(database.replace("127.0.0.1", "localhost"))) as store:
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sexton'")
        calls = [store.history("backup", 1) for _ in range(9)] + [store.claim(f"{n}", A, 9.0) for n in range(9)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(one, StoreError) for one in outcomes) and 1 <= len(asked) <= 3
        assert await asyncio.wait_for(asyncio.to_thread(lambda: 7), 2) == 7
        answers.set()
        await works_again(store)


async def test_a_database_that_has_become_read_only_is_left(database: str) -> None:
    """A connection to what is a standby by now would refuse every write for as long as it lives: another one is made,
    which finds the primary."""
    async with opened(PostgresStore(database)) as store:
        await store.record(recorded(1))
        name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
        for connection in list(store._database._pool._pool):  # type: ignore[union-attr]
            await connection.execute("SET default_transaction_read_only = on")
        await store.record(recorded(2))
        with psycopg.connect(database, autocommit=True) as other:
            other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with pytest.raises(StoreError, match="read-only"):
            await PostgresStore(database).open()

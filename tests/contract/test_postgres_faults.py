"""The PostgreSQL store when the database does not do what it should: each call is bounded and says what is wrong."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import psycopg
import pytest
from ledger_samples import ids, launch, opened, recorded, run_id
from test_coordination import A, B, granted
from test_coordination import signal as request_of

from postgres_server import PostgresServer
from sexton.model.errors import StoreError
from sexton.store.coordination import Denied, Granted
from sexton.store.postgres import PostgresStore, writer
from sexton.store.postgres import database as module
from sexton.store.postgres.database import schema_of

PATIENCE = 30.0


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with opened(PostgresStore(database)) as it:
        yield it


async def works_again(store: PostgresStore) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await store.record(recorded(900))
                return
            except StoreError:
                await asyncio.sleep(0.1)


async def test_trouble_ends_without_another_write(
    postgres: PostgresServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The write that failed may have been the last for hours: a store that works again says so all the same."""
    monkeypatch.setattr(writer, "PROBE_SECONDS", 0.2)
    await store.record(recorded(1))
    postgres.kill()
    try:
        with pytest.raises(StoreError, match="database"):
            await store.record(recorded(2))
        await asyncio.sleep(0.5)
        assert store.problem is not None, "it was tried, and does not work"
    finally:
        postgres.start()
    async with asyncio.timeout(PATIENCE):
        while store.problem is not None:
            await asyncio.sleep(0.05)
    assert ids(await store.runs(limit=9)) == [run_id(1)]


async def test_a_probe_is_refused_where_records_are(
    database: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that answers is not yet one that takes records: here their table is gone for a while."""
    monkeypatch.setattr(writer, "PROBE_SECONDS", 0.05)
    await store.record(recorded(1))
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as other:
        await other.execute("ALTER TABLE sexton.run RENAME TO away")
        with pytest.raises(StoreError):
            await store.record(recorded(2))
        await asyncio.sleep(0.5)
        assert store.problem is not None, "it was tried, and is refused"
        await other.execute("ALTER TABLE sexton.away RENAME TO run")
        async with asyncio.timeout(PATIENCE):
            while store.problem is not None:
                await asyncio.sleep(0.05)


async def test_a_server_that_was_killed_is_used_again(postgres: PostgresServer, store: PostgresStore) -> None:
    """What was acknowledged is there; a lease is still its holder's, with its fence; calls in between are errors."""
    await store.intend(launch(1))
    lease = await granted(store, "slots/x", A)
    postgres.kill()
    try:
        with pytest.raises(StoreError, match="database"):
            await store.record(recorded(2))
        assert store.problem is not None
        with pytest.raises(StoreError):
            await store.claim("slots/x", B, 30.0)
    finally:
        postgres.start()
    await works_again(store)
    assert store.problem is None
    assert ids(await store.unfinished()) == [run_id(1)]
    answer = await store.renew(lease, 30.0)
    assert isinstance(answer, Granted) and answer.lease == lease


async def test_a_connection_that_was_cut_costs_no_call(database: str, store: PostgresStore) -> None:
    """A restart of the server or a firewall leaves dead connections in the pool: the call is made once more."""
    for number in range(5):
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sexton'")
        await store.record(recorded(number))
        assert isinstance(await store.claim(f"slots/{number}", A, 30.0), Granted)
        assert isinstance(await store.claim(f"slots/{number}", B, 30.0), Denied)
    assert ids(await store.runs(limit=10)) == [run_id(number) for number in range(4, -1, -1)]


async def test_a_server_that_hangs_is_not_waited_for_for_ever(
    postgres: PostgresServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stopped, it keeps its connections and says nothing: calls end within their bound, and work when it goes on."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 1.0)
    pids = postgres.processes()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        for call in (lambda: store.record(recorded(1)), lambda: store.claim("slots/x", A, 30.0),
                     lambda: store.history("backup", 3)):
            began = time.monotonic()
            with pytest.raises(StoreError):
                await call()
            assert time.monotonic() - began < 2.0
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    await works_again(store)
    assert await granted(store, "slots/y", A)


async def test_a_lock_held_in_mid_transaction_by_a_dead_client_is_let_go(database: str, store: PostgresStore) -> None:
    """Whoever dies between a write and its commit has written nothing, and stands in nobody's way."""
    await granted(store, "slots/x", A)
    other = psycopg.connect(database)
    other.execute("UPDATE sexton.lease SET holder = 'ghost', fence = 99 WHERE name = 'slots/x'")
    asking = asyncio.ensure_future(store.claim("slots/x", B, 30.0))
    await asyncio.sleep(0.2)
    assert not asking.done(), "it waits for the row"
    os.close(os.dup(other.fileno()))
    other.pgconn.finish()
    answer = await asyncio.wait_for(asking, 10)
    assert isinstance(answer, Denied) and answer.by.holder == A.id and answer.by.fence == 1


async def test_no_session_lock_is_ever_held(database: str, store: PostgresStore) -> None:
    """Behind a pooler in transaction mode one would stay with a connection that nobody owns (case 55)."""
    await store.record(recorded(1))
    await granted(store, "slots/x", A)
    with psycopg.connect(database) as other:
        (count,) = other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() or (None,)
    assert count == 0


async def test_mail_arrives_without_notifications(store: PostgresStore) -> None:
    """Polling is the truth: a pooler that swallows LISTEN costs a second."""
    await store._leases.end()  # type: ignore[union-attr]
    await store.send(request_of("r1"))
    await asyncio.wait_for(store.signalled(A.id, 10.0), 3.0)
    assert [one.run for one in await store.take(A.id)] == ["r1"]


async def test_a_database_that_is_not_there_is_said_with_its_reason_and_without_the_password() -> None:
    """The address and what was wrong, in one line; never what stands in the URL for the password."""
    url = "postgresql://someone:s3cr3t-word@127.0.0.1:1/none"
    with pytest.raises(StoreError) as refused:
        await PostgresStore(url).open()
    assert "refused" in str(refused.value) and "s3cr3t" not in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_user_who_may_not_create_a_schema_is_told_what_to_do(database: str) -> None:
    """The statement that an administrator has to run is in the message."""
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("CREATE ROLE plain LOGIN")
    try:
        with pytest.raises(StoreError, match="CREATE SCHEMA sexton AUTHORIZATION"):
            await PostgresStore(database.replace("sexton@", "plain@")).open()
    finally:
        with psycopg.connect(database, autocommit=True) as admin:
            admin.execute("DROP ROLE plain")


async def test_a_schema_of_somebody_else_is_left_alone(database: str) -> None:
    """Tables that are not ours: refused, nothing added."""
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("CREATE SCHEMA sexton; CREATE TABLE sexton.theirs (x int)")
        with pytest.raises(StoreError, match="not Sexton's"):
            await PostgresStore(database).open()
        tables = other.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'sexton'").fetchall()
    assert tables == [("theirs",)]


async def test_a_newer_schema_is_refused(database: str) -> None:
    """It was written by a Sexton that knows more than this one."""
    async with opened(PostgresStore(database)) as store:
        await store.record(recorded(1))
    with psycopg.connect(database, autocommit=True) as other:
        other.execute("UPDATE sexton.meta SET version = 99")
    with pytest.raises(StoreError, match="newer Sexton"):
        await PostgresStore(database).open()


async def test_many_nodes_may_start_at_once(database: str) -> None:
    """One of them makes the schema, the others find it."""
    stores = [PostgresStore(database) for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    try:
        await asyncio.gather(*(store.record(recorded(n)) for n, store in enumerate(stores)))
        assert len(await stores[0].runs(limit=20)) == 8
    finally:
        await asyncio.gather(*(store.close() for store in stores))


async def test_deployments_do_not_see_each_other(database: str) -> None:
    """Each has a schema of its own; a name that cannot be one is refused."""
    async with opened(PostgresStore(database, "one")) as one, opened(PostgresStore(database, 'tw"o\'; DROP')) as two:
        await one.record(recorded(1))
        assert await two.get(run_id(1)) is None
        assert isinstance(await one.claim("slots/x", A, 30.0), Granted)
        assert isinstance(await two.claim("slots/x", B, 30.0), Granted)
    for name in ("", "x" * 60, "a\0b"):
        with pytest.raises(StoreError, match="deployment id"):
            schema_of(name)


async def test_the_clock_of_a_node_has_no_part_in_leases(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that is 90 seconds ahead, or behind, neither takes a live lease nor misses a dead one."""
    await granted(store, "slots/x", A, 1.0)
    for ahead in (90.0, -90.0):
        true = time.time
        monkeypatch.setattr(time, "time", lambda ahead=ahead, true=true: true() + ahead)
        assert isinstance(await store.claim("slots/x", B, 30.0), Denied)
        monkeypatch.undo()
    async with asyncio.timeout(5):
        while isinstance(await store.claim("slots/x", B, 30.0), Denied):
            await asyncio.sleep(0.05)


async def test_what_one_node_prunes_hurts_no_other(database: str) -> None:
    """Two nodes that keep ten runs of a job each: no error, and no more than the bound and its margin are left."""
    stores = (PostgresStore(database, max_runs_per_job=10), PostgresStore(database, max_runs_per_job=10))
    async with opened(stores[0]) as one, opened(stores[1]) as two:
        await asyncio.gather(*((one if n % 2 else two).record(recorded(n, ended=float(n))) for n in range(100)))
        await one.record(recorded(100, ended=100.0))
        kept = await two.runs(job="backup", limit=200)
        assert 10 <= len(kept) <= 12 and ids(kept)[0] == run_id(100)



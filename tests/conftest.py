"""What several rings of tests need."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from postgres_pair import Pair
from postgres_server import PostgresServer, binaries


@pytest.fixture(scope="session")
def postgres_programs() -> Path:
    """Where PostgreSQL's programs are; without them the test is skipped."""
    programs = binaries()
    if programs is None:
        pytest.skip("there is no PostgreSQL here")
    return programs


@pytest.fixture(scope="session")
def postgres(postgres_programs: Path) -> Iterator[PostgresServer]:
    """A PostgreSQL server of this session of tests."""
    server = PostgresServer(postgres_programs)
    try:
        server.start()
        yield server
    finally:
        server.end()


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    """The URL of an empty database."""
    name = f"t{secrets.token_hex(6)}"
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.url(name)


@pytest.fixture
def pair(postgres_programs: Path) -> Iterator[Pair]:
    """A primary and a standby of this test, which may kill them."""
    made = Pair(postgres_programs)
    try:
        yield made
    finally:
        made.end()

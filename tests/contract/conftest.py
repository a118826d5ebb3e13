from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from ledger_samples import Store, build, opened

KINDS = ("memory", "sqlite", "directory", "postgres")


@pytest.fixture(params=KINDS)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Store]:
    """Builds (and builds again, on the same files) a store of the kind under test."""
    url = request.getfixturevalue("database") if request.param == "postgres" else ""
    return lambda **options: build(request.param, tmp_path, url, **options)


@pytest.fixture
async def store(make_store: Callable[..., Store]) -> AsyncIterator[Store]:
    async with opened(make_store()) as it:
        yield it


@pytest.fixture
def make_durable(make_store: Callable[..., Store]) -> Callable[..., Store]:
    if not make_store().capabilities.durable:
        pytest.skip("this store declares durable=False")
    return make_store

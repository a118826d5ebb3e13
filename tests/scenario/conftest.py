"""The rig as a fixture."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig as rig_module
from keep_kit import end_processes_in
from nodes_kit import DIRECTORY, POSTGRES, STORES, Nodes, nodes_on
from refused_kit import weak_daemon
from rig import Rig
from sinks import HookSink, MailSink

if path := os.environ.get("PYTHONPATH"):
    # daemons are started in folders of their own, where a relative path would not lead to the Sexton under test
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, path.split(os.pathsep)))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A daemon in an empty folder, ended after the test."""
    yield from rig_module.rig(tmp_path)


@pytest.fixture
def weak(tmp_path: Path) -> Iterator[Rig]:
    """A daemon that may become another user for a job, but not signal that user's processes."""
    yield from weak_daemon(tmp_path)


@pytest.fixture
def no_keepers_left(tmp_path: Path) -> Iterator[None]:
    """Runs that outlive their daemon outlive a failed test, too, unless somebody ends them."""
    yield
    end_processes_in(tmp_path)


@pytest.fixture
def mails() -> Iterator[MailSink]:
    """A mail server that keeps what it is sent."""
    sink = MailSink()
    yield sink
    sink.close()


@pytest.fixture
def hooks() -> Iterator[HookSink]:
    """A web server that keeps what it is sent."""
    sink = HookSink()
    yield sink
    sink.close()


@pytest.fixture(params=STORES)
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    """Daemons on one store; the test runs once with each kind of store."""
    kind = request.param
    place = request.getfixturevalue("database") if kind == POSTGRES else str(tmp_path / "store")
    with nodes_on(tmp_path, kind, place) as made:
        yield made


@pytest.fixture
def folder_nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Daemons on a shared folder, where the kind of store does not matter."""
    with nodes_on(tmp_path, DIRECTORY, str(tmp_path / "store")) as made:
        yield made


@pytest.fixture
def database_nodes(tmp_path: Path, database: str) -> Iterator[Nodes]:
    """Daemons on a database."""
    with nodes_on(tmp_path, POSTGRES, database) as made:
        yield made

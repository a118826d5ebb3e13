"""The lease rules of the directory store in a simulated world: the real code, over a file system that is not."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
from lease_nodes import Loop, Node
from lease_world import NAME, Standing, World

from sexton.model.errors import StoreError
from sexton.model.node import NodeIdentity
from sexton.store.coordination import Lease
from sexton.store.directory import leases as directory_leases
from sexton.store.directory import terms
from sexton.store.directory.leases import LeaseFiles
from sexton.store.directory.threads import GivenUp

DEEPEST = 12
"""How many operations may be under way inside each other's steps."""


class _Draft:
    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self.content = b""
        self.now = disk.stamp()

    def write(self, content: bytes) -> None:
        self._disk.pause()
        self.content, self.now = content, self._disk.stamp()
        self._disk.pause()


class Disk:
    """A file system of a server: names that are given once, modification times by its own clock, and between any two
    calls of a process time passes, in which others go on and the process may be stopped or die."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.folders: dict[str, dict[str, tuple[bytes, int]]] = {}
        self._drafts: dict[str, _Draft] = {}
        self._numbers = itertools.count()
        self.working: tuple[Node, Loop, asyncio.Future[Any]] | None = None
        """Who is at work, and who waits for it."""

    def stamp(self) -> int:
        seconds = self._world.store_clock() - self._world.set_back
        grain = self._world.plan.grain
        return int(seconds * 1e9) // grain * grain

    def pause(self) -> None:
        world, working = self._world, self.working
        if working is None or world.depth > DEEPEST:
            return
        node, loop, _ = working
        draw = world.draw
        seconds = 0.0 if draw.random() < 0.6 else draw.random() * (15.0 if draw.random() < 0.01 else 0.02)
        until = max(world.now + seconds, node.stopped_until if node.loop is loop else 0.0)
        if until > world.now:
            world.run_until(until)
            self.working = working
        if loop.dead:
            raise StoreError("the process was killed")

    def path(self, *parts: str) -> str:
        return os.path.join("/store", *parts)

    @contextmanager
    def draft(self, folder: str) -> Iterator[_Draft]:
        self.pause()
        self.folders.setdefault(folder, {})
        draft = _Draft(self, f"{folder}/.{next(self._numbers)}")
        self._drafts[draft.path] = draft
        try:
            yield draft
        finally:
            del self._drafts[draft.path]

    def link(self, source: str, target: str) -> bool:
        self.pause()
        folder, name = os.path.split(target)
        if name in self.folders[folder]:
            return False
        draft = self._drafts[source]
        self.folders[folder][name] = draft.content, draft.now
        self._world.check_store()
        return True

    def names(self, folder: str) -> list[str]:
        self.pause()
        return list(self.folders.get(folder, ()))

    def read(self, path: str) -> bytes:
        self.pause()
        return self._found(path)[0]

    def stat(self, path: str) -> Any:
        self.pause()
        return SimpleNamespace(st_mtime_ns=self._found(path)[1])

    def _found(self, path: str) -> tuple[bytes, int]:
        folder, name = os.path.split(path)
        try:
            return self.folders[folder][name]
        except KeyError:
            raise FileNotFoundError(path) from None

    def remove(self, path: str) -> bool:
        self.pause()
        folder, name = os.path.split(path)
        return self.folders[folder].pop(name, None) is not None

    def check_wanted(self) -> None:
        if self.working is not None and self.working[2].done():
            raise GivenUp("nobody waits")


class DirectoryStore:
    """`LeaseFiles` of each process over one simulated disk."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.disk = Disk(world)
        self._folder = self.disk.path("leases", directory_leases.encoded(NAME))
        self._own = self._files(lambda: world.now)
        directory_leases_now.disk = self.disk

    def _files(self, clock: Any) -> LeaseFiles:
        disk: Any = self.disk
        return LeaseFiles(disk, clock)

    def leases_of(self, node: Node) -> _Files:
        return _Files(self._world, node, self.disk, self._files(node.boottime))

    def standing(self) -> Standing:
        files = self.disk.folders.get(self._folder)
        if not files:
            return Standing(None, 0)
        term = msgspec.json.decode(files[max(files)][0], type=terms.Term)
        return Standing(term.holder, term.fence)

    def release_now(self, lease: Lease) -> bool:
        working, self.disk.working = self.disk.working, None
        try:
            return self._own.release(lease)
        finally:
            self.disk.working = working


class _Files:
    def __init__(self, world: World, node: Node, disk: Disk, files: LeaseFiles) -> None:
        self._world, self._node, self._disk, self._files = world, node, disk, files

    async def claim(self, name: str, by: NodeIdentity, ttl: float, *, heir_of: str | None = None) -> Any:
        return await self._ask(lambda: self._files.claim(name, by, ttl, heir_of))

    async def renew(self, lease: Lease, ttl: float) -> Any:
        return await self._ask(lambda: self._files.renew(lease, ttl))

    async def release(self, lease: Lease) -> Any:
        return await self._ask(lambda: self._files.release(lease))

    async def read(self, name: str) -> Any:
        return await self._ask(lambda: self._files.read(name))

    async def _ask(self, work: Any) -> Any:
        loop = self._node.loop

        def in_thread(answer: asyncio.Future[Any]) -> Any:
            if answer.done():
                return None  # given up while it was in the queue
            before, self._disk.working = self._disk.working, (self._node, loop, answer)
            try:
                return work()
            except GivenUp as given_up:
                return given_up
            finally:
                self._disk.working = before

        return await self._world.exchange(self._node, in_thread)


class _Now:
    """The disk of the world that is being simulated."""

    disk: Disk


directory_leases_now = _Now()


def use_simulated_disk(patch: Any) -> None:
    """`patch` as `monkeypatch.setattr`."""
    now = directory_leases_now
    for name in ("link", "names", "read", "remove", "check_wanted"):
        patch(directory_leases, name, lambda *values, name=name: getattr(now.disk, name)(*values))
    patch(directory_leases, "sync", lambda folder: now.disk.pause())
    isdir = lambda folder: folder in now.disk.folders  # noqa: E731
    patch(directory_leases, "os", SimpleNamespace(
        stat=lambda path: now.disk.stat(path), path=SimpleNamespace(join=os.path.join, isdir=isdir)))

"""The directory store when its processes are killed in the middle of a write."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from itertools import pairwise
from pathlib import Path

import msgspec
from ledger_samples import opened
from test_coordination import A

from sexton.store.coordination import Granted
from sexton.store.directory import DirectoryStore

CHILD = Path(__file__).with_name("directory_child.py")
TTL = 0.3
CONTENDERS = 3
KILLS = 40


async def start_child(*arguments: str) -> asyncio.subprocess.Process:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), *arguments, stdout=asyncio.subprocess.PIPE, env=environment
    )


async def test_a_kill_at_any_change_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """At each call that changes the file system, of some two hundred, half a write included: what was acknowledged is
    there, a lease is still its holder's, no fence is given out twice, and no torn file stands in a file's place."""
    child = await start_child("everywhere", str(tmp_path), "1", "1")
    out, _ = await asyncio.wait_for(child.communicate(), 170)
    *findings, last = out.decode().splitlines()
    assert findings == [] and child.returncode == 0
    assert last.split()[0] == "places" and int(last.split()[1]) > 150


class Contender:
    """A child that contends for the lease until it is killed; what it said is kept."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.said: list[bytes] = []

    async def start(self) -> None:
        self.process = await start_child("contend", str(self.path), self.name, str(TTL))
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said.append(line)

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()
        await self.reading


def windows(said: list[bytes]) -> list[tuple[float, float, str, int]]:
    """From when until when each holder trusted in its lease: start, end, holder, fence."""
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for line in said:
        if not line.endswith(b"\n"):
            continue
        what, holder, fence, *instants = msgspec.json.decode(line)
        start, end = found.get((holder, fence), (instants[0], 0.0))
        found[holder, fence] = (start, max(end, instants[1])) if what == "trusts" else (start, instants[0])
    return sorted((start, end, holder, fence) for (holder, fence), (start, end) in found.items())


async def test_leases_stay_exclusive_while_holders_are_killed(tmp_path: Path) -> None:
    """Three processes contend and are killed again and again. Nobody trusts in the lease while another still does, and
    each new owner's fence is higher."""
    rng = random.Random(7)
    contenders = [Contender(tmp_path, f"n{n}") for n in range(CONTENDERS)]
    await asyncio.gather(*(one.start() for one in contenders))
    try:
        end = time.monotonic() + 40
        for _ in range(KILLS):
            victim = rng.choice(contenders)
            heard = len(victim.said)
            while len(victim.said) < heard + 3 and time.monotonic() < end:
                await asyncio.sleep(rng.uniform(0.001, 0.03))
            await victim.kill()
            await victim.start()
    finally:
        await asyncio.gather(*(one.kill() for one in contenders))
    held = windows([line for one in contenders for line in one.said])
    assert len({holder for _, _, holder, _ in held}) > KILLS / 4
    for (_, end_of_one, holder, fence), (start, _, next_holder, next_fence) in pairwise(held):
        assert next_fence > fence, (holder, next_holder)
        assert start >= end_of_one, f"{next_holder} at {start}, while {holder} trusted until {end_of_one}"
    async with opened(DirectoryStore(tmp_path)) as store:
        async with asyncio.timeout(10):
            while not isinstance(answer := await store.claim("x", A, TTL), Granted):
                await asyncio.sleep(0.02)
        assert answer.lease.fence > max(fence for *_, fence in held)

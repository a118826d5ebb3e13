"""Processes of their own that use a DirectoryStore, for tests that end them in the middle of a write.

`everywhere DIR FIRST STEP`: forks a child for each call that changes the file system, has it killed there, and looks at
what is left; prints one line of findings and how many places there were.
`contend DIR NAME TTL`: claims, holds, renews and releases one lease for ever, and says when it trusted in it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import msgspec
from ledger_samples import NOON, launch, opened, recorded, running

from sexton.model.node import NodeIdentity
from sexton.model.run import Outcome
from sexton.store.coordination import Denied, Granted, Lease, Signal, SignalKind
from sexton.store.directory import DirectoryStore

CHANGING = ("open", "write", "utime", "fsync", "link", "rename", "unlink", "mkdir", "rmdir")
LONG = 60.0
STATE = "a" * 5000


def identity(name: str) -> NodeIdentity:
    return NodeIdentity(id=f"{name}#1", name=name, pid=1, pid_started_ticks=2, boot_id="b", pid_namespace=3)


ME, OTHER = identity("me"), identity("other")


def die_at(place: int) -> None:
    """From now on, count the calls that change something, in all threads; do not come back from this one."""
    counter, lock = itertools.count(1), threading.Lock()

    def counted(call: object, name: str) -> object:
        def instead(*arguments: object, **options: object) -> object:
            with lock:
                if next(counter) == place:
                    if name == "write":
                        call(arguments[0], arguments[1][: len(arguments[1]) // 2])  # type: ignore[operator, index, arg-type]
                    os.kill(os.getpid(), signal.SIGKILL)
                    time.sleep(60)
            return call(*arguments, **options)  # type: ignore[operator]

        return instead

    for name in CHANGING:
        setattr(os, name, counted(getattr(os, name), name))


async def live(path: Path, say: object) -> None:
    """A little of everything; what was acknowledged is said."""
    async with opened(store := DirectoryStore(path, max_runs_per_job=4)):
        granted = await store.claim("x", ME, LONG)
        assert isinstance(granted, Granted)
        say("lease", granted.lease.fence)  # type: ignore[operator]
        await store.intend(launch(1))
        say("intend", 1)  # type: ignore[operator]
        store.note(running(1))
        await store.record(recorded(1, outcome=Outcome.UNKNOWN))
        say("record", 1)  # type: ignore[operator]
        await store.record(recorded(1))
        await asyncio.gather(*(store.record(recorded(n, ended=n)) for n in range(2, 5)))
        say("record", 4)  # type: ignore[operator]
        await store.put_state("a", "k", STATE)
        say("state", 1)  # type: ignore[operator]
        await store.put_state("a", "k", "b")
        await store.renew(granted.lease, LONG)
        say("lease", granted.lease.fence)  # type: ignore[operator]
        await store.send(Signal(to=OTHER.id, kind=SignalKind.CANCEL, sender="me", run="r"))
        say("signal", 1)  # type: ignore[operator]
        assert await store.claim_fire("a", NOON, ME)
        say("fire", 1)  # type: ignore[operator]
        await store.intend(launch(9, "other"))
        say("intend", 9)  # type: ignore[operator]
        say("releasing", 1)  # type: ignore[operator]
        assert await store.release(granted.lease)
        say("released", granted.lease.fence)  # type: ignore[operator]
        await store.record(recorded(5, ended=5))
        say("record", 5)  # type: ignore[operator]


async def look(path: Path, said: dict[str, int]) -> list[str]:
    """What is not as it was promised."""
    wrong: list[str] = []

    def check(fact: bool, what: str) -> None:
        if not fact:
            wrong.append(what)

    async with opened(store := DirectoryStore(path, max_runs_per_job=0)):
        runs = {run.launch.id: run for run in await store.runs(limit=99)}
        unfinished = {run.launch.id for run in await store.unfinished()}
        recorded_ids = {run.launch.id for run in (await store.history("backup", 99)).runs}
        check(not recorded_ids & unfinished, "a run is recorded and unfinished")
        # The fifth record makes the first one go, which may happen before it is acknowledged.
        oldest = 2 if "released" in said else 1
        for number in range(oldest, said.get("record", 0) + 1):
            check(launch(number).id in recorded_ids, f"record {number} is lost")
        if "intend" in said and oldest == 1:
            check(launch(1).id in runs, "intent 1 is lost")
        if said.get("intend") == 9:
            check(launch(9).id in unfinished, "intent 9 is lost")
        if "state" in said:
            check(await store.get_state("a", "k") in (STATE, "b"), "the state is lost")
        if "fire" in said:
            check(not await store.claim_fire("a", NOON, OTHER), "an occurrence was given twice")
        taken = await store.take(OTHER.id)
        check(len(taken) == said.get("signal", len(taken)), f"{len(taken)} signals")
        fence = max(said.get("lease", 0), said.get("released", 0))
        answer = await store.claim("x", OTHER, LONG)
        match answer:
            case Denied(by=by):
                check(by.holder == ME.id and by.fence >= fence and "released" not in said, f"denied by {by}")
            case Granted(lease=lease):
                check(lease.fence > fence and ("lease" not in said or "releasing" in said), f"granted {lease}")
        check(store.quarantined == 0, "a torn file was found")
    return wrong


def run_child(work: object, *arguments: object) -> tuple[int, bytes]:
    """In a fork: its wait status, and what it wrote to its pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            signal.alarm(60)
            work(writing, *arguments)  # type: ignore[operator]
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        text = pipe.read()
    return os.waitpid(child, 0)[1], text


def live_until(pipe: int, path: Path, place: int) -> None:
    write = os.write

    def say(what: str, number: int) -> None:
        write(pipe, f"{what} {number}\n".encode())

    die_at(place)
    asyncio.run(live(path, say))


def look_at(pipe: int, path: Path, said: dict[str, int]) -> None:
    os.write(pipe, "; ".join(asyncio.run(look(path, said))).encode())


def everywhere(folder: Path, first: int, step: int) -> None:
    place, found = first, 0
    while True:
        path = folder / str(place)
        status, text = run_child(live_until, path, place)
        said = {what: int(number) for what, number in (line.split() for line in text.decode().splitlines())}
        status_of_look, wrong = run_child(look_at, path, said)
        if wrong or status_of_look:
            print(f"killed at change {place}, after {said}: {wrong.decode()} ({status_of_look})", flush=True)
        if os.WIFEXITED(status):
            assert status == 0, status
            break
        found += 1
        place += step
    print("places", found, flush=True)


async def contend(path: Path, name: str, ttl: float) -> None:
    me = identity(f"{name}-{os.getpid()}")

    def say(what: str, lease: Lease, *instants: float) -> None:
        line = msgspec.json.encode([what, lease.holder, lease.fence, *instants])
        os.write(1, line + b"\n")

    async with opened(store := DirectoryStore(path)):
        for turn in itertools.count():
            began = time.monotonic()
            answer = await store.claim("x", me, ttl)
            if isinstance(answer, Denied):
                await asyncio.sleep(0.01)
                continue
            lease = answer.lease
            say("trusts", lease, time.monotonic(), began + ttl)
            for _ in range(turn % 3):
                await asyncio.sleep(0.01)
                began = time.monotonic()
                if not isinstance(await store.renew(lease, ttl), Granted):
                    break
                say("trusts", lease, time.monotonic(), began + ttl)
            else:
                say("lets go", lease, time.monotonic())
                await store.release(lease)


def main() -> None:
    task, folder = sys.argv[1], Path(sys.argv[2])
    if task == "everywhere":
        everywhere(folder, int(sys.argv[3]), int(sys.argv[4]))
    else:
        asyncio.run(contend(folder, sys.argv[3], float(sys.argv[4])))


if __name__ == "__main__":
    main()

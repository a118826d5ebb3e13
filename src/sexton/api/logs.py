"""Output over HTTP: server-sent events for a job, the whole log (with ranges, or followed) for a run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from sexton.api.routes import Refused, control_of
from sexton.daemon.control import Control
from sexton.daemon.jobs import CHECK_PREFIX, SHOWN_LINES
from sexton.execution.capture import Follower
from sexton.execution.messages import Stream
from sexton.model.run import Phase
from sexton.run.live import Run

T = TypeVar("T")

PING_SECONDS = 15.0
CHUNK = 256 * 1024


class Line(msgspec.Struct):
    stream: str
    line: str


class End(msgspec.Struct, omit_defaults=True):
    started_at: str | None = None
    dropped_lines: int = 0


def _event(name: str, data: msgspec.Struct) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


def _lines(lines: Sequence[tuple[Stream, str]], prefix: str = "") -> bytes:
    return b"".join(_event("line", Line(prefix + stream.value, line)) for stream, line in lines)


async def job_logs(request: web.Request) -> web.StreamResponse:
    """Replay what memory holds of the running (or last) run, follow it, and say when it has ended."""
    control = control_of(request)
    entry = control.job(request.match_info["name"])
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    runs = control.live_runs(entry.spec.name)
    live = [run for run in runs if run.capture is not None or (run.job.verify is not None and not run.over)]
    if not live:
        last = entry.last_run
        started = last.started_at.isoformat() if last and last.started_at else None
        await response.prepare(request)
        await response.write(b"".join(_event("line", Line(s, text)) for s, text in entry.last_lines))
        await response.write(_event("end", End(started_at=started)))
        return response
    run = live[-1]
    await response.prepare(request)
    dropped = await _tell(control, response, run, "")
    await _waiting(response, run.check_known.wait())
    if run.check is not None:
        dropped += await _tell(control, response, run.check, CHECK_PREFIX)
    started = run.started_at.isoformat() if run.started_at else None
    await response.write(_event("end", End(started_at=started, dropped_lines=dropped)))
    return response


async def _tell(control: Control, response: web.StreamResponse, run: Run, prefix: str) -> int:
    """What there is and what comes, to the end of the output; how many lines a slow reader has lost."""
    # Taken together, before anything is awaited: no line is lost or seen twice.
    replay, follower = control.last_lines(run, SHOWN_LINES), control.follow(run)
    if follower is None:
        return 0
    try:
        await response.write(_lines(replay, prefix))
        while lines := await _waiting(response, follower.take()):
            await response.write(_lines(lines, prefix))
    finally:
        control.unfollow(run, follower)
    return follower.dropped


async def _waiting(response: web.StreamResponse, what: Coroutine[Any, Any, T]) -> T:
    """Wait, with a ping now and then: a client that is gone is noticed by it."""
    task = asyncio.ensure_future(what)
    try:
        while not (await asyncio.wait({task}, timeout=PING_SECONDS))[0]:
            await response.write(b": ping\n\n")
        return task.result()
    finally:
        task.cancel()


async def run_log(request: web.Request) -> web.StreamResponse:
    control, run_id = control_of(request), request.match_info["id"]
    record = await control.run(run_id)
    live = control.live_run(run_id)
    if request.query.get("follow") in ("1", "true") and live is not None and live.capture is not None:
        return await _follow(request, live)
    files = await asyncio.get_running_loop().run_in_executor(None, control.log_files, run_id)
    if files:
        return await _send_files(request, files)
    if live is not None and live.capture is not None:
        return web.Response(body=live.capture.so_far(), content_type="text/plain")
    if record.launch.node != control.node:
        where = "is being written" if record.phase is not Phase.RECORDED else "was kept"
        raise Refused(404, f"the output of this run is not here; where it {where}, node {record.launch.node} has it")
    size = sum(s.bytes for s in (record.output.stdout, record.output.stderr) if s) if record.output else 0
    if size:
        raise Refused(404, "the output of this run was not kept (it is with a `state` section)")
    return web.Response(body=b"", content_type="text/plain")


async def _follow(request: web.Request, run: Run) -> web.StreamResponse:
    control = control_of(request)
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-store"})
    assert run.capture is not None
    replay = run.capture.so_far()
    follower = control.follow(run)
    assert follower is not None
    try:
        await response.prepare(request)
        await response.write(replay if replay.endswith(b"\n") or not replay else replay + b"\n")
        while lines := await _next_lines(request, follower):
            await response.write("".join(line + "\n" for _, line in lines).encode())
        if follower.dropped:
            await response.write(f"[.... {follower.dropped} lines dropped: the reader was too slow ....]\n".encode())
    finally:
        control.unfollow(run, follower)
    return response


async def _next_lines(request: web.Request, follower: Follower) -> Sequence[tuple[Stream, str]]:
    """What comes next. Raises ConnectionResetError when the client is gone, which a silent run would never tell us."""
    while True:
        try:
            return await asyncio.wait_for(follower.take(), PING_SECONDS)
        except TimeoutError:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError from None


def parse_range(text: str | None, size: int) -> tuple[int, int] | None:
    """The one byte range (first, past the last) that is asked for; None for all. Raises Refused (416)."""
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", text.strip()) if text else None
    if match is None or match[0] == "bytes=-":
        return None
    if not match[1]:
        first, end = max(0, size - int(match[2])), size
    else:
        first = int(match[1])
        end = min(int(match[2]) + 1, size) if match[2] else size
    if first >= size or end <= first:
        raise Refused(416, f"the log has {size} bytes")
    return first, end


async def _send_files(request: web.Request, files: list[Path]) -> web.StreamResponse:
    loop = asyncio.get_running_loop()
    sizes = [path.stat().st_size for path in files]
    total = sum(sizes)
    asked = parse_range(request.headers.get("Range"), total)
    first, end = asked or (0, total)
    headers = {
        "Accept-Ranges": "bytes",
        "Content-Type": "text/plain; charset=utf-8",
        "X-Content-Type-Options": "nosniff",
    }
    if asked:
        headers["Content-Range"] = f"bytes {first}-{end - 1}/{total}"
    response = web.StreamResponse(status=206 if asked else 200, headers=headers)
    response.content_length = end - first
    await response.prepare(request)
    position = 0
    for path, size in zip(files, sizes, strict=True):
        start, stop = max(first - position, 0), min(end - position, size)
        while start < stop:
            data = await loop.run_in_executor(None, _read, path, start, min(CHUNK, stop - start))
            if not data:
                break
            await response.write(data)
            start += len(data)
        position += size
    return response


def _read(path: Path, start: int, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(count)

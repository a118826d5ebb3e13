"""The secrets of a run, looked up before it starts: bounded in time, and off the event loop where they are in files."""

from __future__ import annotations

import asyncio
import logging

from sexton.execution.secrets import Unlocked, Vault, needs_files, unlock
from sexton.model.errors import SpawnError
from sexton.run.live import Run

logger = logging.getLogger("sexton.run")

LOOK_UP_SECONDS = 5.0


async def unlock_secrets(run: Run, vault: Vault) -> None:
    """Give the run what it needs to start with. Raises SpawnError when a secret cannot be had in time."""
    secrets = run.job.secrets
    run.unlocked = await _read(run, vault) if needs_files(secrets) else unlock(secrets)
    vault.remember(run.job.name, run.unlocked.masks)
    if run.unlocked.short:
        logger.warning("Job %s: too short to be masked in output: the secret(s) %s", run.job.name,
                       ", ".join(run.unlocked.short))


async def _read(run: Run, vault: Vault) -> Unlocked:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Unlocked | SpawnError] = loop.create_future()

    def hear(found: Unlocked | SpawnError) -> None:
        if not answer.done():
            answer.set_result(found)

    def done(found: Unlocked | SpawnError) -> None:
        try:
            loop.call_soon_threadsafe(hear, found)
        except RuntimeError:
            pass  # the daemon has ended meanwhile

    vault.begin(run.job.secrets, done)
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS):
            found = await answer
    except TimeoutError:
        raise SpawnError(f"secrets: a file did not answer within {LOOK_UP_SECONDS:g} seconds") from None
    if isinstance(found, SpawnError):
        raise found
    return found

"""`sexton state`: backups, restores, checks and moves of the store, without the daemon's help."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import BinaryIO

from sexton import __version__
from sexton.cli.exits import Exit
from sexton.cli.failures import CommandError, Refused
from sexton.cli.terminal import Screen, complain
from sexton.daemon.archives import make_target, open_archive, shown_store
from sexton.daemon.loading import load_here
from sexton.model.errors import StoreError
from sexton.model.settings import StateSettings
from sexton.store.archive import Archive, Counts, Item, NoStore
from sexton.store.backup import Header, items_of, verify_backup, write_backup
from sexton.store.transfer import transfer

NODE_IS_THERE_SECONDS = 60.0
"""Since its latest heartbeat."""
STANDARD_OUTPUT = "-"


def state(options: Namespace, config: str) -> int:
    """Answers with the exit status; whatever there is to complain of has been said by then."""
    try:
        settings = settings_in(config)
        match options.part:
            case "backup":
                return _backup(settings, options.output)
            case "restore":
                return _restore(settings, options.file, force=options.force)
            case "check":
                from sexton.cli.state_check import check

                return check(settings, Screen(), as_json=options.json)
            case _:
                from sexton.cli.migrate import migrate

                return migrate(settings, options, os.environ)
    except CommandError as failure:
        complain(f"sexton: {failure}")
        return failure.exit
    except StoreError as failure:
        complain(f"sexton: {failure}")
        return Exit.FAILED


def settings_in(config: str) -> StateSettings:
    """The `state` section. Raises Refused where there is none, or the configuration has errors."""
    found = load_here(config)
    if found.errors:
        raise Refused(f"{config}: {found.errors[0]}", "`sexton check` shows all errors")
    if found.settings.state is None:
        raise Refused(f"{config} has no `state` section: records live in the daemon's memory only")
    return found.settings.state


def _backup(settings: StateSettings, output: str) -> int:
    archive = open_archive(settings)
    try:
        if output == STANDARD_OUTPUT:
            if sys.stdout.isatty():
                raise Refused("a backup is not for a terminal", "give a file, or pass it on to a program")
            written = _write(archive, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            with _new_file(output) as stream:
                written = _write(archive, stream)
    finally:
        archive.close()
    complain(f"{written}; output files of runs are not in it.")
    if not archive.one_moment:
        complain("What nodes wrote while it was made is in it or not; no run that was there before is missing.")
    return say_damaged(archive.damaged, "are not in it")


def _write(archive: Archive, stream: BinaryIO) -> Counts:
    header = Header(sexton=__version__, store=archive.kind, schema_version=archive.schema_version,
                    one_moment=archive.one_moment, made_at=datetime.now(UTC), counts=archive.counts())
    return write_backup(stream, header, archive.items(), archive.damaged)


@contextmanager
def _new_file(path: str) -> Iterator[BinaryIO]:
    """A file that is there whole and durable, or not at all. Raises Refused."""
    draft = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}")
    try:
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise Refused(f"{path} is there and is no plain file", "- is standard output")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.rename(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
        folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror or error}") from error


def _restore(settings: StateSettings, file: str, *, force: bool) -> int:
    header, end = verify_backup(file)
    complain(f"{file}: {end.counts}; made {header.made_at:%Y-%m-%d %H:%M:%S} UTC of a {header.store.value} store.")
    if end.damaged:
        complain(f"{end.damaged} records could not be read when it was made, and are not in it.")
    written = asyncio.run(fill(items_of(file), settings, force=force))
    complain(f"Written to {shown_store(settings)}: {written}.")
    return Exit.OK


async def fill(items: Iterable[Item], settings: StateSettings, *, force: bool) -> Counts:
    """Put the items into the store. Raises StoreError; Refused where something is there already, unless forced."""
    target = make_target(settings)
    shown = shown_store(settings)
    await target.open()
    try:
        if not force:
            there = await asyncio.to_thread(_contents, settings)
            if there.total:
                raise Refused(f"{shown} is not empty ({there})", "--force merges: nothing newer is replaced")
            if target.capabilities.shared:
                present = [node.facts.identity.name for node in await target.nodes()
                           if node.silent_for < NODE_IS_THERE_SECONDS]
                if present:
                    raise Refused(f"daemons work with {shown} now: {', '.join(present)}", "stop them, or --force")
        try:
            return await transfer(items, target, merging=force)
        except StoreError as failure:
            raise StoreError(f"{failure}. A part was written: mend that, then the same with --force writes the rest"
                             ) from failure
    finally:
        await target.close()


def _contents(settings: StateSettings) -> Counts:
    try:
        archive = open_archive(settings)
    except NoStore:
        return Counts()
    try:
        return archive.counts()
    finally:
        archive.close()


def say_damaged(damaged: list[str], consequence: str) -> int:
    """The exit status that follows."""
    for one in damaged[:20]:
        complain(f"cannot be read: {one}")
    if damaged:
        complain(f"{len(damaged)} damaged entries {consequence}.")
    return Exit.FAILED if damaged else Exit.OK

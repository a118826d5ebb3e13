"""`sexton state migrate`: the contents of a store into another one, which takes its place in the configuration."""

from __future__ import annotations

import asyncio
import os
from argparse import Namespace
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from msgspec.structs import replace

from sexton.cli.failures import Misused
from sexton.cli.state import fill, say_damaged
from sexton.cli.terminal import complain
from sexton.daemon.archives import open_archive, shown_store, without_daemon
from sexton.model.settings import StateSettings, Topology
from sexton.store.mounts import is_shared

URL_BEGINNINGS = ("postgresql://", "postgres://")


def migrate(source: StateSettings, options: Namespace, environ: Mapping[str, str]) -> int:
    """The source is only read. Raises CommandError and StoreError."""
    target = _target(source, options, environ)
    shown = shown_store(target)
    if _place(source) == _place(target):
        raise Misused(f"{shown} is the store itself", "give another one")
    with _kept_quiet(source, live=options.live):
        archive = open_archive(source)
        try:
            written = asyncio.run(fill(archive.items(), target, force=options.force))
        finally:
            archive.close()
    complain(f"{shown_store(source)} was copied to {shown}: {written}.")
    if is_shared(source):
        complain("What daemons wrote meanwhile may be missing: with all of them stopped, --force brings the rest.")
    complain("Output files of runs stay where they are, and so do runs that are kept through a restart.")
    _tell_change(source, target, options)
    return say_damaged(archive.damaged, "were not copied")


def _target(source: StateSettings, options: Namespace, environ: Mapping[str, str]) -> StateSettings:
    where = options.to
    if where is None:
        where = environ.get(options.to_env)
        if not where:
            raise Misused(f"the variable {options.to_env} is not set")
    deployment = options.deployment_id or source.deployment_id
    if where.startswith(URL_BEGINNINGS):
        return replace(source, url=where, path=None, topology=Topology.AUTO, deployment_id=deployment)
    if "://" in where:
        raise Misused("what is neither a folder nor a postgresql:// URL is no store")
    return replace(source, url=None, path=os.path.abspath(where), topology=Topology(options.topology),
                   deployment_id=deployment)


def _place(settings: StateSettings) -> tuple[str | None, ...]:
    return settings.url, settings.path, settings.deployment_id


def _kept_quiet(source: StateSettings, *, live: bool) -> AbstractContextManager[None]:
    """Where a daemon writes what nobody would copy, it must be stopped first."""
    if live:
        complain("--live: what a daemon writes from now on is not copied.")
        return nullcontext()
    return without_daemon(source)


def _tell_change(source: StateSettings, target: StateSettings, options: Namespace) -> None:
    old = "url: ..." if source.url is not None else f"path: {source.path}"
    if target.url is None:
        new = [f"path: {target.path}", f"topology: {'shared' if is_shared(target) else 'single-node'}"]
    elif options.to_env is not None:
        new = [f"url: ${{{options.to_env}}}"]
    else:
        new = ["url: the URL that was given to --to"]
    if target.deployment_id != source.deployment_id:
        new.append(f"deploymentId: {target.deployment_id}")
    complain(f"In `state` of the configuration, in place of `{old}` (and of `topology`), write:")
    for line in new:
        complain(f"  {line}")


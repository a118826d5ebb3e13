"""`sexton -c PATH`: the daemon in the foreground."""

from __future__ import annotations

import asyncio
import os
import sys

from sexton.cli.exits import Exit
from sexton.daemon import loading
from sexton.daemon.descriptors import secure_standard_descriptors


def run_daemon(path: str, level: str) -> int:
    """Load, refuse or run. Exit status 0 after a clean end, 1 for a bad configuration or store."""
    secure_standard_descriptors()
    child = loading.begin(path)  # parses on the other core while this process imports the rest
    from sexton.api.server import serve
    from sexton.daemon.logs import LogThread
    from sexton.daemon.wiring import Daemon
    from sexton.model.errors import SextonError

    configuration = loading.finish(child)
    for finding in configuration.findings:
        print(finding, file=sys.stderr)
    if configuration.errors:
        print(f"{len(configuration.errors)} error(s): the daemon is not started", file=sys.stderr)
        return Exit.FAILED
    try:
        logs = LogThread(level, configuration.settings.logging)
    except ValueError as refused:
        print(f"error: {refused}", file=sys.stderr)
        return Exit.FAILED
    try:
        status = asyncio.run(Daemon(path, configuration, logs, serve).run())
    except (SextonError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        status = Exit.FAILED
    if not logs.close():
        os._exit(status)  # the interpreter would wait for the stuck write to end
    return status

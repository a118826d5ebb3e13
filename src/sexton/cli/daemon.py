"""`sexton -c PATH`: the daemon in the foreground."""

from __future__ import annotations

import gc
import logging
import os
import sys

from sexton.cli.exits import Exit
from sexton.cli.options import DEFAULT_CONFIG
from sexton.daemon.descriptors import secure_standard_descriptors
from sexton.daemon.loader import begin

SWITCH_SECONDS = 0.0005
"""How long a thread (log lines, SQLite) may keep the interpreter from the event loop: a tenth of Python's default."""


def run_daemon(path: str, level: str) -> int:
    """Load, refuse or run. Exit status 0 after a clean end, 1 for a bad configuration or store."""
    secure_standard_descriptors()
    child = begin(path)  # parses on the other core while this process imports the rest
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.disable()  # what is imported stays; the daemon freezes it when it is up
    from sexton.api.serveronly import import_http_server

    import_http_server()
    import asyncio

    from sexton.api.server import serve
    from sexton.daemon import loading
    from sexton.daemon.logs import LogThread
    from sexton.daemon.wiring import Daemon
    from sexton.model.errors import SextonError

    configuration = loading.finish(child)
    for finding in configuration.findings:
        print(finding, file=sys.stderr)
    if configuration.errors:
        print(f"{len(configuration.errors)} error(s): the daemon is not started", file=sys.stderr)
        if path == DEFAULT_CONFIG and not os.path.exists(path):
            print("`sexton -c PATH` takes another file or folder; `sexton --help` lists everything", file=sys.stderr)
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
    if logs.close():
        logging.shutdown()
    # Without the end of the interpreter: it would wait for a write that is stuck, and take 30 ms to take apart what the
    # kernel frees at once. Everything that has to be closed is.
    os._exit(status)

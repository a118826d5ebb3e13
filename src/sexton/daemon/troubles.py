"""What the event loop itself has to complain of: told in one line, and not more often than anyone can read."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from typing import Any

logger = logging.getLogger("sexton.daemon")

TELL_SECONDS = 60.0
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Troubles:
    """An exception handler for the loop. Connections that cannot be accepted come in hundreds (asyncio tries a whole
    backlog each second): they are counted. Everything else is passed on."""

    def __init__(self) -> None:
        self.accepts_failed = 0
        self._told_at = -TELL_SECONDS

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failure = context.get("exception")
        if not (isinstance(failure, OSError) and failure.errno in OUT_OF_RESOURCES and "socket" in context):
            loop.default_exception_handler(context)
            return
        self.accepts_failed += 1
        if loop.time() - self._told_at >= TELL_SECONDS:
            self._told_at = loop.time()
            logger.error("a connection to the API cannot be accepted (%s); tried again each second",
                         os.strerror(failure.errno))

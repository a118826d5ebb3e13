"""Exit statuses of the command, documented in docs/reference/cli.md."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    """The configuration has errors, the request was refused, or the run that was awaited did not succeed."""
    USAGE = 2
    NO_DAEMON = 3
    """No daemon answers at the address."""
    NOT_FOUND = 4
    """There is no such job or run."""
    INTERRUPTED = 130
    """Ctrl-C while a command was waiting."""
    BROKEN_PIPE = 141
    """Whoever read the output went away."""

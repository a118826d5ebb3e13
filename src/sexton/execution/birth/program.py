"""What a job begins with: the file that its command names, and signals as a fresh process has them."""

from __future__ import annotations

import errno
import os

from sexton.execution.birth.lean import signal

DEFAULTED = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)


def locate(program: bytes, environment: dict[bytes, bytes]) -> bytes:
    """The file that a bare program name means under the job's own PATH (not the daemon's)."""
    if b"/" in program:
        return program
    denied = False
    for directory in environment.get(b"PATH", os.defpath.encode()).split(b":"):
        candidate = (directory or b".") + b"/" + program
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
        denied = denied or os.path.isfile(candidate)
    raise PermissionError(errno.EACCES, "not executable") if denied else FileNotFoundError(errno.ENOENT, "not found")

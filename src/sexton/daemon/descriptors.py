"""The three standard descriptors of the daemon: there, whatever it was started with."""

from __future__ import annotations

import os


def secure_standard_descriptors() -> None:
    """With 0, 1 or 2 closed, the next file opened would take the number and become a job's standard output. So this
    comes first, before anything else is opened or started."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return
        os.set_inheritable(fd, True)

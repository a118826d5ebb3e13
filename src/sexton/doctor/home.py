"""What started us decides what can be changed: a unit, a container's options, a pod's specification."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum


class Home(Enum):
    SYSTEMD = "systemd"
    KUBERNETES = "kubernetes"
    CONTAINER = "container"
    PLAIN = "plain"


MARKS = ("/.dockerenv", "/run/.containerenv")


def find_home(environ: Mapping[str, str], *, pid: int | None = None) -> Home:
    """The surroundings of this process; `pid` is its number (a daemon that is process 1 is a container's)."""
    if "KUBERNETES_SERVICE_HOST" in environ:
        return Home.KUBERNETES
    if (pid or os.getpid()) == 1 or "container" in environ or any(os.path.exists(mark) for mark in MARKS):
        return Home.CONTAINER
    if "INVOCATION_ID" in environ or os.path.isdir("/run/systemd/system"):
        return Home.SYSTEMD
    return Home.PLAIN

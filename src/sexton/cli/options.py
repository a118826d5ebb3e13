"""What starts a daemon, understood without the parser of all commands, which would cost every start 15 ms before it
could do anything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

DEFAULT_CONFIG = "/etc/sexton.d"
DEFAULT_LEVEL = "INFO"
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
CONFIG_FLAGS, LEVEL_FLAGS = ("-c", "--config"), ("-l", "--log-level")


class DaemonOptions(NamedTuple):
    config: str
    level: str


def daemon_options(arguments: Sequence[str]) -> DaemonOptions | None:
    """What `sexton` is asked for with nothing but the options of a daemon, each with a value that fits; None for
    anything else, which is for the parser to understand or to refuse."""
    config, level = DEFAULT_CONFIG, DEFAULT_LEVEL
    flags, values = arguments[::2], arguments[1::2]
    if len(flags) != len(values):
        return None
    for flag, value in zip(flags, values, strict=True):
        if value.startswith("-"):
            return None
        if flag in CONFIG_FLAGS:
            config = value or DEFAULT_CONFIG
        elif flag in LEVEL_FLAGS and value.upper() in LEVELS:
            level = value.upper()
        else:
            return None
    return DaemonOptions(config, level)

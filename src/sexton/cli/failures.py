"""Why a command could not do what it was asked: one line for a person, and its exit status."""

from __future__ import annotations

from typing import ClassVar

from sexton.cli.exits import Exit
from sexton.model.errors import SextonError


class CommandError(SextonError):
    """Base of what ends a command. `hint` says what to try."""

    exit: ClassVar[Exit] = Exit.FAILED

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        return super().__str__() + (f" ({self.hint})" if self.hint else "")


class Refused(CommandError):
    """The daemon, or a configuration, says no."""


class Misused(CommandError):
    """The arguments make no sense together."""

    exit = Exit.USAGE


class NoDaemon(CommandError):
    """Nothing at the address answers as a Sexton daemon does."""

    exit = Exit.NO_DAEMON


class NotFound(CommandError):
    """There is no such job or run."""

    exit = Exit.NOT_FOUND

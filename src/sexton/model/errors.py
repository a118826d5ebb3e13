"""Errors with a meaning. A refusal that a caller must handle is a value, not one of these."""

from __future__ import annotations


class SextonError(Exception):
    """Base of everything Sexton raises on purpose."""


class ScheduleError(SextonError):
    """A schedule that cannot be accepted.

    `field` names the part (`minute`, `day of month`, ... or `schedule`), `value` is what stood there.
    """

    def __init__(self, message: str, *, field: str = "schedule", value: str = "", hint: str | None = None) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.hint = hint


class StoreError(SextonError):
    """The store could not do what it was asked (full disk, corrupt file, closed)."""


class UntrustedLocks(StoreError):
    """The store cannot keep two nodes apart: what it grants one it may grant another at the same time."""


class ListenError(SextonError):
    """An address of `web.listen` cannot be had."""


class SpawnError(SextonError):
    """A process could not be started. `errno` is the kernel's answer where there was one."""

    def __init__(self, message: str, *, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno

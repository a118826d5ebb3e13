"""What requests bring. An unknown field is refused, or a misspelt `force` would be taken for none."""

from __future__ import annotations

from datetime import datetime

import msgspec


class StartBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    requested_by: str | None = None


class StopBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`force` skips the grace period; sent again, it cuts short one that has begun."""

    reason: str | None = None
    requested_by: str | None = None
    force: bool = False


class CancelBody(StopBody, kw_only=True, forbid_unknown_fields=True):
    """`queued`: also the runs of the job that wait for its pool."""

    queued: bool = False


class AbandonBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Who gives up waiting for the proof that a run is gone, and why: it is kept in the record."""

    reason: str | None = None
    requested_by: str | None = None


class PauseBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How long, in one of two ways (an hour without either), and for the record why and by whom."""

    durationSeconds: float | None = None
    until: datetime | None = None
    note: str | None = None
    by: str | None = None


class ResumeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    by: str | None = None

"""A job that somebody has paused."""

from __future__ import annotations

from datetime import datetime

import msgspec

DEFAULT_SECONDS = 3600.0
LONGEST_SECONDS = 30 * 86400.0
LONGEST_NOTE = 500
LONGEST_NAME = 100


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Scheduled launches and retries wait from `since` to `until`. It ends by itself: nobody need remember it."""

    since: datetime
    until: datetime
    note: str | None = None
    by: str | None = None

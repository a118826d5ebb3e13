"""What files are called: any name a job may have becomes one plain file name, and a record's file name says enough for
a history to be put in order without reading a single file."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote, unquote

from sexton.model.run import Outcome, RunRecord
from sexton.store.port import ended_at

LONGEST = 180
"""Bytes of an encoded name before it is cut: with a hash and what stands beside it, below the 255 of a file name."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NO_OUTCOME = "none"
_INSTANT = "%Y%m%dT%H%M%S.%fZ"


def encoded(name: str) -> str:
    """One file name for any text: percent-encoded but for letters, digits, `_` and `-`. Two texts never share one:
    where the text is cut, or where a file system that ignores case could take it for another, a hash follows a `~`."""
    plain = quote(name, safe="", errors="surrogatepass").replace(".", "%2E").replace("~", "%7E")
    if len(plain) <= LONGEST and name == name.lower():
        return plain or "~"
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:20]
    return f"{plain[:LONGEST]}~{digest}"


def decoded(file_name: str) -> str | None:
    """The text again; None where only the contents know it."""
    if file_name == "~":
        return ""
    return None if "~" in file_name else unquote(file_name, errors="surrogatepass")


class Entry(NamedTuple):
    """A recorded run as its file name tells it. Entries sort as a history does."""

    ended: int
    """Microseconds since 1970, UTC."""
    seq: int
    """Order of recording within the job."""
    id: str
    outcome: Outcome | None
    file: str


def entry_for(record: RunRecord, seq: int) -> Entry:
    ended = (ended_at(record) - EPOCH) // _MICROSECOND
    outcome = _NO_OUTCOME if record.outcome is None else record.outcome.value
    run_id = record.launch.id
    return Entry(ended, seq, run_id, record.outcome, f"{encoded(run_id)}.{ended}.{seq}.{outcome}.json")


def entry_of(file: str) -> Entry | None:
    """None for a file that is no record of ours."""
    parts = file.split(".")
    if len(parts) != 5 or parts[4] != "json":
        return None
    run_id = decoded(parts[0])
    try:
        outcome = None if parts[3] == _NO_OUTCOME else Outcome(parts[3])
        return None if run_id is None else Entry(int(parts[1]), int(parts[2]), run_id, outcome, file)
    except ValueError:
        return None


def instant_file(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime(_INSTANT) + ".json"


def instant_of(file: str) -> datetime | None:
    try:
        return datetime.strptime(file.removesuffix(".json"), _INSTANT).replace(tzinfo=UTC)
    except ValueError:
        return None

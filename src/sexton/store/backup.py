"""A backup is one file: JSON lines, compressed with gzip. First a header, then the items, last their number and a
digest of all the lines before. Whoever restores it reads it to its end first.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import BinaryIO

import msgspec

from sexton.model.errors import StoreError
from sexton.store.archive import Counts, Fence, Fired, Item, Recorded, StateValue, StoreKind, Unfinished, Waiting

FORMAT = "sexton-backup"
VERSION = 1
COMPRESSION = 6
LONGEST_LINE = 256 * 1024 * 1024
"""Bytes. Nothing that a store keeps is nearly as long."""


class Header(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="header"):
    format: str = FORMAT
    version: int = VERSION
    sexton: str
    """The program that wrote it."""
    store: StoreKind
    schema_version: int
    one_moment: bool
    made_at: datetime
    counts: Counts
    """As the store had them at the beginning; what is really there says the end."""


class End(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    counts: Counts
    damaged: int = 0
    """Records that could not be read when the backup was made, and that are not in it."""
    sha256: str
    """Of all the bytes before this line, uncompressed, in hexadecimal."""


class DamagedBackup(StoreError):
    """The file is not whole, or no backup."""


_encode = msgspec.json.Encoder().encode
_Line = Header | Recorded | Unfinished | StateValue | Fence | Fired | Waiting | End
_line = msgspec.json.Decoder(_Line)


def write_backup(stream: BinaryIO, header: Header, items: Iterable[Item], damaged: list[str]) -> Counts:
    """Write all of it to the stream, which stays open. Raises OSError, and what `items` raises."""
    counts, digest = Counts(), hashlib.sha256()
    with gzip.GzipFile(filename="", mode="wb", fileobj=stream, compresslevel=COMPRESSION) as packed:

        def put(line: bytes) -> None:
            digest.update(line)
            packed.write(line)

        put(_encode(header) + b"\n")
        for item in items:
            put(_encode(item) + b"\n")
            counts.add(item)
        packed.write(_encode(End(counts=counts, damaged=len(damaged), sha256=digest.hexdigest())) + b"\n")
    return counts


def verify_backup(path: str) -> tuple[Header, End]:
    """Read all of it. Raises DamagedBackup, and StoreError where the file cannot be opened or is a newer Sexton's."""
    counts, digest = Counts(), hashlib.sha256()
    header: Header | None = None
    end: End | None = None
    with _lines(path) as lines:
        for number, line in enumerate(lines, 1):
            if end is not None:
                raise DamagedBackup(f"{path} goes on after its end: it is damaged")
            found = _decoded(line, path, number)
            if isinstance(found, End):
                end = found
                continue
            digest.update(line)
            if isinstance(found, Header) != (number == 1):
                raise DamagedBackup(f"{path}: line {number} is not in its place: the file is damaged")
            if isinstance(found, Header):
                header = found
            else:
                counts.add(found)
    if header is None or end is None:
        raise DamagedBackup(f"{path} ends too early: it was cut off")
    if digest.hexdigest() != end.sha256 or counts != end.counts:
        raise DamagedBackup(f"{path} is damaged: its contents are not those that were written")
    return header, end


def items_of(path: str) -> Iterator[Item]:
    """The items of a backup that was verified. Raises DamagedBackup."""
    with _lines(path) as lines:
        for number, line in enumerate(lines, 1):
            found = _decoded(line, path, number)
            if not isinstance(found, Header | End):
                yield found


@contextmanager
def _lines(path: str) -> Iterator[Iterator[bytes]]:
    """Each with its line feed."""
    try:
        with open(path, "rb") as file, gzip.GzipFile(fileobj=file) as packed:
            yield iter(lambda: packed.readline(LONGEST_LINE), b"")
    except EOFError:
        raise DamagedBackup(f"{path} ends too early: it was cut off") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DamagedBackup(f"{path} is damaged, or no backup: {error}") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}") from error


def _decoded(line: bytes, path: str, number: int) -> _Line:
    if number == 1:
        _check_version(line, path)
    try:
        found: _Line = _line.decode(line)
        return found
    except msgspec.MsgspecError as error:
        raise DamagedBackup(f"{path}: line {number} cannot be read: {error}") from None


class _Version(msgspec.Struct):
    format: str
    version: int


def _check_version(line: bytes, path: str) -> None:
    try:
        found = msgspec.json.decode(line, type=_Version)
    except msgspec.MsgspecError:
        raise DamagedBackup(f"{path} is no backup of Sexton") from None
    if found.format != FORMAT:
        raise DamagedBackup(f"{path} is no backup of Sexton")
    if found.version > VERSION:
        raise StoreError(f"{path} has version {found.version}, written by a newer Sexton; this one reads versions up "
                         f"to {VERSION}")

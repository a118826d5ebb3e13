"""The store's own folder: made, recognised, refused, and looked after while it is in use."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

import msgspec

from sexton.model.errors import StoreError
from sexton.store.directory.files import TEMPORARY, Files, names, read

log = logging.getLogger(__name__)

META = "meta.json"
KIND = "sexton-directory"
SCHEMA = 1
FOREIGN_LEDGERS = ("ledger.sqlite3", "ledger.lock")


class Meta(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    store: str
    schema_version: int
    id: str
    """Of this store and no other: one that was put in its place has another. One that a node has begun anew for itself
    and the others keeps it."""


def deployment_folder(path: str | Path, deployment_id: str) -> Path:
    """Where a deployment keeps its files. Raises StoreError for an id that is not one plain file name."""
    if deployment_id in ("", ".", "..") or "/" in deployment_id or "\0" in deployment_id:
        raise StoreError(f"deployment id {deployment_id!r} cannot be the name of a directory")
    return Path(path) / deployment_id


class Root:
    """For the store's threads. Everything raises StoreError, or OSError."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._folder = files.root
        self._meta = files.path(META)
        self._id = secrets.token_hex(8)
        self._known: tuple[int, int] | None = None
        self._device = 0

    def open(self) -> None:
        """Make the folder where there is none; refuse one that is not ours, and leave it alone."""
        folder = Path(self._folder)
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
        self._refuse_ledger()
        if not os.path.exists(self._meta):
            if strangers := [name for name in names(self._folder) if name not in (TEMPORARY, META)]:
                raise StoreError(f"{folder} holds something else ({strangers[0]}); it was left as it is")
            self._begin()
        found = self._read_meta()
        if folder.stat().st_mode & 0o777 != 0o700:
            folder.chmod(0o700)
        self._take_up(found)

    def check(self) -> None:
        """Is what we write to still the store that we opened? One whose folder was deleted is begun anew, as a restart
        would; where its file system is gone, or another store lies there, nothing is written."""
        try:
            found = os.stat(self._meta)
        except FileNotFoundError:
            self._begin_anew()
            return
        if (found.st_dev, found.st_ino) != self._known:
            meta = self._read_meta()
            if meta.id != self._id:
                raise StoreError(f"{self._folder} was replaced by another store while the daemon had it open: put the "
                                 "old one back, or restart the daemon to use this one")
            self._take_up(meta)

    def _begin(self) -> None:
        meta = Meta(store=KIND, schema_version=SCHEMA, id=self._id)
        if self._files.put_once(msgspec.json.encode(meta), self._meta):
            try:
                self._refuse_ledger()  # one that came at the same moment
            except StoreError:
                os.unlink(self._meta)
                raise

    def _begin_anew(self) -> None:
        existing = os.path.dirname(self._meta)
        while not os.path.exists(existing):
            existing = os.path.dirname(existing)
        if os.stat(existing).st_dev != self._device:
            raise StoreError(f"{self._folder} is gone, and its file system with it: mount it again")
        self.open()
        log.error("%s was deleted while the daemon had it open; a new store was begun there without its records",
                  self._folder)

    def _take_up(self, meta: Meta) -> None:
        found = os.stat(self._meta)
        self._id, self._known, self._device = meta.id, (found.st_dev, found.st_ino), found.st_dev

    def _refuse_ledger(self) -> None:
        for name in FOREIGN_LEDGERS:
            if os.path.exists(self._files.path(name)):
                raise StoreError(f"{self._folder} holds the SQLite ledger of a single node ({name}); a store that "
                                 "nodes share needs another path or deploymentId")

    def _read_meta(self) -> Meta:
        try:
            meta = msgspec.json.decode(read(self._meta), type=Meta)
        except msgspec.MsgspecError as error:
            raise StoreError(f"{self._meta} cannot be read ({error}); the folder was left as it is") from error
        if meta.store != KIND:
            raise StoreError(f"{self._folder} holds the store of another program; it was left as it is")
        if meta.schema_version > SCHEMA:
            raise StoreError(f"{self._folder} has schema {meta.schema_version}, written by a newer Sexton; this one "
                             f"knows schemas up to {SCHEMA}")
        return meta

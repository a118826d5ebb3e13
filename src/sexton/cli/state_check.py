"""`sexton state check`: the whole store is read, and what is damaged is named."""

from __future__ import annotations

import msgspec

from sexton.cli.exits import Exit
from sexton.cli.terminal import Cell, Screen, Tone
from sexton.daemon.archives import open_archive, shown_store
from sexton.model.settings import StateSettings
from sexton.store.archive import Archive, Counts, Remark, Unfinished

MOST_TOLD = 20
"""Damaged entries that are named each; the rest is a number."""


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, as `--json` prints it."""

    store: str
    kind: str
    schema_version: int
    sound: bool
    counts: Counts
    damaged: tuple[str, ...]
    remarks: tuple[Remark, ...]


def check(settings: StateSettings, screen: Screen, *, as_json: bool) -> int:
    """Exit status 0 for a store without damage, else 1. Raises StoreError where it cannot be read at all."""
    archive = open_archive(settings)
    try:
        found = _read(archive, shown_store(settings))
    finally:
        archive.close()
    if as_json:
        screen.json(msgspec.json.encode(found))
    else:
        _tell(found, screen)
    return Exit.OK if found.sound else Exit.FAILED


def _read(archive: Archive, shown: str) -> Checked:
    remarks = list(archive.examine())
    counts, dead, undecided = Counts(), 0, 0
    for item in archive.items():
        counts.add(item)
        if isinstance(item, Unfinished):
            live = archive.is_live(item.record.launch.daemon)
            dead += live is False
            undecided += live is None
    if dead:
        remarks.append(Remark(damage=False, text=f"{dead} unfinished runs are of daemons that are gone: the next that "
                                                 "starts settles them"))
    if undecided:
        remarks.append(Remark(damage=False, text=f"of {undecided} unfinished runs it cannot be told whether their "
                                                 "daemons live"))
    sound = not archive.damaged and not any(remark.damage for remark in remarks)
    return Checked(store=shown, kind=archive.kind.value, schema_version=archive.schema_version, sound=sound,
                   counts=counts, damaged=tuple(archive.damaged), remarks=tuple(remarks))


def _tell(found: Checked, screen: Screen) -> None:
    screen.line(f"{found.store}, schema {found.schema_version}")
    screen.line(f"  {found.counts}")
    for remark in found.remarks:
        screen.line("  ", Cell(remark.text, Tone.BAD if remark.damage else Tone.PLAIN))
    for one in found.damaged[:MOST_TOLD]:
        screen.line("  ", Cell(f"cannot be read: {one}", Tone.BAD))
    if len(found.damaged) > MOST_TOLD:
        screen.line("  ", Cell(f"{len(found.damaged)} damaged entries in all", Tone.BAD))
    screen.line(Cell("sound", Tone.GOOD) if found.sound else Cell("damaged", Tone.BAD))

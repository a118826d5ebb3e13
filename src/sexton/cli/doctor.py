"""`sexton doctor`: what this machine gives, and the one thing to change for more."""

from __future__ import annotations

import os
from argparse import Namespace
from itertools import groupby

import msgspec

from sexton.cli.exits import Exit
from sexton.cli.terminal import Cell, Screen, Tone
from sexton.doctor.diagnose import diagnose
from sexton.doctor.findings import Diagnosis, Level, Line

TONES = {Level.OK: Tone.GOOD, Level.WEAKER: Tone.WARN, Level.MISSING: Tone.BAD}
LEVEL_WIDTH = max(len(level.value) for level in Level)


def doctor(options: Namespace) -> int:
    """Exit status 0 when every promise can be kept here, perhaps by a fallback; 1 when a level is `missing`."""
    configuration = None
    if options.config is not None:
        from sexton.daemon.loading import load_here

        configuration = load_here(options.config)
    found = diagnose(os.environ, options.config, configuration)
    screen = Screen()
    if options.json:
        screen.json(msgspec.json.encode(found))
    else:
        _tell(found, screen)
    return Exit.OK if found.sound else Exit.FAILED


def _tell(found: Diagnosis, screen: Screen) -> None:
    width = max((len(line.name) for line in found.lines), default=0)
    for area, lines in groupby(found.lines, key=lambda line: line.area):
        screen.line(Cell(area.value, Tone.HEAD))
        for line in lines:
            _tell_line(line, width, screen)
    counts = ", ".join(f"{sum(line.level is level for line in found.lines)} {level.value}" for level in Level)
    screen.line(f"Sexton {found.version}: containment {found.containment}; {counts}.")


def _tell_line(line: Line, width: int, screen: Screen) -> None:
    level = Cell(line.level.value.ljust(LEVEL_WIDTH), TONES[line.level])
    screen.line("  ", level, f"  {line.name.ljust(width)}  {line.found}")
    if line.change is not None:
        screen.line(" " * (LEVEL_WIDTH + width + 6), Cell("-> ", Tone.FAINT), line.change)

#!/usr/bin/env python3
"""Daemons side by side: the same work on each, in interleaved rounds, next to the bare work without a daemon.

    compare.py [--daemon NAME='CMD -c {config}' ...] [--check NAME='CMD -v -c {config}' ...]
               [--only PART ...] [--rounds N] [--scale quick|normal|full] [--json OUT]
    compare.py --show OUT [OUT ...]

Sexton of this Python's environment takes part unless a daemon of that name is given. Linux only; needs
nothing but Python; a C compiler makes the job program cheap. It ends only what it started. What the parts
measure: docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from harness import samples
from harness.program import build
from harness.scale import SCALES
from harness.stage import Case, Contestant, Metrics, Stage
from parts import PARTS

OWN = "sexton"


def contestants(given: Iterable[str], checks: Iterable[str]) -> list[Contestant]:
    """The daemons in their order; `first` in the tables is the first of them."""
    commands = dict(_named(each) for each in given)
    check = dict(_named(each) for each in checks)
    if OWN not in commands:
        script = Path(sys.executable).with_name(OWN)
        run = shlex.quote(str(script)) if script.exists() else f"{shlex.quote(sys.executable)} -m {OWN}"
        commands = {OWN: f"{run} -c {{config}}", **commands}
    return [Contestant(name, command, check.get(name, f"{command} -v")) for name, command in commands.items()]


def _named(text: str) -> tuple[str, str]:
    name, _, command = text.partition("=")
    if not name or "{config}" not in command:
        raise SystemExit(f"expected NAME='COMMAND with {{config}}', got {text!r}")
    return name, command


def machine() -> dict[str, object]:
    cpu = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu, "cores": os.cpu_count(), "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(), "python": platform.python_version(),
    }


class Comparison:
    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.daemons = contestants(options.daemon, options.check)
        self.options = options
        self.samples: samples.Samples = {}
        self.notes: list[str] = []
        self.failed = 0
        """Measurements that came to nothing."""
        self.loads: dict[str, list[float]] = {}
        self.program = build(folder)
        self.stage = Stage(folder, self.program, SCALES[options.scale], self._note)
        self._began = time.monotonic()

    def run(self) -> None:
        for name in self.options.only or PARTS:
            for case in PARTS[name](self.stage.scale):
                for number in range(self.options.rounds or case.rounds):
                    if time.monotonic() - self._began > self.options.minutes * 60:
                        self._note(f"out of time: nothing is measured from {case.title} on")
                        return
                    self._round(case, number)

    def _round(self, case: Case, number: int) -> None:
        """Who is first changes from round to round, and so does the place of the bare work."""
        self.stage.round = number
        turn = number % len(self.daemons)
        work: list[tuple[str, Callable[[], Metrics]]] = [
            (who.name, partial(case.measure, self.stage, who))
            for who in self.daemons[turn:] + self.daemons[:turn]
        ]
        if case.bare is not None:
            work.insert(number % (len(work) + 1), (samples.BARE, partial(case.bare, self.stage)))
        for name, measure in work:
            self._measure(case, number, name, measure)
        self.loads.setdefault(case.title, []).append(round(os.getloadavg()[0], 1))
        self._save()

    def _measure(self, case: Case, number: int, name: str, measure: Callable[[], Metrics]) -> None:
        began = time.monotonic()
        try:
            found = measure()
        except Exception as failure:  # what one daemon cannot do must not end the others' rounds
            self.failed += 1
            self._note(f"{case.title}, {name}: {type(failure).__name__}: {failure}")
            return
        samples.add(self.samples, case.title, name, number, found)
        if found and not self.options.quiet:
            values = ", ".join(f"{metric} {samples.shown(value)}" for metric, value in found.items())
            where = f"[{case.title}] round {number + 1}, {name}, {time.monotonic() - began:.1f} s"
            print(f"{where}: {values}", file=sys.stderr, flush=True)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            print(f"note: {text}", file=sys.stderr, flush=True)

    def _save(self) -> None:
        if self.options.json is None:
            return
        document = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "scale": self.options.scale,
            "job_program": self.program.language,
            "daemons": [who.name for who in self.daemons],
            "notes": self.notes,
            "load_average_after_each_round": self.loads,
            "samples": self.samples,
        }
        new = Path(f"{self.options.json}.new")
        new.write_text(json.dumps(document, indent=1))
        new.replace(self.options.json)

    def report(self) -> str:
        text = samples.rendered(self.samples, [who.name for who in self.daemons])
        return "\n".join([text, "", *(f"note: {note}" for note in self.notes)])


def show(files: Iterable[str]) -> str:
    """The tables of earlier `--json` files; rounds of the same table are put together."""
    together: samples.Samples = {}
    names: dict[str, None] = {}
    for place, file in enumerate(files):
        document = json.loads(Path(file).read_text())
        names.update(dict.fromkeys(document["daemons"]))
        for title, table in document["samples"].items():
            for metric, by_name in table.items():
                for name, rounds in by_name.items():
                    kept = together.setdefault(title, {}).setdefault(metric, {}).setdefault(name, {})
                    kept.update({f"{place}.{number}": value for number, value in rounds.items()})
    return samples.rendered(together, list(names))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--daemon", action="append", default=[], metavar="NAME=COMMAND",
                        help="one more daemon")
    parser.add_argument("--check", action="append", default=[], metavar="NAME=COMMAND",
                        help="how a daemon checks a configuration (default: its command and -v)")
    parser.add_argument("--only", action="append", choices=list(PARTS),
                        help="a part; several times for several")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of each table (default: the scale's)")
    parser.add_argument("--scale", choices=list(SCALES), default="normal")
    parser.add_argument("--minutes", type=float, default=120.0,
                        help="no measurement begins after these (default 120)")
    parser.add_argument("--folder", help="where the working folder goes; its disk is measured")
    parser.add_argument("--json", metavar="OUT", help="all samples, written again after each round")
    parser.add_argument("--show", nargs="+", metavar="OUT",
                        help="print the tables of such files, and nothing else")
    parser.add_argument("--keep", action="store_true", help="keep the working folder, with the daemons' logs")
    parser.add_argument("--quiet", action="store_true", help="no line for each measurement")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.show:
        print(show(options.show))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the daemons are ended on the way out
    folder = Path(tempfile.mkdtemp(prefix="sexton-bench-", dir=options.folder)).resolve()
    try:
        comparison = Comparison(options, folder)
        try:
            comparison.run()
        finally:
            print(comparison.report())
        if comparison.failed:
            sys.exit(1)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

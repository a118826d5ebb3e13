"""`sexton reload` and `sexton health`."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from sexton.cli.answers import HealthAnswer, Reloaded
from sexton.cli.client import RELOAD_SECONDS, Client, decoded
from sexton.cli.exits import Exit
from sexton.cli.terminal import Cell, Screen, Tone, complain
from sexton.cli.times import distance, instant

UNPROCESSABLE = 422
_POOL = {"supervisors": "in all", "waiting": "runs waiting for one"}


def reload(options: Namespace, client: Client, screen: Screen) -> int:
    """Exit status 1 if the configuration was not taken up; the one in force stays."""
    raw = client.post("/reload", seconds=RELOAD_SECONDS, also=(UNPROCESSABLE,))
    result = decoded(raw, Reloaded)
    if options.json:
        screen.json(raw)
        return Exit.OK if result.ok else Exit.FAILED
    for finding in result.findings:
        complain(finding)
    if not result.ok:
        complain("The configuration has errors; the one in force stays.")
        return Exit.FAILED
    screen.line("Taken up: ", _changes(result))
    return Exit.OK


def _changes(result: Reloaded) -> str:
    counts = {
        "added": result.added,
        "changed": result.changed,
        "removed": result.removed,
        "unchanged": result.unchanged,
    }
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def health(options: Namespace, client: Client, screen: Screen) -> int:
    """Exit status 0 only if the daemon says `ok`."""
    raw = client.get("/health")
    found = decoded(raw, HealthAnswer)
    if options.json:
        screen.json(raw)
    else:
        screen.facts(_facts(found))
    return Exit.OK if found.status == "ok" else Exit.FAILED


def _facts(found: HealthAnswer) -> list[tuple[str, Cell]]:
    now = datetime.now(UTC)
    last = found.last_reload
    loaded = _changes(last) if last.ok else "REFUSED; the one before is in force"
    counts = (
        ("failed reloads", found.reload_failures),
        ("skipped as too late", found.skipped_late),
        ("launches refused", found.launches_refused),
        ("store failures", found.store_failures),
        ("records not yet written", found.unwritten_records),
        ("ends that a store left behind was not told", found.ends_untold),
        ("API connections closed", found.connections.closed_idle),
        ("API connections refused", found.connections.turned_away + found.connections.not_accepted),
        ("log lines dropped", found.log_lines_dropped),
        ("mirrored bytes dropped", found.mirror_dropped_bytes),
    )
    return [
        ("status", Cell(found.status, Tone.GOOD if found.status == "ok" else Tone.BAD)),
        ("version", Cell(found.version)),
        ("node", Cell(found.node)),
        ("started", Cell(f"{instant(found.started_at)} ({distance(found.started_at, now)})")),
        ("jobs", Cell(f"{found.jobs}, {found.running} running, {found.queued} queued")),
        ("records", Cell("kept on disk") if found.durable else Cell("in memory only", Tone.WARN)),
        ("containment", Cell(" - ".join(filter(None, (found.containment, found.containment_advice))))),
        ("supervisors", Cell(", ".join(f"{n} {_POOL.get(name, name)}" for name, n in found.supervisors.items()))),
        ("configuration", Cell(f"{loaded} ({instant(last.at)})", Tone.PLAIN if last.ok else Tone.BAD)),
        *((name, Cell(str(count), Tone.WARN if count else Tone.FAINT)) for name, count in counts),
        *(("store", Cell(problem, Tone.BAD)) for problem in filter(None, (found.store_problem,))),
        *(("store left", Cell(f"{instant(left.since)}, owed the ends of {len(left.runs)} run(s)"
                              + ("" if left.answers else ", does not answer"), Tone.WARN))
          for left in found.stores_left),
        *(("error", Cell(finding, Tone.BAD)) for finding in (() if last.ok else last.findings)),
        *(("warning", Cell(warning, Tone.WARN)) for warning in found.configuration_warnings),
    ]

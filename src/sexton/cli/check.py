"""`sexton check`: everything that is to say about a configuration, without running anything."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from sexton.cli.exits import Exit
from sexton.config.files import printable
from sexton.daemon import loading
from sexton.model.settings import Configuration, Finding, Severity


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One finding, with its place spelled out; lines and columns count from 1."""

    severity: Severity
    message: str
    hint: str | None
    file: str | None
    line: int | None
    column: int | None


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one path, as `--json` prints it."""

    path: str
    valid: bool
    jobs: int
    findings: tuple[Said, ...]


def check(paths: Sequence[str], *, as_json: bool) -> int:
    """Every finding of each path, then its verdict. Exit status 0, or 1 when there is an error in any."""
    results = [(path, loading.load_here(path)) for path in paths]
    if as_json:
        verdicts = [
            Checked(
                path=printable(path),
                valid=not found.errors,
                jobs=len(found.jobs),
                findings=tuple(map(_said, found.findings)),
            )
            for path, found in results
        ]
        print(msgspec.json.encode(verdicts).decode())
    else:
        for path, found in results:
            _tell(found, f"{path}: " if len(paths) > 1 else "")
    return Exit.FAILED if any(found.errors for _, found in results) else Exit.OK


def job_set_id(path: str) -> int:
    """The digest alone on standard output. Exit status 1, and every finding, when there is an error."""
    from sexton.run.identity import job_set_id_of

    found = loading.load_here(path)
    if found.errors:
        _tell(found, "")
        return Exit.FAILED
    print(job_set_id_of(found.jobs), flush=True)
    return Exit.OK


def _shown(text: str) -> str:
    if text.isprintable():
        return text
    from sexton.cli.terminal import visible  # seldom needed, and a check is to be quick

    return visible(text)


def _said(finding: Finding) -> Said:
    place = finding.place
    return Said(
        severity=finding.severity,
        message=finding.message,
        hint=finding.hint,
        file=place.file if place else None,
        line=place.line if place else None,
        column=place.column if place else None,
    )


def _tell(found: Configuration, prefix: str) -> None:
    for finding in found.findings:
        print(_shown(str(finding)), file=sys.stderr)
    if found.errors:
        print(f"{prefix}{len(found.errors)} error(s).", file=sys.stderr)
        return
    warned = f", {len(found.warnings)} warning(s)" if found.warnings else ""
    print(f"{prefix}Configuration is valid. ({len(found.jobs)} job(s){warned})", flush=True)

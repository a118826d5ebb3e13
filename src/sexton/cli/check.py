"""`sexton check`: everything that is to say about a configuration, without running anything."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec

from sexton.cli.exits import Exit
from sexton.daemon import loading
from sexton.model.settings import Configuration, Finding


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one path, as `--json` prints it."""

    path: str
    valid: bool
    jobs: int
    findings: tuple[Finding, ...]


def check(paths: Sequence[str], *, as_json: bool) -> int:
    """Every finding of each path, then its verdict. Exit status 0, or 1 when there is an error in any."""
    results = [(path, loading.load_here(path)) for path in paths]
    if as_json:
        verdicts = [
            Checked(path=path, valid=not found.errors, jobs=len(found.jobs), findings=found.findings)
            for path, found in results
        ]
        print(msgspec.json.encode(verdicts).decode())
    else:
        for path, found in results:
            _tell(found, f"{path}: " if len(paths) > 1 else "")
    return Exit.FAILED if any(found.errors for _, found in results) else Exit.OK


def _tell(found: Configuration, prefix: str) -> None:
    for finding in found.findings:
        print(finding, file=sys.stderr)
    if found.errors:
        print(f"{prefix}{len(found.errors)} error(s).", file=sys.stderr)
        return
    warned = f", {len(found.warnings)} warning(s)" if found.warnings else ""
    print(f"{prefix}Configuration is valid. ({len(found.jobs)} job(s){warned})", flush=True)

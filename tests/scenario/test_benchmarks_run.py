"""The benchmarks are programs that nobody runs every day: they are kept working here; no time is asserted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parents[2]
NONE = ("of them lost", "false records after the restart")


def ran(*words: str, folder: Path) -> str:
    argv = [sys.executable, str(ROOT / "benchmarks" / words[0]), *words[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_comparison_measures_and_shows_again(tmp_path: Path) -> None:
    """Two parts at the smallest scale give every metric of Sexton; the kept samples give the same tables."""
    parts = ("--only", "cancel", "--only", "crash")
    shown = ran("compare.py", "--scale", "quick", *parts, "--json", "out.json", "--folder", str(tmp_path),
                folder=tmp_path)
    kept = json.loads((tmp_path / "out.json").read_text())
    assert kept["notes"] == [] and len(kept["samples"]) == 5
    for title, table in kept["samples"].items():
        assert title in shown and all("sexton" in by_name for by_name in table.values())
    lost = kept["samples"]["crash: SIGKILL after 40 runs were shown"]
    assert all(lost[f"{what} (worst)"]["sexton"] == {"0": 0} for what in NONE)
    assert ran("compare.py", "--show", "out.json", folder=tmp_path).strip() == shown.strip()
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"], "the working folder is removed"


def test_ratios_are_those_within_a_round(tmp_path: Path) -> None:
    """A round that was slow for both changes no ratio; one that one side lacks counts for the other alone."""
    rounds = {"bare": {"0": 1.0, "1": 10.0, "2": 1.0}, "one": {"0": 2.0, "1": 20.0, "2": 2.0},
              "two": {"0": 6.0, "1": 60.0}}
    document = {"daemons": ["one", "two"], "samples": {"a table": {"s": rounds, "s (worst)": rounds}}}
    (tmp_path / "made.json").write_text(json.dumps(document))
    shown = ran("compare.py", "--show", "made.json", folder=tmp_path)
    assert "| s | 1 | 2 (x2 bare) | 33 (x3 first, x6 bare) |" in shown
    assert "| s (worst) | 10 | 20 (x2 bare) | 60 (x3 first, x6 bare) |" in shown


def test_the_small_benchmarks_print_a_table(tmp_path: Path) -> None:
    """Every inner part is measured, and a second time next to the first."""
    ran("micro.py", "--repeats", "1", "--json", "out.json", folder=tmp_path)
    kept = json.loads((tmp_path / "out.json").read_text())
    for word in ("parse", "next instant", "agenda", "load 10000", "500 runs", "ledger"):
        assert any(word in name for name in kept)
    again = ran("micro.py", "--repeats", "1", "--only", "next", "--against", "out.json", folder=tmp_path)
    rows = [line.split(" | ") for line in again.splitlines()[2:]]
    assert rows and all(len(row) == 5 and float(row[4].rstrip(" |")) > 0 for row in rows)


def test_several_nodes_are_measured(tmp_path: Path, database: str) -> None:
    """Hand-over on both stores, pages with their plans, and a fleet and its claims; nothing of it stays in the
    database."""
    shown = ran("nodes.py", "--scale", "quick", "--rounds", "1", "--postgres", database, "--folder", str(tmp_path),
                folder=tmp_path)
    for store in ("folder", "postgres"):
        assert re.search(rf"\| sexton \| {store} \| [\d.]+ \|", shown)
    assert "| 2000 |" in shown and "Index" in shown and "### 3 nodes with 20 jobs" in shown
    assert re.search(r"\| singly \| [\d.]+ ", shown) and re.search(r"\| in rounds \| [\d.]+ ", shown)
    _nothing_is_left(tmp_path, database)


def test_claims_are_measured(tmp_path: Path, database: str) -> None:
    """Slots on every store; and of jobs that are due at once on two nodes each is fired once, by either."""
    shown = ran("claims.py", "--scale", "quick", "--rounds", "3", "--postgres", database, "--folder", str(tmp_path),
                folder=tmp_path)
    for store in ("folder", "sqlite", "postgres"):
        assert re.search(rf"\| sexton \| {store} (\| -?[\d.]+ ){{5}}\|\n", shown)
    due = re.findall(r"\| sexton \| (\w+) \| \d+ \| \d+ \| \d+ \| (\d+) \| 0 \|", shown)
    assert [store for store, _ in due] == ["folder", "postgres"] and all(10 <= int(most) <= 20 for _, most in due)
    _nothing_is_left(tmp_path, database)


def _nothing_is_left(folder: Path, database: str) -> None:
    with psycopg.connect(database) as connection:
        left = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname LIKE 'sexton%'").fetchall()
    assert left == [] and list(folder.iterdir()) == []

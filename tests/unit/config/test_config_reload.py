"""What a reload changes, and how a change on disk is noticed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sexton.config.diff import diff_jobs
from sexton.config.watch import signature
from sexton.model.job import JobSpec, Place


def job(name: str, line: int = 1, **more: Any) -> JobSpec:
    return JobSpec(name=name, command="x", schedule="@daily", place=Place("c.yml", line, 1), **more)


def test_jobs_are_sorted_by_what_becomes_of_them() -> None:
    """New, changed, gone and equal jobs are told apart by name; a moved job is the same job."""
    before = [job("same", 1), job("moved", 2), job("changed", 3), job("gone", 4)]
    after = [job("new", 1), job("same", 1), job("moved", 9), job("changed", 3, kill_timeout=1.0)]
    diff = diff_jobs(before, after)
    assert [spec.name for spec in diff.added] == ["new"]
    assert [spec.name for spec in diff.removed] == ["gone"]
    assert [spec.place.line for spec in diff.unchanged] == [1, 9]
    assert [(spec.name, spec.kill_timeout) for spec in diff.changed] == [("changed", 1.0)]
    assert diff


def test_equal_sets_have_no_difference() -> None:
    """A reload that changes nothing is false."""
    assert not diff_jobs([job("a")], [job("a", 7)])


def test_signature_notices_changes(tmp_path: Path) -> None:
    """Content, replacement, removal and new names in a folder are noticed; hidden files are not."""
    file = tmp_path / "a.yml"
    file.write_text("1")
    sources = [str(tmp_path), str(file), str(tmp_path / "missing.yml"), "\0"]
    seen = [signature(sources)]

    def changed() -> bool:
        seen.append(signature(sources))
        return seen[-1] != seen[-2]

    assert not changed()
    file.write_text("22")
    assert changed()
    os.utime(file, ns=(1, 1))
    assert changed()
    (tmp_path / "b.yml").write_text("22")
    assert changed()
    os.utime(tmp_path / "b.yml", ns=(1, 1))
    os.replace(tmp_path / "b.yml", file)
    assert changed()
    (tmp_path / ".a.yml.swp").write_text("")
    assert not changed()
    (tmp_path / "missing.yml").write_text("")
    assert changed()
    file.unlink()
    assert changed()

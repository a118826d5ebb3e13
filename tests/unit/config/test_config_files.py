"""Folders, includes, what may stand once, and files that cannot be read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sexton.config.load import load
from sexton.model.job import OnDaemonLoss
from sexton.model.settings import Configuration

Load = Callable[..., Configuration]


def jobs(*names: str) -> str:
    return "jobs:\n" + "".join(f"  - {{name: {name}, command: x, schedule: y}}\n" for name in names)


def test_folder_reads_by_name_and_skips(load_files: Load) -> None:
    """YAML in any letters and cron tables are read in the order of their names, all else is left out."""
    configuration = load_files(
        {
            "20.yml": jobs("second"),
            "10.YAML": jobs("first"),
            "30.cron": "* * * * * third\n",
            "crontab": "* * * * * fourth\n",
            "_off.yml": "no",
            ".hidden.yml": "no",
            "notes.txt": "no",
            "sub.yml/inner.yml": "no",
        }
    )
    assert configuration.findings == ()
    assert [job.name for job in configuration.jobs] == ["first", "second", "30.cron:1", "crontab:1"]
    assert [os.path.basename(source) for source in configuration.sources[1:]] == [
        "10.YAML", "20.yml", "30.cron", "crontab",
    ]  # fmt: skip


def test_defaults_stay_in_their_file(load_files: Load) -> None:
    """A file's defaults do not touch its neighbours in the folder."""
    configuration = load_files({"a.yml": "defaults: {utc: false}\n" + jobs("a"), "b.yml": jobs("b")})
    assert [job.utc for job in configuration.jobs] == [False, True]


def test_included_defaults_lie_below_the_includers(load_files: Load) -> None:
    """Defaults flow from the included file up; the included jobs do not get the includer's."""
    configuration = load_files(
        {
            "main.yml": "include: [sub/base.yml]\ndefaults: {killTimeout: 1}\n" + jobs("main"),
            "sub/base.yml": "include: [deep.yml]\ndefaults: {killTimeout: 2, saveLimit: 2}\n" + jobs("base"),
            "sub/deep.yml": "defaults: {saveLimit: 3, maxLineLength: 3, retries: 1}\n",
        },
        "main.yml",
    )
    base, main = configuration.jobs
    assert (main.kill_timeout, main.save_limit, main.max_line_length) == (1.0, 2, 3)
    assert (base.kill_timeout, base.save_limit, base.max_line_length) == (2.0, 2, 3)
    assert main.ignored_options == ("retries",)


def test_a_file_reached_twice_counts_once(load_files: Load) -> None:
    """Two parents may include one file, and the folder may hold it too."""
    configuration = load_files(
        {
            "a.yml": "include: [c.yml]\n" + jobs("a"),
            "b.yml": "include: [./c.yml]\n" + jobs("b"),
            "c.yml": "shutdownTimeout: 3\ndefaults: {saveLimit: 1}\n" + jobs("c"),
        }
    )
    assert configuration.findings == ()
    assert [(job.name, job.save_limit) for job in configuration.jobs] == [("c", 1), ("a", 1), ("b", 1)]
    assert configuration.settings.shutdown_timeout == 3.0


def test_include_of_a_cron_table(load_files: Load) -> None:
    """A cron table can be included."""
    configuration = load_files({"a.yml": "include: [t.crontab]\n", "t.crontab": "@daily x"}, "a.yml")
    assert [job.name for job in configuration.jobs] == ["t.crontab:1"]


@pytest.mark.parametrize("name", ["root", "crontab.txt", "backup.cron.d", "notes.yml.old"])
def test_a_table_whose_name_says_nothing(load_files: Load, name: str) -> None:
    """A file that is named itself and begins like a cron table is one; others are YAML."""
    head = "\ufeff# mine\r\nSHELL=/bin/sh\r\n\r\n"
    configuration = load_files({name: head + "*/5 * * jan mon-fri date: now\r\n"}, name)
    assert configuration.findings == ()
    assert [(job.name, job.command) for job in configuration.jobs] == [(f"{name}:4", "date: now")]
    assert [job.name for job in load_files({name: "# mine\n\n" + jobs("a")}, name).jobs] == ["a"]


def test_the_first_line_decides_for_no_folder(load_files: Load) -> None:
    """In a folder names decide alone: what lies there besides is none of our business."""
    configuration = load_files({"a.yml": jobs("a"), "root": "@daily x\n"})
    assert [job.name for job in configuration.jobs] == ["a"]


@pytest.mark.parametrize("entry", ["a.yml", "b.yml"])
def test_include_circle(load_files: Load, entry: str) -> None:
    """Files that include each other are one error at the include that closes the circle."""
    (error,) = load_files({"a.yml": "include: [b.yml]\n", "b.yml": "include:\n  - a.yml\n"}, entry).errors
    assert "includes itself" in error.message


def test_include_of_what_is_not_there(load_files: Load, tmp_path: Path) -> None:
    """A missing file is an error at the include, and it is watched for."""
    configuration = load_files({"a.yml": "include:\n  - none.yml\n"}, "a.yml")
    (error,) = configuration.errors
    assert "none.yml does not exist" in error.message
    assert error.place is not None and (error.place.line, error.place.column) == (2, 5)
    assert str(tmp_path / "none.yml") in configuration.sources


@pytest.mark.parametrize(
    ("files", "entry", "second", "first"),
    [
        ({"a.yml": jobs("x", "x")}, "a.yml", "a.yml:3:5", "a.yml:2:5"),
        ({"a.yml": jobs("x"), "b.yml": jobs("x")}, "", "b.yml:2:5", "a.yml:2:5"),
        ({"a.yml": "include: [i.txt]\n" + jobs("x"), "i.txt": jobs("x")}, "a.yml", "a.yml:3:5", "i.txt:2:5"),
    ],
    ids=["file", "folder", "include"],
)
def test_duplicate_names(
    load_files: Load, files: dict[str, str], entry: str, second: str, first: str
) -> None:
    """Two jobs of one name are an error that names both places, wherever they come from."""
    (error,) = load_files(files, entry).errors
    assert str(error.place).endswith(second)
    assert error.message.endswith(first)
    assert "'x'" in error.message


def test_a_job_with_errors_still_has_its_name(load_text: Load) -> None:
    """A name that is used twice is reported even if the first job has another error."""
    found = load_text("jobs:\n  - {name: a}\n  - {name: a, command: x, schedule: y}\n").errors
    assert len(found) == 2


@pytest.mark.parametrize(
    "section",
    ["web: {listen: ['unix:///s']}", "state: {path: /s}", "logging: {version: 1}", "shutdownTimeout: 1"],
)
def test_settings_stand_in_one_file(load_files: Load, section: str) -> None:
    """A section in two files is an error that names both."""
    (error,) = load_files({"a.yml": f"{section}\n", "b.yml": f"\n{section}\n"}).errors
    assert error.place is not None and error.place.file.endswith("b.yml") and error.place.line == 2
    assert "a.yml:1:" in error.message


def test_state_in_another_file_serves_cluster_jobs(load_files: Load) -> None:
    """The store that cluster jobs need may stand in any file of the folder."""
    over_nodes = "schedule: y, concurrencyScope: cluster, concurrencyPolicy: Forbid"
    job = jobs("a").replace("schedule: y", over_nodes)
    assert load_files({"a.yml": job, "z.yml": "state: {path: /s}\n"}).errors == []


def test_state_in_another_file_serves_kept_jobs(load_files: Load) -> None:
    """So may the one that runs outliving the daemon need, also when `defaults` ask for it."""
    files = {"a.yml": "defaults: {onDaemonLoss: keep}\n" + jobs("a"), "z.yml": "state: {path: /s}\n"}
    (job,) = load_files(files).jobs
    assert job.on_daemon_loss is OnDaemonLoss.KEEP and load_files(files).errors == []


def _missing(path: Path) -> None:
    """Nothing there."""


def _folder(path: Path) -> None:
    path.mkdir()
    (path / "x.txt").write_text("")


@pytest.mark.parametrize(
    ("make", "severity", "part"),
    [
        (_missing, "error", "does not exist"),
        (_folder, "warning", "no configuration file in this folder"),
        (lambda path: path.symlink_to("gone.yml"), "error", "broken link to gone.yml"),
        (lambda path: path.symlink_to(path.name), "error", "cannot be read"),
        (lambda path: os.mkfifo(path), "error", "not a regular file"),
    ],
    ids=["missing", "empty folder", "broken link", "link to itself", "pipe"],
)
def test_path_without_configuration(
    tmp_path: Path, make: Callable[[Path], None], severity: str, part: str
) -> None:
    """What cannot be read is one finding that says why; nothing waits and nothing raises."""
    path = tmp_path / "c.yml"
    make(path)
    configuration = load(str(path), environ={}, check_schedule=lambda spec: ())
    (finding,) = configuration.findings
    assert str(finding).startswith(f"{path}:1:1: {severity}: ")
    assert part in finding.message
    assert str(path) in configuration.sources


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without read permission is an error that says so."""
    path = tmp_path / "c.yml"
    path.write_text("")

    def refuse(*args: object, **more: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("sexton.config.files.os.open", refuse)
    (error,) = load(str(path), environ={}, check_schedule=lambda spec: ()).errors
    assert "permission denied" in error.message


@pytest.mark.parametrize("path", ["\0", "x\udcffy", ""])
def test_impossible_path(path: str) -> None:
    """Paths that no file can have are errors, and what is said of them can be encoded."""
    configuration = load(path, environ={}, check_schedule=lambda spec: ())
    (error,) = configuration.errors
    str(error).encode()


def test_collection_is_switched_back_on(load_text: Load) -> None:
    """Loading leaves the garbage collector as it was."""
    import gc

    assert gc.isenabled()
    load_text("jobs: 1")
    assert gc.isenabled()

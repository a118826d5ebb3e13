"""How a daemon is started: its options, and what may be imported from the folder that it was started in."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from sexton.cli.arguments import is_daemon, make_parser
from sexton.daemon.loader import begin
from sexton.daemon.loading import finish


@pytest.mark.parametrize(("arguments", "alone"), [
    ([], True),
    (["-c", "jobs.yaml"], True),
    (["--config", "jobs.yaml", "-l", "debug"], True),
    (["--log-level", "WARNING"], True),
    (["-c"], False),
    (["-c", "-l"], False),
    (["-c", "jobs.yaml", "-v"], False),
    (["-c", "jobs.yaml", "jobs"], False),
    (["-c", "jobs.yaml", "jobs", "--json"], False),
    (["jobs"], False),
    (["--help"], False),
    (["--config=jobs.yaml"], False),
])
def test_the_options_of_a_daemon_are_told_from_a_command(arguments: list[str], alone: bool) -> None:
    """What starts a daemon is understood without the commands, and as with them; anything else is left to them."""
    assert is_daemon(arguments) is alone
    if alone:
        assert vars(make_parser(commands=False).parse_args(arguments)) == vars(make_parser().parse_args(arguments))


def test_no_module_of_the_folder_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People have files named like modules beside their jobs: the loader does not run them."""
    (tmp_path / "yaml.py").write_text("raise SystemExit('run by the loader')\n")
    (tmp_path / "jobs.yaml").write_text('jobs:\n  - {name: j, command: "true", schedule: "0 0 * * *"}\n')
    monkeypatch.chdir(tmp_path)
    configuration = finish(begin("jobs.yaml"))
    assert [job.name for job in configuration.jobs] == ["j"] and not configuration.errors


def test_a_tree_that_is_not_installed_loads_its_own_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that is run from a checkout has a loader of the same checkout, wherever Python looks for modules."""
    monkeypatch.setattr(sys, "executable", sys._base_executable)
    monkeypatch.setenv("PYTHONPATH", str(Path(msgspec.__file__).parents[1]))  # what we need, not us
    configuration = finish(begin("/dev/null"))
    assert [finding.message for finding in configuration.findings if "loader" in finding.message] == []

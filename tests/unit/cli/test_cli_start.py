"""How a daemon is started: its options, and what may be imported from the folder that it was started in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from sexton.cli.arguments import make_parser
from sexton.cli.options import DEFAULT_CONFIG, daemon_options
from sexton.daemon.loader import begin
from sexton.daemon.loading import finish


@pytest.mark.parametrize(("arguments", "alone"), [
    ([], True),
    (["-c", "jobs.yaml"], True),
    (["-c", ""], True),
    (["--config", "jobs.yaml", "-l", "debug"], True),
    (["--log-level", "WARNING"], True),
    (["-l", "DEBUG", "-l", "error", "-c", "a", "-c", "b"], True),
    (["-c"], False),
    (["-c", "-l"], False),
    (["-l", "loud"], False),
    (["-c", "jobs.yaml", "-v"], False),
    (["-c", "jobs.yaml", "jobs"], False),
    (["-c", "jobs.yaml", "jobs", "--json"], False),
    (["jobs"], False),
    (["--help"], False),
    (["--config=jobs.yaml"], False),
    (["--url", "http://127.0.0.1:1"], False),
])
def test_the_options_of_a_daemon_are_told_from_a_command(arguments: list[str], alone: bool) -> None:
    """What starts a daemon is understood without the parser, and as the parser does; anything else is left to it."""
    options = daemon_options(arguments)
    assert (options is not None) is alone
    if options is not None:
        parsed = make_parser().parse_args(arguments)
        assert options == (parsed.config or DEFAULT_CONFIG, parsed.log_level)
        assert parsed.command is None and not parsed.validate_config and not parsed.job_set_id


@pytest.mark.parametrize("module", ["sexton.cli.arguments", "aiohttp.client"])
def test_a_start_does_without(module: str) -> None:
    """Neither the parser of commands nor an HTTP client is imported by a daemon before it has its configuration."""
    code = (f"import sys; sys.argv = ['sexton', '-c', '/dev/null']\n"
            f"import sexton.daemon.loading as loading\n"
            f"def finish(child):\n    child.kill(); print({module!r} in sys.modules); raise SystemExit(7)\n"
            f"loading.finish = finish\n"
            f"from sexton.cli.main import main; main()")
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (7, "False\n"), answer.stderr


def test_whoever_wants_all_of_the_http_library_gets_it() -> None:
    """The server alone is imported at first; a reporter, or what it brings, finds the client all the same."""
    code = ("from sexton.api.serveronly import import_http_server; import_http_server()\n"
            "import aiohttp.web, sys; assert 'aiohttp.client' not in sys.modules\n"
            "from aiohttp import ClientSession, TraceConfig\n"
            "import aiohttp; assert aiohttp.__version__ and aiohttp.web.Application\n"
            "assert not hasattr(aiohttp, 'nothing')")
    subprocess.run([sys.executable, "-c", code], check=True)


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

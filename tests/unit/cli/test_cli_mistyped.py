"""A word that is no command is answered with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.cli.arguments import make_parser
from sexton.cli.commands import run_command
from sexton.cli.exits import Exit


@pytest.mark.parametrize(("word", "hint"), [
    ("job", "did you mean 'jobs'?"), ("strat", "did you mean 'start'?"), ("doktor", "did you mean 'doctor'?"),
    ("xyzzy", "(commands: "),
])
def test_the_nearest_command_is_named(word: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, one line behind the usage, and all commands for when none is near."""
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args([word])
    assert ended.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"{word!r} is no command" in last and hint in last and "explain" in last


def test_a_file_in_place_of_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says how a daemon is started from it."""
    with pytest.raises(SystemExit):
        make_parser().parse_args([str(tmp_path)])
    assert f"sexton -c {tmp_path}" in capsys.readouterr().err


def test_a_file_in_place_of_a_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No daemon answers and there is such a file: it is said how the file is asked."""
    words = ["--url", f"unix://{tmp_path}/none.sock", "next", str(tmp_path)]
    assert run_command(make_parser().parse_args(words), "/nonexistent") == Exit.NO_DAEMON
    assert f"`sexton next --file {tmp_path}`" in capsys.readouterr().err

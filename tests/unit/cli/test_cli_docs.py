"""The page on the command line and the parser say the same; every command has its function."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from sexton.cli.arguments import make_parser
from sexton.cli.commands import function_of
from sexton.cli.exits import Exit
from sexton.model.run import Outcome

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
SHARED = {"-h", "--help", "-c", "--config", "--url", "--json"}


def commands() -> dict[str, argparse.ArgumentParser]:
    for action in make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise AssertionError("no commands")


def options(parser: argparse.ArgumentParser) -> set[str]:
    """Of the command, and of what it consists of."""
    found = {option for action in parser._actions for option in action.option_strings}
    parts = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if parser.prog.count(" ") and parts:
        found.update(option for part in parts[0].values() for option in options(part))
    return found


def section(title: str) -> str:
    found = re.search(rf"^## `?{re.escape(title)}`?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {title}"
    return found[1]


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_of_a_command_is_documented(name: str) -> None:
    """And no other one is."""
    written = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", section(f"sexton {name}")))
    offered = options(commands()[name])
    assert offered - SHARED <= written
    assert written <= offered | {"--help"}


def test_the_options_before_a_command_are_documented() -> None:
    """All of the daemon's own."""
    text = section("sexton") + section("Where the daemon is") + section("What is printed")
    assert {option for option in options(make_parser()) if f"`{option}" not in text} == {"-h", "--help"}


def test_every_documented_command_exists() -> None:
    """The sections are the commands."""
    assert set(re.findall(r"^## `sexton (\w+)`$", PAGE, re.MULTILINE)) == set(commands())


def test_every_exit_status_is_documented() -> None:
    """By its number, in the table."""
    table = section("Exit status")
    assert {int(n) for n in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == {int(each) for each in Exit}


def test_every_command_of_a_daemon_has_afunction_of() -> None:
    """The table of functions is complete."""
    for name in set(commands()) - {"check", "doctor", "state"}:
        assert callable(function_of(name))


@pytest.mark.parametrize("outcome", [each.value for each in Outcome])
def test_every_outcome_can_be_asked_for(outcome: str) -> None:
    """The choices are the outcomes there are."""
    assert make_parser().parse_args(["runs", "--outcome", outcome]).outcome == outcome


@pytest.mark.parametrize("arguments", [["--url", "unix:///x", "jobs"], ["jobs", "--url", "unix:///x"]])
def test_the_address_stands_before_or_after_the_command(arguments: list[str]) -> None:
    """Both mean the same."""
    assert make_parser().parse_args(arguments).url == "unix:///x"
    assert make_parser().parse_args(["-c", "a", "jobs"]).config == "a"

"""Where a command looks for the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.cli import address
from sexton.cli.address import find_address, listened, parse_address
from sexton.cli.client import route
from sexton.cli.failures import Misused
from sexton.cli.lookup import is_run_id, unknown_job

NOWHERE = "/nonexistent/sexton"


@pytest.mark.parametrize(
    ("url", "shown"),
    [("http://127.0.0.1:8420", "http://127.0.0.1:8420"), ("http://localhost/", "http://localhost:80"),
     ("http://[::1]:8420", "http://[::1]:8420"), ("https://cron.example/sexton/", "https://cron.example:443/sexton"),
     ("unix:///run/sexton.sock", "unix:///run/sexton.sock")],
)  # fmt: skip
def test_an_address_is_understood(url: str, shown: str) -> None:
    """TCP with or without a port, a prefix behind a proxy, a unix socket."""
    assert str(parse_address(url)) == shown


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8420", "ftp://x", "http://", "http://x:port", "http://x:99999", "unix://relative",
     "unix:x", "http://x/?a=b", "http://me@x", "http://[::1"],
)  # fmt: skip
def test_what_is_no_address_is_a_usage_error(url: str) -> None:
    """The message says how one is written."""
    with pytest.raises(Misused, match="write for example"):
        parse_address(url)


def test_the_nearest_word_wins(tmp_path: Path) -> None:
    """The option, then the environment, then the configuration, then the default."""
    config = tmp_path / "jobs.yaml"
    config.write_text("web:\n  listen: [http://127.0.0.1:7003]\njobs: []\n")
    environ = {"SEXTON_URL": "http://127.0.0.1:7002"}
    assert find_address("http://127.0.0.1:7001", str(config), environ).port == 7001
    assert find_address(None, str(config), environ).port == 7002
    assert find_address(None, str(config), {}).port == 7003
    assert str(find_address(None, NOWHERE, {})) == address.DEFAULT_URL


def test_the_section_is_read_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration of many jobs, even one with errors, does not keep a command waiting."""
    monkeypatch.setattr(address, "_loaded", lambda config: pytest.fail("the whole configuration was loaded"))
    (tmp_path / "a.yaml").write_text("jobs: [{name: broken\n")
    section = "web:\n\n  # where\n  listen:\n    - unix:///run/x.sock\n"
    (tmp_path / "b.yaml").write_text(f"jobs: []\n{section}state: *broken\n")
    assert listened(str(tmp_path)) == ("unix:///run/x.sock",)
    assert listened(str(tmp_path / "a.yaml")) == ()


@pytest.mark.parametrize(
    "text",
    ["web:\n  listen: ['http://127.0.0.1:${PORT}']\n", "include: [other.yaml]\n",
     '{"web": {"listen": ["http://127.0.0.1:7004"]}}',
     "web: {listen: [http://127.0.0.1:7004], headers: &h {A: b}}\ndefaults: &d {}\ninclude: [other.yaml]\n"],
)  # fmt: skip
def test_what_the_section_does_not_tell_is_loaded(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables, included files and other ways to write YAML are read as the daemon reads them."""
    monkeypatch.setenv("PORT", "7004")
    (tmp_path / "jobs.yaml").write_text(text)
    other = "jobs: []\n" if "web" in text else "web: {listen: [http://127.0.0.1:7004]}\n"
    (tmp_path / "other.yaml").write_text(other)
    assert listened(str(tmp_path / "jobs.yaml")) == ("http://127.0.0.1:7004",)


def test_a_port_of_the_kernels_choice_is_passed_over(tmp_path: Path) -> None:
    """Port 0 cannot be connected to; the next address is taken."""
    config = tmp_path / "jobs.yaml"
    config.write_text("web:\n  listen: ['http://127.0.0.1:0', 'unix:///run/x.sock']\n")
    assert str(find_address(None, str(config), {})) == "unix:///run/x.sock"


def test_any_name_fits_into_a_path() -> None:
    """Slashes, blanks and question marks of a job's name do not end the path."""
    assert route("jobs", "a/b c?d", "start") == "/jobs/a%2Fb%20c%3Fd/start"


def test_ids_and_names_are_told_apart() -> None:
    """Only the exact form of an id is one."""
    assert is_run_id("01a22bd7-7085-7000-b983-8db61362bb00")
    assert not is_run_id("01a22bd7-7085-7000-b983")
    assert not is_run_id("hello")


def test_a_mistyped_name_gets_a_suggestion() -> None:
    """Letter case does not matter; a name that is like none gets the way to the list."""
    assert "did you mean 'Backup'?" in str(unknown_job("bakcup", ["Backup", "tidy"]))
    assert "`sexton jobs` lists them" in str(unknown_job("zzz", ["Backup"]))
    assert "there are no jobs" in str(unknown_job("zzz", []))

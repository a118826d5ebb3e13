"""The systemd unit against the daemon that it starts, and against the page that explains it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sexton.cli.arguments import make_parser
from sexton.cli.options import DEFAULT_CONFIG
from sexton.daemon.shutdown import SLACK_SECONDS
from sexton.model.job import JobSpec, Place
from sexton.model.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "packaging" / "sexton.service"
PAGE = (ROOT / "docs" / "guide" / "systemd.md").read_text()


def unit() -> dict[str, str]:
    """Settings of all sections; each stands once."""
    rows = re.findall(r"^(\w+)=(.*)$", FILE.read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a setting stands twice"
    return dict(rows)


def forbidden() -> set[str]:
    table = PAGE.partition("## What must not be set")[2].partition("\n## ")[0]
    return set(re.findall(r"`(\w+)=[^`]*`", "".join(row.split("|")[1] for row in table.splitlines() if "|" in row)))


def test_it_starts_what_there_is() -> None:
    """The command line is one that the parser takes, with the default configuration."""
    program, *arguments = unit()["ExecStart"].split()
    options = make_parser().parse_args(arguments)
    assert Path(program).name == "sexton" and options.config == DEFAULT_CONFIG and options.command is None


def test_it_gives_time_to_stop() -> None:
    """As long as a shutdown may take by default: the time for runs to end, the grace, and what comes after it."""
    job = JobSpec(name="j", command="true", schedule="* * * * *", place=Place("", 1, 1))
    seconds = int(unit()["TimeoutStopSec"].removesuffix("s"))
    assert seconds >= Settings().shutdown_timeout + job.kill_timeout + SLACK_SECONDS


def test_it_keeps_the_promises() -> None:
    """Delegation, an orderly stop, and a memory kill that is the job's affair."""
    facts = {"Type": "notify", "Delegate": "yes", "KillMode": "mixed", "OOMPolicy": "continue", "Restart": "on-failure"}
    assert facts.items() <= unit().items()


def test_nothing_is_set_that_jobs_would_inherit() -> None:
    """What the page warns of is not in the unit; and the page knows the worst ones."""
    assert {"NoNewPrivileges", "ProtectSystem", "ProtectControlGroups", "PrivateTmp"} <= forbidden()
    assert not forbidden() & set(unit()) and "WatchdogSec" not in unit()


@pytest.mark.parametrize("name", ["Type", "Delegate", "KillMode", "TimeoutStopSec", "OOMPolicy", "Restart",
                                  "LimitNOFILE", "TasksMax", "StateDirectory", "RuntimeDirectory"])
def test_the_page_explains_it(name: str) -> None:
    """Each line that is not plain stands on the page as it stands in the unit."""
    assert f"`{name}={unit()[name]}`" in PAGE


def test_systemd_accepts_it(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze here")
    copy = tmp_path / "sexton.service"
    copy.write_text(FILE.read_text().replace("/usr/local/bin/sexton", "/bin/true"))
    answer = subprocess.run([tool, "verify", str(copy)], capture_output=True, text=True, check=False, timeout=60)
    if "Failed to" in answer.stderr and "sexton" not in answer.stderr:
        pytest.skip(f"systemd-analyze cannot work here: {answer.stderr.strip()}")
    assert answer.returncode == 0 and "sexton" not in answer.stderr, answer.stderr

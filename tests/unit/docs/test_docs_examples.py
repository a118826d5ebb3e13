"""What the documents show works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sexton.daemon.loading import load_here

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]


def examples() -> list[tuple[str, str]]:
    return [
        (f"{page.name}-{number}", text)
        for page in PAGES
        for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S), 1)
    ]


@pytest.mark.parametrize(("where", "text"), examples(), ids=[where for where, _ in examples()])
def test_yaml_in_the_guides_loads(where: str, text: str, tmp_path: Path) -> None:
    """Every YAML example of README and guides is a valid configuration."""
    file = tmp_path / "jobs.yaml"
    file.write_text(text)
    assert load_here(str(file)).errors == []


def test_the_demo_configuration_has_no_findings() -> None:
    """The demo is a model of a file: not even a warning."""
    assert load_here(str(ROOT / "examples" / "demo.yaml")).findings == ()


def test_links_between_documents_lead_somewhere() -> None:
    """A relative link names a file that exists."""
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_no_module_outgrows_a_sitting() -> None:
    """Modules stay small enough to read in one sitting."""
    long = {p.name: n for p in (ROOT / "src").rglob("*.py") if (n := len(p.read_text().splitlines())) > 420}
    assert long == {}

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sexton.config.load import load
from sexton.model.job import JobSpec
from sexton.model.settings import Configuration

Load = Callable[..., Configuration]

ENVIRON = {"HOME": "/home/sexton", "SET": "value", "EMPTY": "", "RAW": "\udcff"}


@pytest.fixture
def load_files(tmp_path: Path) -> Load:
    """Write files (name to text or bytes), then load one of them, or the folder."""

    def write_and_load(
        files: Mapping[str, str | bytes], entry: str = "", environ: Mapping[str, str] = ENVIRON
    ) -> Configuration:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return load(str(tmp_path / entry), environ=environ, check_schedule=lambda spec: ())

    return write_and_load


@pytest.fixture
def load_text(load_files: Load) -> Load:
    """Load one YAML document."""
    return lambda text, **more: load_files({"c.yml": text}, "c.yml", **more)


@pytest.fixture
def load_job(load_text: Load) -> Callable[..., JobSpec]:
    """Load one job with these further lines (indented by nothing) and no findings."""

    def one(lines: str = "", top: str = "") -> JobSpec:
        body = "".join(f"    {line}\n" for line in lines.splitlines())
        head = "jobs:\n  - name: a\n    command: x\n    schedule: '@daily'\n"
        configuration = load_text(f"{top}{head}{body}")
        assert configuration.findings == ()
        (job,) = configuration.jobs
        return job

    return one

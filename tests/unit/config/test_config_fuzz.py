"""Whatever the file holds, loading answers; it never raises."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.config import document
from sexton.config.crontab import split_percent
from sexton.config.interpolate import InterpolationError, interpolate
from sexton.config.load import load
from sexton.config.schema import JOB, SECTIONS, STRUCTURE
from sexton.model.settings import Configuration

KEYS = sorted({key for section in SECTIONS for key in section.known()} | set(STRUCTURE) | {"<<", "job"})
SCALARS = st.sampled_from(
    ["", "null", "~", "true", "yes", "1", "-1", "1e309", ".nan", "${X}", "${", "* * * * *", "'a'",
     '"\\0"', "&a x", "*a", "!t x", "@daily", "{job_name}", "'{'", "[", "}", "http://localhost:1", "unix:///s",
     "c.yml", "\t", "..", "%", "-"]
)  # fmt: skip
FEW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def documents(draw: st.DrawFn, depth: int = 0) -> str:
    """YAML that looks like a configuration: known keys, odd values, now and then broken."""
    indent = "  " * depth
    lines = []
    for _ in range(draw(st.integers(1, 4))):
        head = draw(st.sampled_from(["- ", ""])) + draw(st.sampled_from(KEYS)) + ":"
        if depth < 3 and draw(st.booleans()):
            lines += [indent + head, draw(documents(depth + 1))]
        else:
            lines.append(f"{indent}{head} {draw(SCALARS)}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def _load(folder: Path, name: str, data: bytes) -> Configuration:
    path = folder / name
    path.write_bytes(data)
    configuration = load(str(path), environ={"X": "x"}, check_schedule=lambda spec: ())
    encoded = msgspec.msgpack.encode(configuration)
    assert msgspec.msgpack.decode(encoded, type=Configuration) == configuration
    for finding in configuration.findings:
        assert finding.place is not None and finding.place.line >= 1 and finding.place.column >= 1
        assert finding.message
    return configuration


@FEW
@given(data=st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@pytest.mark.parametrize("name", ["c.yml", "c.crontab"])
def test_any_bytes(folder: Path, name: str, data: bytes) -> None:
    """Arbitrary bytes and text give a configuration that survives encoding, with a place for each finding."""
    _load(folder, name, data)


@FEW
@given(text=documents())
def test_any_document(folder: Path, text: str) -> None:
    """Documents of known keys with odd values never raise."""
    _load(folder, "c.yml", text.encode())


@FEW
@given(entries=st.lists(
    st.dictionaries(st.sampled_from(sorted(JOB.known())), SCALARS, max_size=3), max_size=3
))
def test_no_job_is_lost_in_silence(folder: Path, entries: list[dict[str, str]]) -> None:
    """Without an error in the findings, every entry of the file is a job."""
    lines = ["jobs:"]
    for number, entry in enumerate(entries):
        whole = {"command": "x", "schedule": "y", **entry, "name": f"job {number}"}
        (first, *rest) = (f"{key}: {value}" for key, value in whole.items())
        lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    configuration = _load(folder, "c.yml", "\n".join(lines if entries else ["{}"]).encode())
    if not configuration.errors:
        assert len(configuration.jobs) == len(entries)


@FEW
@given(text=st.text(alphabet="*/ \t\n#=%\\@0159,-abTZ\"'~", max_size=60))
def test_any_table(folder: Path, text: str) -> None:
    """Lines of cron's characters never raise, and every job has a command and a name of its own."""
    configuration = _load(folder, "c.crontab", text.encode())
    assert len({job.name for job in configuration.jobs}) == len(configuration.jobs)
    assert all(job.command for job in configuration.jobs)


@FEW
@given(text=documents())
def test_the_slow_parser_agrees(folder: Path, text: str) -> None:
    """Without libyaml the same jobs are read from every document both parsers accept."""
    fast = _load(folder, "c.yml", text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "_Composer", document.pure_composer())
        slow = _load(folder, "c.yml", text.encode())
    if not fast.errors or not slow.errors:
        assert fast == slow


@given(text=st.text(alphabet="${}:-AX ", max_size=20))
def test_any_reference(text: str) -> None:
    """Interpolation gives text or its own error."""
    try:
        assert "X" not in interpolate(text, {"X": "x"}).replace("$X", "") or "X" in text
    except InterpolationError as error:
        assert error.hint


@given(text=st.text(alphabet="%\\ab", max_size=12))
def test_any_percent(text: str) -> None:
    """Standard input exists exactly when a percent sign stands bare."""
    _, stdin = split_percent(text)
    assert (stdin is not None) == ("%" in text.replace("\\%", ""))

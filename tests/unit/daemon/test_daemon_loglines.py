"""What a log line is about, and what is written of lines that repeat each other."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import pytest

from sexton.daemon.loglines import BURST, CODES, WINDOW_SECONDS, JsonLines, Repeats, about, shape_of

SOURCE = Path(__file__).resolve().parents[3] / "src" / "sexton"
LEVELS = {"debug": 0, "info": 0, "warning": 0, "error": 0, "critical": 0, "exception": 0, "log": 1}


def templates() -> list[str]:
    """The template of every log line of the daemon."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS \
                    and isinstance(node.func.value, ast.Name) and node.func.value.id == "logger":
                place = LEVELS[node.func.attr]
                texts = ast.walk(node.args[place]) if len(node.args) > place else ()
                values = [text.value for text in texts if isinstance(text, ast.Constant)]
                found += [value for value in values if isinstance(value, str)]
    return found


def line(template: str, *arguments: object, level: int = logging.WARNING) -> logging.LogRecord:
    record = logging.LogRecord("sexton.run", level, "", 0, template, arguments, None)
    record.template, record.arguments = template, arguments
    record.message = record.msg = record.getMessage()
    record.args = None
    return record


def test_every_code_has_its_line() -> None:
    """No code is left over from a line that was worded anew."""
    assert set(CODES) <= set(templates())


def test_every_line_of_a_run_names_it() -> None:
    """A template that speaks of a job or a run has it as a field, and has a code."""
    for template in templates():
        shape = shape_of("sexton.run", template)
        assert shape.code
        if template.startswith("Job %s"):
            assert shape.job == 0, template
        if "run %s" in template:
            assert shape.run is not None, template


@pytest.mark.parametrize(("record", "expected"), [
    (line("Job %s exit code %s; outcome: %s; fail_reason: %s (run %s)", "a", 1, "failure", "x", "id"),
     ("run.ended", "a", "id")),
    (line("Starting job %s (run %s)", "a", "id"), ("run.starting", "a", "id")),
    (line("100%% of %d things", 3), ("run.of-things", None, None)),
    (line("no placeholders"), ("run.no-placeholders", None, None)),
])
def test_about(record: logging.LogRecord, expected: tuple[str, str | None, str | None]) -> None:
    """Code, job and run of a line."""
    assert about(record) == expected


def test_json_line() -> None:
    """One object on one line, with its fields, whatever the message holds."""
    text = JsonLines("here").format(line("Job %s: run %s said %s", 'a"\n', "id", "é\u2028"))
    assert "\n" not in text
    made = json.loads(text)
    assert {key: made[key] for key in ("level", "logger", "event", "node", "job", "run")} == {
        "level": "WARNING", "logger": "sexton.run", "event": "run.job-run-said", "node": "here", "job": 'a"\n',
        "run": "id"}
    assert made["time"].endswith("Z")


def test_repeats_are_counted_and_told() -> None:
    """Of one job's lines of one kind the first few pass, then their number; other jobs and kinds are not concerned."""
    repeats = Repeats()
    passed = [repeats.lets_pass(line("Job %s: no room on %s", "a", "/"), 0.0) for _ in range(BURST + 5)]
    assert passed == [True] * BURST + [False] * 5
    assert repeats.lets_pass(line("Job %s: no room on %s", "b", "/"), 0.0)
    assert repeats.lets_pass(line("Job %s: too late", "a"), 0.0)
    assert repeats.summaries(WINDOW_SECONDS - 0.1) == []
    (summary,) = repeats.summaries(WINDOW_SECONDS)
    assert "5 more lines like this one" in summary.getMessage()
    assert not repeats.waiting
    assert repeats.lets_pass(line("Job %s: no room on %s", "a", "/"), WINDOW_SECONDS)
    assert repeats.suppressed == 5


def test_what_is_no_repeat() -> None:
    """Lines below WARNING, and lines that name a run."""
    repeats = Repeats()
    assert all(repeats.lets_pass(line("Job %s: fine", "a", level=logging.INFO), 0.0) for _ in range(3 * BURST))
    assert all(repeats.lets_pass(line("Job %s: run %s failed", "a", n), 0.0) for n in range(3 * BURST))
    assert not repeats.waiting

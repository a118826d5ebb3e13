"""The reference page is true: its examples load, its tables are the schema with its defaults."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sexton.config import report_schema
from sexton.config.schema import (
    DEFAULTS,
    ENVIRONMENT_ENTRY,
    FAILS_WHEN,
    JOB,
    LOGGING,
    MONITORING,
    POOL,
    RESOURCE_LIMITS,
    SCHEDULE,
    STATE,
    STRUCTURE,
    TOP,
    WEB,
    Option,
)
from sexton.model import report
from sexton.model.job import FailsWhen, JobSpec, ScheduleFields
from sexton.model.limits import Monitoring, ResourceLimits
from sexton.model.pool import PoolSettings, PoolUse
from sexton.model.secret import SecretSource
from sexton.model.settings import Configuration, Settings, StateSettings, WebSettings
from sexton.model.statsd import StatsdSettings


class SecretEntry(SecretSource):
    """An entry of `secrets` is a source with a name."""

    name: str


REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGE = (REFERENCE / "configuration.md").read_text(encoding="utf-8") + "".join(
    (REFERENCE / name).read_text("utf-8") for name in ("reports.md", "metrics.md"))
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

TABLES: list[tuple[str, Mapping[str, Option], type | None]] = [
    ("Top level", TOP.options, Settings),
    ("Job options", JOB.options, JobSpec),
    ("`schedule` as a map", SCHEDULE.options, ScheduleFields),
    ("`failsWhen`", FAILS_WHEN.options, FailsWhen),
    ("`resourceLimits`", RESOURCE_LIMITS.options, ResourceLimits),
    ("`monitorResources`", MONITORING.options, Monitoring),
    ("`environment` and `env_file`", ENVIRONMENT_ENTRY.options, None),
    ("`secrets`", report_schema.SECRETS.options, SecretEntry),
    ("`pools`", POOL.options, PoolSettings),
    ("`web`", WEB.options, WebSettings),
    ("`logging`", LOGGING.options, None),
    ("`state`", STATE.options, StateSettings),
    ("`mail`", report_schema.MAIL.options, report.MailReport),
    ("`webhook`", report_schema.WEBHOOK.options, report.WebhookReport),
    ("`shell`", report_schema.SHELL.options, report.ShellReport),
    ("`sentry`", report_schema.SENTRY.options, report.SentryReport),
    ("statsd", report_schema.STATSD.options, StatsdSettings),
    ("Secrets", report_schema.SECRET.options, SecretSource),
]


def _section(heading: str) -> str:
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found.group(1)


def _rows(heading: str) -> dict[str, str]:
    """Option and default of each row of the table below a heading."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", _section(heading), re.MULTILINE)
    return {name: default.strip() for name, default in rows}


def _written(option: Option, model: type | None) -> str:
    """A default as the page writes it."""
    special = {"env_file": "null", "failsWhen": "see below", "headers": "{}", "fingerprint": "see below"}
    use = PoolUse(name="")
    special |= {"poolSlots": _yaml(use.slots), "queuePriority": _yaml(use.priority), "queueTimeout": _yaml(use.timeout)}
    if option.name in special and model is not report.WebhookReport:
        return special[option.name]
    if option in ENVIRONMENT_ENTRY.options.values() and option.name != "key":
        return "required, or one of the two below" if option.name == "value" else ""
    if option in LOGGING.options.values():
        return {"format": "human", "level": "that of -l"}[option.name]
    if option in report_schema.JOB_REPORTS:
        return "see below" if option.name == "onFailure" else "see [reports](reports.md)"
    defaults = {field.name: field.default for field in msgspec.structs.fields(model)} if model else {}
    value = defaults.get(option.field, msgspec.NODEFAULT)
    return "required" if value is msgspec.NODEFAULT else _yaml(value)


def _yaml(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.10g}"
    return "[]" if value == () else str(value)


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_loads(load_text: Callable[..., Configuration], example: str) -> None:
    """Every YAML example of the page loads without a finding."""
    assert load_text(example).findings == ()


def test_cron_table_example_loads(load_files: Callable[..., Configuration]) -> None:
    """The example of the page on cron tables loads without a finding."""
    page = (REFERENCE / "crontab.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```crontab\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    configuration = load_files({"crontab": example}, "crontab")
    assert configuration.findings == ()
    assert len(configuration.jobs) == 3


@pytest.mark.parametrize(("heading", "options", "model"), TABLES, ids=[table[0] for table in TABLES])
def test_table_is_the_schema(heading: str, options: Mapping[str, Option], model: type | None) -> None:
    """Each table names exactly the options that exist, with the defaults that hold."""
    rows = _rows(heading)
    structure = STRUCTURE if heading == "Top level" else ()
    assert set(rows) == {*options, *structure}
    for name, option in options.items():
        assert rows[name].strip("` ") == _written(option, model).strip(), name


def test_ignored_options_are_listed() -> None:
    """The list of what is not acted on is complete."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", _section("Accepted, but not acted on yet"), re.MULTILINE)
    listed = {where: set(re.findall(r"`(\w+)`", names)) for where, names in rows}
    assert listed["job, `defaults`"] == JOB.ignored == DEFAULTS.ignored
    assert listed["top level"] == TOP.ignored
    assert listed["`report`"] == report_schema.REPORT.ignored
    assert listed["`web`"] == WEB.ignored
    assert listed["`state`"] == STATE.ignored


def test_refused_options_are_named() -> None:
    """The options that are refused for safety are named on the page."""
    assert all(f"`{key}`" in _section("`web`") for key in WEB.refused)

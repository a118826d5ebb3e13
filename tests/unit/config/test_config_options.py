"""What good values become, which defaults hold, and how `defaults` and includes merge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sexton.model.job import (
    ConcurrencyPolicy,
    ConcurrencyScope,
    DayRule,
    FailsWhen,
    JobSpec,
    OnDaemonLoss,
    Priority,
    ScheduleFields,
)
from sexton.model.settings import (
    Configuration,
    OnStoreUnavailable,
    Settings,
    Severity,
    StateSettings,
    Topology,
    WebSettings,
)
from sexton.model.sla import Sla

LoadJob = Callable[..., JobSpec]
Load = Callable[..., Configuration]


def test_every_default_is_that_of_the_model(load_job: LoadJob) -> None:
    """A job that sets only what is required is the model's own job."""
    job = load_job()
    assert job == JobSpec(name="a", command="x", schedule="@daily", place=job.place)
    assert (job.place.line, job.place.column) == (2, 5)


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("shell: /bin/bash -e", "shell", "/bin/bash -e"),
        ("enabled: false", "enabled", False),
        ("utc: 'False'", "utc", False),
        ("timezone: Asia/Tokyo", "timezone", "Asia/Tokyo"),
        ("timezone: null", "timezone", None),
        ("dayRule: and", "day_rule", DayRule.AND),
        ("workingDirectory: ~/x", "working_directory", "/home/sexton/x"),
        ("workingDirectory: ~", "working_directory", "/home/sexton"),
        ("workingDirectory: /a/../b", "working_directory", "/b"),
        ("workingDirectory:", "working_directory", None),
        ("user: www-data", "user", "www-data"),
        ("user: 33", "user", 33),
        ("group: '0'", "group", 0),
        ("priority: idle", "priority", Priority.IDLE),
        ("captureStdout: true", "capture_stdout", True),
        ("captureStderr: FALSE", "capture_stderr", False),
        ("mirrorOutput: false", "mirror_output", False),
        ("saveLimit: 0", "save_limit", 0),
        ("maxLineLength: '80'", "max_line_length", 80),
        ("streamPrefix: ''", "stream_prefix", ""),
        ("streamPrefix: '{stream_name}{{> '", "stream_prefix", "{stream_name}{{> "),
        ("concurrencyPolicy: Replace", "concurrency_policy", ConcurrencyPolicy.REPLACE),
        ("concurrencyScope: node", "concurrency_scope", ConcurrencyScope.NODE),
        ("executionTimeout: 1.5", "execution_timeout", 1.5),
        ("executionTimeout: '5'", "execution_timeout", 5.0),
        ("executionTimeout: null", "execution_timeout", None),
        ("startingDeadlineSeconds:", "starting_deadline", None),
        ("pool:", "pool", None),
        ("sla: {maxRuntimeSeconds: , lateAfterSeconds: 5}", "sla", Sla(late_after=5.0)),
        ("killTimeout: 0", "kill_timeout", 0.0),
        ("killTimeout: 1e2", "kill_timeout", 100.0),
        ("onDaemonLoss: kill", "on_daemon_loss", OnDaemonLoss.KILL),
        ("failsWhen: {always: true}", "fails_when", FailsWhen(always=True)),
        ("failsWhen: null", "fails_when", FailsWhen()),
        ("environment: [{key: A, value: NO}, {key: B, value: }]", "environment", (("A", "NO"), ("B", ""))),
        ("environment: []", "environment", ()),
        ("environment: [{key: T, value: 12:30}]", "environment", (("T", "12:30"),)),
        ("environment: [{key: T, value: $HOME $$x}]", "environment", (("T", "$HOME $x"),)),
    ],
)
def test_value_of_an_option(load_job: LoadJob, line: str, field: str, value: Any) -> None:
    """Each option reads what the reference accepts for it; text is what stands there."""
    assert getattr(load_job(line), field) == value


@pytest.mark.parametrize(
    ("command", "read"),
    [
        ("[NO, on, 0777, 12:30, '', null, '5']", ("NO", "on", "0777", "12:30", "", "null", "5")),
        ("date +%s", "date +%s"),
        ("echo ${SET} $$", "echo ${SET} $$"),
        ("|\n      one\n      two", "one\ntwo\n"),
    ],
)
def test_command_is_taken_as_it_stands(load_text: Load, command: str, read: Any) -> None:
    """Commands keep their words, percent signs and dollar signs, and lists stay lists."""
    (job,) = load_text(f"jobs:\n  - name: a\n    schedule: x\n    command: {command}\n").jobs
    assert job.command == read


def test_schedule_map(load_text: Load) -> None:
    """Missing fields of a schedule map are `*`, the second is 0, numbers need no quotes."""
    (job,) = load_text("jobs:\n  - {name: a, command: x, schedule: {minute: 5, dayOfWeek: mon}}\n").jobs
    assert job.schedule == ScheduleFields(minute="5", day_of_week="mon")


def test_schedule_map_with_merge(load_text: Load) -> None:
    """A schedule map may take fields from another one."""
    text = (
        "jobs:\n  - {name: a, command: x, schedule: &s {minute: 5, hour: 1}}\n"
        "  - {name: b, command: x, schedule: {<<: *s, hour: 2}}\n"
    )
    configuration = load_text(text)
    assert configuration.findings == ()
    assert configuration.jobs[1].schedule == ScheduleFields(minute="5", hour="2")


def test_the_schedule_room_is_asked_with_the_whole_job(tmp_path: Path) -> None:
    """What the injected check says becomes a finding at the schedule."""
    from sexton.config.load import load

    (tmp_path / "c.yml").write_text("jobs:\n  - {name: a, command: x, utc: false, schedule: q}\n")
    asked: list[JobSpec] = []

    def check(spec: JobSpec) -> list[tuple[Severity, str, str | None]]:
        asked.append(spec)
        return [(Severity.WARNING, "never fires", "look again")]

    (finding,) = load(str(tmp_path / "c.yml"), environ={}, check_schedule=check).findings
    assert (asked[0].schedule, asked[0].utc) == ("q", False)
    assert str(finding).endswith("c.yml:2:49: warning: never fires (look again)")


def test_defaults_lie_below_the_job(load_job: LoadJob) -> None:
    """Values replace, failsWhen and environment merge by key, null on a map keeps the map."""
    top = (
        "defaults:\n  killTimeout: 1\n  utc: false\n  executionTimeout: 9\n"
        "  failsWhen: {producesStderr: false}\n"
        "  environment: [{key: A, value: 1}, {key: B, value: 2}]\n"
    )
    job = load_job(
        "killTimeout: 2\nexecutionTimeout: null\nfailsWhen: {always: true}\n"
        "environment: [{key: B, value: 3}, {key: C, value: 4}]",
        top=top,
    )
    assert (job.kill_timeout, job.utc, job.execution_timeout) == (2.0, False, None)
    assert job.fails_when == FailsWhen(produces_stderr=False, always=True)
    assert job.environment == (("A", "1"), ("B", "3"), ("C", "4"))
    assert load_job("failsWhen:", top=top).fails_when == FailsWhen(produces_stderr=False)


def test_merge_keys_and_anchors(load_text: Load) -> None:
    """`<<` brings in a map, and what stands beside it wins."""
    text = (
        "jobs:\n  - &base {name: a, command: x, schedule: y, utc: false, retries: 1}\n"
        "  - <<: *base\n    name: b\n  - <<: [{name: c, command: z}, *base]\n"
    )
    jobs = load_text(text).jobs
    assert [(job.name, job.command, job.utc) for job in jobs] == [
        ("a", "x", False), ("b", "x", False), ("c", "z", False),
    ]  # fmt: skip
    assert jobs[1].ignored_options == ("retries",)


def test_env_file(load_files: Load) -> None:
    """Variables of a file beside the configuration lie below those of `environment`."""
    configuration = load_files(
        {
            "sub/c.yml": "defaults: {env_file: ../v.env, environment: [{key: B, value: own}]}\njobs:\n"
            "  - {name: a, command: x, schedule: y}\n"
            "  - {name: b, command: x, schedule: y, env_file: null}\n",
            "v.env": "\ufeff# no\r\nA = 1 2 \r\nB=3\r\n\r\nC='q'=\r\n",
        },
        "sub/c.yml",
    )
    assert configuration.findings == ()
    a, b = configuration.jobs
    assert a.environment == (("A", "1 2"), ("B", "own"), ("C", "'q'="))
    assert b.environment == (("B", "own"),)
    assert configuration.sources[-1].endswith("/v.env")


def test_bad_lines_of_an_env_file(load_files: Load) -> None:
    """Each line that is no assignment is an error in that file, also when two jobs use it."""
    job = "  - {name: %s, command: x, schedule: y, env_file: v.env}\n"
    files = {"c.yml": f"jobs:\n{job % 'a'}{job % 'b'}", "v.env": "A=1\nnope\nexport B=2\n"}
    found = load_files(files, "c.yml").errors
    assert [str(error).rpartition("/")[2] for error in found] == [
        "v.env:2:1: error: expected KEY=VALUE, got 'nope'",
        "v.env:3:1: error: expected KEY=VALUE, got 'export B=2' (leave out `export`)",
    ]


def test_sections(load_text: Load, tmp_path: Path) -> None:
    """All settings of web, state, logging and the top level arrive."""
    settings = load_text(
        "web:\n  listen: ['http://127.1.2.3:80', 'http://[::1]:8080/', unix:///run/s.sock]\n"
        "  allowedOrigins: ['http://x']\n  headers: {X-A: '1', X-B: ''}\n  socketMode: '0660'\n"
        "state:\n  path: records\n  topology: shared\n  deploymentId: d\n  maxRunsPerJob: -1\n"
        "  onStoreUnavailable: fail-closed\n  slotTtlSeconds: 5\n  gcGraceSeconds: 0\n"
        "  maxOpsPerSecond: 2.5\n  maxOutputBytes: 0\n"
        "logging: {version: 1, incremental: true, root: {level: INFO, handlers: [a, null, 1.5, '${NO}']}}\n"
        "shutdownTimeout: 0\n"
    ).settings
    assert settings.web == WebSettings(
        listen=("http://127.1.2.3:80", "http://[::1]:8080/", "unix:///run/s.sock"),
        allowed_origins=("http://x",),
        headers=(("X-A", "1"), ("X-B", "")),
        socket_mode=0o660,
    )
    assert settings.state == StateSettings(
        path=str(tmp_path / "records"),
        topology=Topology.SHARED,
        deployment_id="d",
        max_runs_per_job=-1,
        on_store_unavailable=OnStoreUnavailable.FAIL_CLOSED,
        slot_ttl_seconds=5.0,
        gc_grace_seconds=0.0,
        max_ops_per_second=2.5,
        max_output_bytes=0,
    )
    assert settings.logging == {
        "version": 1,
        "incremental": True,
        "root": {"level": "INFO", "handlers": ["a", None, 1.5, "${NO}"]},
    }
    assert settings.shutdown_timeout == 0.0


def test_settings_of_nothing(load_text: Load) -> None:
    """Without sections the settings are the model's, and sections have the model's defaults."""
    assert load_text("").settings == Settings()
    state = load_text("state: {path: /s}\n").settings.state
    assert state == StateSettings(path="/s")

"""Bad documents: each gives its finding, at its place, with the words that help."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sexton.model.settings import Configuration

JOB = "jobs:\n  - name: a\n    command: x\n    schedule: '@daily'\n"
"""Lines 1 to 4; what is appended stands in line 5, from column 5."""


def job(line: str) -> str:
    return JOB + "".join(f"    {part}\n" for part in line.splitlines())


CASES: list[tuple[str, str | bytes, str, tuple[str, ...]]] = [
    ("a key one level too high", "captureStdout: true\n", "1:1",
     ("captureStdout", "in a job or in `defaults`")),
    ("job for jobs", "job:\n  - name: a\n", "1:1", ("'job'", "jobs:")),
    ("a typo at the top", "defalts: {}\n", "1:1", ("did you mean `defaults`?",)),
    ("a typo in a job", job("excutionTimeout: 3"), "5:5", ("did you mean `executionTimeout`?",)),
    ("another spelling", job("kill_timeout: 3"), "5:5", ("did you mean `killTimeout`?",)),
    ("an unknown word", job("zzzzqqqq: 3"), "5:5", ("unknown option 'zzzzqqqq' in a job",)),
    ("a key of failsWhen in a job", job("producesStdout: true"), "5:5", ("belongs in `failsWhen`",)),
    ("a section in a job", job("state: {}"), "5:5", ("belongs at the top level",)),
    ("web's key at the top", "listen: []\n", "1:1", ("belongs in `web`",)),
    ("retry in a job", job("retry: {}"), "5:5", ("in `onFailure`",)),
    ("a name in defaults", "defaults:\n  name: x\n", "2:3", ("belongs in each job",)),
    ("a typo in failsWhen", job("failsWhen: {allways: true}"), "5:17", ("did you mean `always`?",)),
    ("a repeated key", job("user: a\nuser: b"), "6:5", ("second time", "line 5")),
    ("a repeated key in an ignored option", job("clusterPolicy: {a: 1, a: 2}"), "5:27", ("second time",)),
    ("a list as key", job("? [a]\n: b"), "5:7", ("expected a name as key, got a list",)),
    ("an empty timeout", job("executionTimeout:"), "5:22", ("executionTimeout", "empty", "`null`")),
    ("NaN", job("executionTimeout: nan"), "5:23", ("a number of seconds, got 'nan'",)),
    ("YAML's NaN", job("killTimeout: .nan"), "5:18", ("a number of seconds",)),
    ("infinity", job("executionTimeout: .inf"), "5:23", ("a number of seconds",)),
    ("a number beyond floats", job("killTimeout: 1e309"), "5:18", ("a number of seconds, got '1e309'",)),
    ("more than a lifetime", job("killTimeout: 1e10"), "5:18", ("at most 1e+09",)),
    ("a word for a number", job("executionTimeout: soon"), "5:23", ("got 'soon'",)),
    ("a list for a number", job("executionTimeout: [5]"), "5:23", ("got a list",)),
    ("a timeout of nothing", job("executionTimeout: 0"), "5:23", ("above 0, got 0",)),
    ("a negative killTimeout", job("killTimeout: -1"), "5:18", ("at least 0, got -1",)),
    ("null where there is no none", job("killTimeout: null"), "5:18", ("a number of seconds",)),
    ("a fraction of a line", job("saveLimit: 1.5"), "5:16", ("a whole number of lines",)),
    ("lines of no bytes", job("maxLineLength: 0"), "5:20", ("at least 1",)),
    ("yes for true", job("captureStdout: yes"), "5:20", ("true or false, got 'yes'", "`true`")),
    ("0 for false", job("enabled: 0"), "5:14", ("`false`",)),
    ("a policy in other letters", job("concurrencyPolicy: forbid"), "5:24", ("did you mean `Forbid`?",)),
    ("an unknown priority", job("priority: urgent"), "5:15", ("one of idle, below-normal",)),
    ("an unknown zone", job("timezone: Europe/Berln"), "5:15", ("did you mean `Europe/Berlin`?",)),
    ("a path as zone", job("timezone: ../../etc/passwd"), "5:15", ("unknown time zone",)),
    ("an environment map", job("environment: {A: b}"), "5:18", ("expected a list, got a map", "key: NAME")),
    ("a variable without value", job("environment:\n  - key: A"), "6:9", ("without `value`",)),
    ("a variable called =", job("environment:\n  - {key: A=B, value: c}"), "6:9", ("'A=B'",)),
    ("an unset variable", job("user: ${NOT_SET}"), "5:11", ("user", "NOT_SET is not set", ":-")),
    ("half a reference", job("user: '${NOT_SET'"), "5:11", ("not a variable reference", "$$")),
    ("bytes for text", job("user: ${RAW}"), "5:11", ("RAW is not valid UTF-8",)),
    ("a missing env_file", job("env_file: none.env"), "5:15", ("none.env does not exist",)),
    ("an unknown placeholder", job("streamPrefix: '{job} '"), "5:19", ("{job}", "{job_name}")),
    ("an open brace", job("streamPrefix: '{'"), "5:19", ("streamPrefix",)),
    ("an empty shell", job("shell: ''"), "5:12", ("`shell` is empty",)),
    ("a user that cannot be", job("user: -5"), "5:11", ("no id -5",)),
    ("Allow over nodes", job("concurrencyScope: cluster") + "state: {path: s}\n", "5:23",
     ("Job a:", "(the default)")),
    ("kept without state", job("onDaemonLoss: keep"), "2:5", ("requires a `state` section", "job(s): a")),
    ("a misspelt loss", job("onDaemonLoss: keeps"), "5:19", ("kill, keep", "did you mean `keep`")),
    ("a job that is a text", "jobs:\n  - backup\n", "2:5", ("expected a job", "'backup'")),
    ("jobs as a map", "jobs: {}\n", "1:7", ("expected a list of jobs, got a map",)),
    ("jobs as nothing", "jobs:\n", "1:6", ("expected a list of jobs, got nothing",)),
    ("a list at the top", "- name: a\n", "1:1", ("got a list", "below `jobs:`")),
    ("a text at the top", "hello\n", "1:1", ("got 'hello'",)),
    ("a cron table by another name", "# mine\nMAILTO=me\n\n*/5 * * * * date\n", "4:1", ("cron table", ".crontab")),
    ("a nickname of cron", "@daily date: x\n", "1:1", ("cron table", ".crontab")),
    ("a job without anything", "jobs:\n  - name: a\n", "2:5", ("job 'a' has no `command` and `schedule`",)),
    ("an empty command", "jobs:\n  - {name: a, schedule: x, command: ''}\n", "2:37", ("`command` is empty",)),
    ("a blank command", "jobs:\n  - {name: a, schedule: x, command: ' '}\n", "2:37", ("`command` is empty",)),
    ("no arguments", "jobs:\n  - {name: a, schedule: x, command: []}\n", "2:37", ("`command` is empty",)),
    ("a map as argument", "jobs:\n  - {name: a, schedule: x, command: [{a: b}]}\n", "2:38",
     ("a text as argument",)),
    ("NUL in a command", 'jobs:\n  - {name: a, schedule: x, command: "a\\0b"}\n', "2:37",
     ("control character",)),
    ("NUL in an argument", 'jobs:\n  - {name: a, schedule: x, command: ["\\0"]}\n', "2:38",
     ("control character",)),
    ("a line end in a name", 'jobs:\n  - {name: "a\\nb", schedule: x, command: c}\n', "2:12", ("control",)),
    ("a name no address can hold", "jobs:\n  - {name: .., schedule: x, command: c}\n", "2:12", ("address",)),
    ("a long name", f"jobs:\n  - {{name: {'a' * 256}, schedule: x, command: c}}\n", "2:12",
     ("longer than 255",)),
    ("stars without quotes", "jobs:\n  - name: a\n    command: x\n    schedule: * * * * *\n", "4:15",
     ("needs quotes", '"* * * * *"')),
    ("a nickname without quotes", "jobs:\n  - name: a\n    command: x\n    schedule: @daily\n", "4:15",
     ("needs quotes", '"@daily"')),
    ("a blank cron field", "jobs:\n  - name: a\n    command: x\n    schedule: {minute: ''}\n", "4:24",
     ("`minute` is empty",)),
    ("two cron fields in one", "jobs:\n  - name: a\n    command: x\n    schedule: {hour: '1 2'}\n", "4:22",
     ("one cron field",)),
    ("an empty schedule", "jobs:\n  - name: a\n    command: x\n    schedule: {}\n", "4:15", ("empty map",)),
    ("all interfaces", "web:\n  listen: [http://0.0.0.0:80]\n", "2:12", ("0.0.0.0", "http://127.0.0.1:80")),
    ("https", "web:\n  listen: [https://localhost:1]\n", "2:12", ("https",)),
    ("no port", "web:\n  listen: [http://localhost]\n", "2:12", ("needs a port",)),
    ("almost loopback", "web:\n  listen: [http://127.0.0.1.example.org:80]\n", "2:12", ("other machines",)),
    ("a relative socket", "web:\n  listen: [unix://a.sock]\n", "2:12", ("unix:///absolute/path",)),
    ("listen as text", "web:\n  listen: http://localhost:1\n", "2:11", ("expected a list of addresses",)),
    ("web without listen", "web:\n  headers: {}\n", "2:3", ("no `listen`",)),
    ("a token", "web:\n  listen: ['http://[::1]:1']\n  authToken: {value: x}\n", "3:3",
     ("authToken", "honoured")),
    ("a bad mode", "web:\n  listen: ['http://[::1]:1']\n  socketMode: '0999'\n", "3:15", ("octal",)),
    ("a header with a space", "web:\n  listen: ['http://[::1]:1']\n  headers: {a b: c}\n", "3:12",
     ("'a b'",)),
    ("state without path", "state: {}\n", "1:8", ("no `path`",)),
    ("a short lease", "state:\n  path: s\n  slotTtlSeconds: 4\n", "3:19", ("at least 5",)),
    ("a short grace", "state:\n  path: s\n  gcGraceSeconds: 60\n", "3:19", ("86400",)),
    ("a folder as id", "state:\n  path: s\n  deploymentId: a/b\n", "3:17", ("name of a folder",)),
    ("logging without version", "logging: {a: 1}\n", "1:10", ("version",)),
    ("another version of logging", "logging: {version: 2}\n", "1:20", ("must be 1",)),
    ("a negative shutdownTimeout", "shutdownTimeout: -1\n", "1:18", ("at least 0",)),
    ("a tag", job("user: !secret x"), "5:11", ("tag '!secret'",)),
    ("an alias in itself", "jobs: &a [*a]\n", "1:7", ("alias of itself",)),
    ("an unknown alias", job("user: *nobody"), "5:11", ("alias without an anchor", "quotes")),
    ("merging a text", job("<<: x"), "5:9", ("`<<` expects a map",)),
    ("a tab", "jobs:\n\t- name: a\n", "2:1", ("tab", "spaces")),
    ("two documents", "jobs: []\n---\njobs: []\n", "3:1", ("second YAML document", "---")),
    ("a second document that is none", "jobs: []\n---\n]\n", "2:1", ("second YAML document",)),
    ("an open bracket", "jobs: [a\n", "2:1", ("never closed",)),
    ("a colon in a value", "jobs:\n  - name: a: b\n", "2:12", ("unexpected `:`", "quotes")),
    ("UTF-16", "jobs: []\n".encode("utf-16"), "1:1", ("UTF-16", "UTF-8")),
    ("not UTF-8", b"# ok\njobs: \xff\n", "2:7", ("0xff", "UTF-8")),
    ("a NUL in the file", b"jobs: []\n\0", "2:1", ("NUL",)),
    ("an escape character in the file", b"# \x1b[0m\n", "1:3", ("U+001B",)),
    ("deep nesting", "jobs: " + "[" * 5000, "1:1006", ("nested too deeply",)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "place", "parts"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_bad_document(
    load_files: Callable[..., Configuration],
    text: str | bytes, place: str, parts: tuple[str, ...],
) -> None:
    """A mistake gives exactly one error, where it stands, and its words say what is wrong and what to do."""
    errors = load_files({"c.yml": text}, "c.yml").errors
    assert len(errors) == 1, [str(error) for error in errors]
    said = str(errors[0])
    assert f"c.yml:{place}: " in said
    for part in parts:
        assert part in said


def test_all_errors_at_once(load_files: Callable[..., Configuration]) -> None:
    """Errors of all files, jobs and keys are reported together, also behind stars without quotes."""
    found = load_files(
        {
            "a.yml": "nope: 1\njobs:\n  - name: a\n    command: x\n    schedule: * * * * *\n    utc: maybe\n",
            "b.yml": job("killTimeout: -1\nuser: ''").replace("name: a", "name: b"),
            "c.crontab": "* * *\n",
        }
    ).errors
    assert [str(error.place).rpartition("/")[2] for error in found] == [
        "a.yml:1:1", "a.yml:5:15", "a.yml:6:10", "b.yml:5:18", "b.yml:6:11", "c.crontab:1:1",
    ]  # fmt: skip


def test_an_error_leaves_the_other_jobs(load_text: Callable[..., Configuration]) -> None:
    """A job with an error does not hide the jobs beside it."""
    configuration = load_text("jobs:\n  - nonsense\n" + JOB.removeprefix("jobs:\n"))
    assert [spec.name for spec in configuration.jobs] == ["a"]


def test_aliases_cannot_multiply_without_bound(load_text: Callable[..., Configuration]) -> None:
    """Nine levels of nine aliases are refused at once instead of being expanded."""
    lines = ["pools:", "  a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    (error,) = load_text("\n".join(lines)).errors
    assert "repeat more than" in error.message


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "\ufeff# mark\n", "jobs: []\r\n", "{}"])
def test_a_file_without_jobs_is_valid(load_text: Callable[..., Configuration], text: str) -> None:
    """An empty file, comments only, a byte order mark and other line ends are fine."""
    assert load_text(text).findings == ()


def test_ignored_options_are_named_once_for_each_file(load_text: Callable[..., Configuration]) -> None:
    """Options that are not acted on warn once with the number of jobs, and each job carries them."""
    configuration = load_text(
        "defaults: {onSuccess: {report: {push: {}}}}\ncluster: {}\n"
        + job("clusterPolicy: null\nretries: 1")
        + JOB.removeprefix("jobs:\n").replace("name: a", "name: b")
        + "    retries: 2\n"
    )
    assert configuration.errors == []
    said = [finding.message for finding in configuration.warnings]
    assert len(said) == 4
    assert any("`retries` in a job (2 jobs)" in message for message in said)
    assert any("`push` in `report`" in message for message in said)
    assert [spec.ignored_options for spec in configuration.jobs] == [
        ("clusterPolicy", "onSuccess.report.push", "retries"), ("onSuccess.report.push", "retries"),
    ]  # fmt: skip


def test_cluster_scope_needs_a_store(load_text: Callable[..., Configuration]) -> None:
    """One error names all jobs that reach over nodes without a store; a warning says which store nobody shares."""
    lines = "concurrencyScope: cluster\nconcurrencyPolicy: Forbid"
    text = job(lines) + job(lines).removeprefix("jobs:\n").replace("name: a", "name: b")
    configuration = load_text(text)
    (error,) = configuration.errors
    assert "`state`" in error.message
    assert error.message.endswith("a, b")
    with_store = load_text(text + "state: {path: s, topology: shared}\n")
    assert with_store.findings == ()
    alone = load_text(text + "state: {path: s, topology: single-node}\n")
    assert alone.errors == [] and "no other node can share it" in alone.warnings[0].message

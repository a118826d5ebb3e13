"""Reading `report` blocks, secrets and statsd."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sexton.model.report import MailReport, Reports, WebhookReport
from sexton.model.secret import Secret, SecretSource
from sexton.model.settings import Configuration

Load = Callable[..., Configuration]
MAIL = "mail: {from: a@b, to: c@d, smtpHost: h}"


def job(*lines: str) -> str:
    own = [f"    {line}" for line in lines]
    return "\n".join(["jobs:", "  - name: a", "    command: c", '    schedule: "@daily"', *own, ""])


def reports(load_text: Load, text: str) -> Reports:
    configuration = load_text(text)
    assert configuration.findings == ()
    found = configuration.jobs[-1].reports
    assert found is not None
    return found


def test_a_job_lies_over_the_defaults(load_text: Load) -> None:
    """Key by key, however deep; headers by name."""
    hook = "webhook: {url: {value: u}, headers: {A: '1', B: '2'}}"
    defaults = "defaults:\n  onFailure: {report: {" + MAIL + ", " + hook + "}}\n"
    found = reports(load_text, defaults + job(
        "onFailure: {report: {mail: {to: e@f}, webhook: {headers: {B: '3'}}}}")).on_failure
    assert found is not None
    assert found.mail == MailReport(sender="a@b", to="e@f", smtp_host="h")
    assert found.webhook == WebhookReport(url=SecretSource(value="u"), headers=(("A", "1"), ("B", "3")))


def test_null_switches_a_destination_off(load_text: Load) -> None:
    """For the parts that it needs; null for the whole map keeps it."""
    defaults = "defaults:\n  onSuccess: {report: {" + MAIL + "}}\n"
    assert reports(load_text, defaults + job("onSuccess: null")).on_success is not None
    assert load_text(defaults + job("onSuccess: {report: {mail: {to: null}}}")).jobs[0].reports is None


def test_nothing_behind_it_switches_a_mail_off(load_text: Load) -> None:
    """`to:` and `from:` with nothing behind them are null: so a job of yacron opts out of the mails of `defaults`."""
    defaults = "defaults:\n  onFailure: {report: {" + MAIL + "}}\n"
    configuration = load_text(defaults + job("onFailure:", "  report:", "    mail:", "      to:", "      from:"))
    assert configuration.findings == ()
    assert configuration.jobs[0].reports is None


def test_places_of_a_secret_with_nothing_behind_them(load_text: Load) -> None:
    """Only the place that is named counts."""
    configuration = load_text(job("secrets:", "  - name: A", "    value: x", "    fromFile:", "    fromEnvVar:"))
    assert configuration.findings == ()
    assert configuration.jobs[0].secrets == (Secret(name="A", source=SecretSource(value="x")),)


@pytest.mark.parametrize(("line", "place", "words"), [
    ("onFailure: {report: {mail: {to: x}}}", "2:5", ("`from` and `smtpHost`", "onFailure.report.mail")),
    ("onFailure: {report: {webhook: {method: PUT}}}", "2:5", ("`url`",)),
    ("onFailure: {report: {mail: {from: a, to: b, smtpHost: h, tls: true, starttls: true}}}", "2:5", ("both",)),
    ("onFailure: {reprot: {}}", "5:17", ("unknown option", "`report`")),
    ("onFailure: {report: {mail: {form: a}}}", "5:33", ("unknown option", "`from`")),
    ("onFailure: {report: mail}", "5:25", ("expected a map", "mail, webhook, shell, sentry")),
    ("onSuccess: {report: {mail: {body: '{{ name'}}}", "5:39", ("`body`", "line 1 of the template")),
    ("onSuccess: {report: {webhook: {url: {value: a, fromFile: b}}}}", "5:41", ("one place", "got 2")),
    ("onSuccess: {report: {webhook: {url: {}}}}", "5:41", ("one place", "got 0")),
    ("secrets: [{name: A}]", "5:15", ("one place", "`secrets: A`")),
    ("secrets: [{value: x}]", "5:15", ("without `name`",)),
    ("secrets: [{name: 'A=B', value: x}]", "5:15", ("cannot be the name",)),
    ("secrets: {A: x}", "5:14", ("expected a list",)),
    ("environment: [{key: A, value: x, fromFile: y}]", "5:19", ("more than one",)),
    ("statsd: {prefix: p}", "2:5", ("`host` and `port`",)),
])
def test_refused(load_text: Load, line: str, place: str, words: tuple[str, ...]) -> None:
    """One error, at its place, with a suggestion where there is one."""
    (error,) = load_text(job(line)).errors
    assert str(error.place).split(":", 1)[1] == place
    assert all(word in str(error) for word in words)


@pytest.mark.parametrize(("line", "words"), [
    ("onFailure: {report: {mail: {from: a, to: b}}}", ("no `smtpHost`",)),
    ("onFailure: {report: {mail: {from: a, to: b, smtpHost: h, body: '{{ fail_resaon }}'}}}",
     ("did you mean `fail_reason`",)),
    ("onLate: {report: {mail: {from: a, to: b, smtpHost: h}}}", ("`onLate` tells nothing", "`sla`")),
])
def test_warned_of(load_text: Load, line: str, words: tuple[str, ...]) -> None:
    """What is accepted and does not do what somebody may expect."""
    configuration = load_text(job(line))
    assert configuration.errors == []
    (warning,) = configuration.warnings
    assert all(word in str(warning) for word in words)


@pytest.mark.parametrize("line", [
    "secrets: [{name: A, value: '${hunter2'}]", "secrets: [{name: A, value: \"hunter2\\a\"}]",
    "onFailure: {report: {webhook: {url: \"hunter2\\a\"}}}", "secrets: [{name: A, value: [hunter2]}]",
])
def test_no_message_shows_a_secret(load_text: Load, line: str) -> None:
    """However wrong it is."""
    configuration = load_text(job(line))
    assert configuration.errors
    assert "hunter2" not in " ".join(map(str, configuration.findings))


def test_secrets_merge_by_name(load_files: Load) -> None:
    """A variable from a file is a secret; `secrets` win over it, a job over its defaults; paths count from the file."""
    configuration = load_files({"sub/c.yml": (
        "defaults: {secrets: [{name: A, value: one}, {name: B, fromEnvVar: V}],\n"
        "           environment: [{key: C, fromFile: ./c}, {key: D, value: d}]}\n"
        "jobs:\n  - {name: a, command: x, schedule: '@daily', secrets: [{name: A, fromFile: f}]}\n")}, "sub/c.yml")
    assert configuration.findings == ()
    (spec,) = configuration.jobs
    folder = spec.place.file.rpartition("/")[0]
    assert set(spec.secrets) == {
        Secret(name="A", source=SecretSource(from_file=f"{folder}/f")),
        Secret(name="B", source=SecretSource(from_env_var="V")),
        Secret(name="C", source=SecretSource(from_file=f"{folder}/c")),
    }
    assert spec.environment == (("D", "d"),)
    assert "one" not in repr(SecretSource(value="one"))

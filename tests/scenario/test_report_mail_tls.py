"""Mail over TLS, with STARTTLS and with a login, to a real SMTP server whose certificate the test makes."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rig import NEVER, Rig, until
from sinks import MailSink

pytestmark = [
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl, to make a certificate"),
    pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS"),  # it is TLS from the first byte
]

PASSWORD = "c0rrect-h0rse-battery"
WRONG = "wr0ng-h0rse-battery"
MODES = ["tls", "starttls"]
Sinks = Callable[..., MailSink]


def certificate(folder: Path, name: str) -> Path:
    """Signed by itself, for this name (`IP:...` or `DNS:...`); certificate and key in one file."""
    made = folder / "server.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=sink", "-addext", f"subjectAltName={name}", "-keyout", folder / "key.pem", "-out", made],
        check=True, capture_output=True, timeout=60,
    )
    made.write_text(made.read_text() + (folder / "key.pem").read_text())
    return made


@pytest.fixture
def secured(rig: Rig, tmp_path: Path) -> Iterator[Sinks]:
    """Makes a mail server with TLS in one of the modes. The daemon trusts its certificate if `trusted`."""
    sinks: list[MailSink] = []

    def make(mode: str, *, trusted: bool = True, name: str = "IP:127.0.0.1", **options: Any) -> MailSink:
        pem = certificate(tmp_path, name)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pem)
        if trusted:
            rig.environment["SSL_CERT_FILE"] = str(pem)
        sinks.append(MailSink(context=context, implicit_tls=mode == "tls", **options))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def report(rig: Rig, sink: MailSink, mode: str, *, password: str | None = None, **more: Any) -> None:
    """A run whose failure is mailed to the sink."""
    mail = {"from": "sexton@example.org", "to": "ops@example.org", "smtpHost": "127.0.0.1", "smtpPort": sink.port,
            mode: True, **more}
    if password is not None:
        (rig.folder / "password").write_text(password + "\n")
        mail |= {"username": "sexton", "password": {"fromFile": str(rig.folder / "password")}}
    rig.start([{"name": "j", "command": "exit 3", "schedule": NEVER, "onFailure": {"report": {"mail": mail}}}])
    rig.recorded(rig.fire())


def health(rig: Rig) -> Any:
    return rig.http("GET", "/health")[1]["reports"]


def failed(rig: Rig, *words: str) -> None:
    """It is told once, with these words and without the password, and counted; it was not tried again."""
    rig.logged("could not be reported", *words, seconds=15.0)
    shown = health(rig)
    assert shown["channels"]["mail"] == {"delivered": 0, "failed": 1, "dropped": 0, "retried": 0}
    assert all(word in shown["last_failure"]["message"] for word in words)
    assert rig.log().count("could not be reported") == 1
    told = rig.log() + json.dumps(rig.http("GET", "/health")[1]) + json.dumps(rig.http("GET", "/jobs")[1])
    assert PASSWORD not in told and WRONG not in told and "Traceback" not in told


@pytest.mark.parametrize("mode", MODES)
def test_a_mail_goes_over_tls_with_a_login(rig: Rig, secured: Sinks, mode: str) -> None:
    """TLS from the first byte, and STARTTLS with a server that asks for it: the certificate is verified, name and
    password are given, the message arrives whole."""
    sink = secured(mode, login=("sexton", PASSWORD))
    report(rig, sink, mode, password=PASSWORD)
    until(lambda: sink.messages, what="the mail")
    assert sink.messages[0]["Subject"] == "Cron job 'j' failed" and sink.logins == [("sexton", PASSWORD)]
    until(lambda: health(rig)["channels"]["mail"]["delivered"] == 1)
    assert PASSWORD not in rig.log()


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_password_is_told_and_not_tried_again(rig: Rig, secured: Sinks, mode: str) -> None:
    """A server that has refused it once would refuse it again, and may lock the account."""
    sink = secured(mode, login=("sexton", PASSWORD))
    report(rig, sink, mode, password=WRONG)
    failed(rig, "does not accept user name and password (535)")
    assert set(sink.logins) == {("sexton", WRONG)} and not sink.messages


@pytest.mark.parametrize("mode", MODES)
def test_a_certificate_that_nobody_vouches_for(rig: Rig, secured: Sinks, mode: str) -> None:
    """No mail, no password: it is said what is wrong with the certificate."""
    sink = secured(mode, trusted=False, login=("sexton", PASSWORD))
    report(rig, sink, mode, password=PASSWORD)
    failed(rig, "certificate is not accepted", "self-signed")
    assert not sink.logins and not sink.messages


@pytest.mark.parametrize("mode", MODES)
def test_a_certificate_of_another_name(rig: Rig, secured: Sinks, mode: str) -> None:
    """A good certificate of somebody else is none."""
    sink = secured(mode, name="DNS:mail.example.org", login=("sexton", PASSWORD))
    report(rig, sink, mode, password=PASSWORD)
    failed(rig, "certificate is not accepted", "127.0.0.1")
    assert not sink.logins and not sink.messages


@pytest.mark.parametrize("mode", MODES)
def test_whoever_wants_it_may_do_without_verification(rig: Rig, secured: Sinks, mode: str) -> None:
    """validate_certs: false takes any certificate."""
    sink = secured(mode, trusted=False, name="DNS:mail.example.org")
    report(rig, sink, mode, validate_certs=False)
    until(lambda: sink.messages, what="the mail")


def test_no_password_in_the_clear(rig: Rig, mails: MailSink) -> None:
    """A server that does not offer STARTTLS, or from whose offer somebody has taken it, gets neither login nor mail."""
    report(rig, mails, "starttls", password=PASSWORD)
    failed(rig, "STARTTLS")
    assert not mails.logins and not mails.messages


def test_plain_text_where_tls_is_expected(rig: Rig, mails: MailSink) -> None:
    """A server without TLS is tried within the bound of a report, and then told of."""
    report(rig, mails, "tls", password=PASSWORD)
    rig.logged("could not be reported", "SSL", seconds=20.0)
    assert not mails.messages and PASSWORD not in rig.log() and health(rig)["channels"]["mail"]["failed"] == 1

"""A report as one mail by SMTP, within the bound of its attempt however slow the server is."""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from email.utils import formatdate, getaddresses, make_msgid
from typing import Any

from sexton.model.report import MailReport
from sexton.outcome.reporters.attempt import Attempt, NotDelivered, OutOfTime
from sexton.outcome.reporters.network import break_off, connect, tls_context
from sexton.outcome.reporters.secrets import look_up
from sexton.outcome.reporters.templates import Page

SECONDS = 60.0
"""For the whole delivery, over all attempts."""
NOT_IN_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters that mail cannot carry, and terminals should not see."""


def message_of(settings: MailReport, page: Page) -> EmailMessage:
    """The message, conforming whatever the output holds. Raises NotDelivered for addresses that are none."""
    message = EmailMessage(policy=POLICY)
    message["From"] = _addresses(settings.sender, "from")
    message["To"] = _addresses(settings.to, "to")
    message["Subject"] = NOT_IN_TEXT.sub("", page.subject(settings.subject))
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain=_host_name())
    message["Auto-Submitted"] = "auto-generated"
    message["X-Sexton-Run"] = page.facts.record.launch.id
    text = page.body(settings.body, html=settings.html)
    text = NOT_IN_TEXT.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = text.encode("utf-8", "replace").decode()
    message.set_content(text, subtype="html" if settings.html else "plain", charset="utf-8", cte="quoted-printable")
    return message


def deliver(settings: MailReport, page: Page, attempt: Attempt) -> None:
    """Raises NotDelivered, OutOfTime, TemplateTrouble."""
    message = message_of(settings, page)
    password = look_up(settings.password, "password") if settings.password is not None else ""
    try:
        _send(settings, message, password, attempt)
    except TimeoutError:
        raise OutOfTime(attempt.seconds) from None
    except smtplib.SMTPRecipientsRefused as refused:
        codes = ", ".join(f"{address}: {code} {_text(said)}" for address, (code, said) in refused.recipients.items())
        again = all(400 <= code < 500 for code, _ in refused.recipients.values())
        raise NotDelivered(f"no recipient is accepted ({codes})", again=again) from None
    except smtplib.SMTPAuthenticationError as refused:
        raise NotDelivered(f"the server does not accept user name and password ({refused.smtp_code})") from None
    except smtplib.SMTPResponseException as refused:
        raise NotDelivered(f"the server answers {refused.smtp_code} {_text(refused.smtp_error)}",
                           again=400 <= refused.smtp_code < 500) from None
    except smtplib.SMTPNotSupportedError as refused:
        raise NotDelivered(f"the server does not support it: {refused}") from None
    except ssl.SSLCertVerificationError as refused:
        raise NotDelivered(f"the server's certificate is not accepted: {refused.verify_message}") from None
    except (smtplib.SMTPException, OSError, UnicodeError) as failure:
        attempt.remaining()  # a connection that we broke off looks like one that was lost
        raise NotDelivered(f"{type(failure).__name__}: {failure}", again=True) from None


def _send(settings: MailReport, message: EmailMessage, password: str, attempt: Attempt) -> None:
    with _Client(settings, attempt) as client:
        if settings.starttls:
            client.starttls(context=tls_context(validate=settings.validate_certs))
            client.ehlo()
        if settings.username:
            client.login(settings.username, password)
        refused = client.send_message(message)
        attempt.on_abort(lambda: None)  # it is taken: a slow farewell does not undo that
        if refused:
            names = ", ".join(f"{address}: {code} {_text(said)}" for address, (code, said) in refused.items())
            raise NotDelivered(f"delivered, but not to all: {names}")


class _Client(smtplib.SMTP):
    """One connection whose socket can be broken off."""

    def __init__(self, settings: MailReport, attempt: Attempt) -> None:
        self._attempt = attempt
        self._context = tls_context(validate=settings.validate_certs) if settings.tls else None
        # EHLO with a name of our own: to look for a full one, as smtplib does, is a question to the network
        super().__init__(local_hostname=_host_name())
        self.timeout = attempt.remaining()
        self._host = settings.smtp_host  # the name that certificates are checked against
        code, said = self.connect(settings.smtp_host, settings.smtp_port)
        if code != 220:
            self.close()
            raise smtplib.SMTPConnectError(code, said)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        made = connect(host, port, self._attempt)
        if self._context is not None:
            try:
                made = self._context.wrap_socket(made, server_hostname=host)
            except BaseException:
                made.close()
                raise
        made.settimeout(self._attempt.remaining())
        self._attempt.on_abort(lambda: break_off(made))
        return made

    def starttls(self, *arguments: Any, **more: Any) -> tuple[int, bytes]:
        answer = super().starttls(*arguments, **more)
        secured = self.sock
        if secured is not None:
            self._attempt.on_abort(lambda: break_off(secured))
        return answer

    def __exit__(self, *arguments: Any) -> None:
        """A farewell, if the server takes one, and the end of the connection in any case."""
        try:
            super().__exit__(*arguments)
        except (OSError, smtplib.SMTPException):
            pass  # it has the message, or has said why not
        finally:
            self.close()


def _addresses(text: str, field: str) -> tuple[Address, ...]:
    found = []
    for name, address in getaddresses([text]):
        local, at, domain = address.rpartition("@")
        try:
            found.append(Address(name, local, domain) if at else Address(name, address))
        except (ValueError, IndexError):
            raise NotDelivered(f"`{field}` is not an address: {address}") from None
    if not found or not any(address.username for address in found):
        raise NotDelivered(f"`{field}` names no address")
    return tuple(found)


def _host_name() -> str:
    name = socket.gethostname()
    return name if name.isascii() and name else "localhost"


def _text(said: bytes | str) -> str:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return " ".join(text.split())[:200]


def destination_of(settings: MailReport) -> str:
    return f"mail {settings.smtp_host}:{settings.smtp_port}"

"""Connections and HTTP requests that end when their time is up, however the other side behaves."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from sexton import __version__
from sexton.outcome.reporters.attempt import Attempt, NotDelivered, OutOfTime

MAX_REDIRECTS = 3
ANSWER_BYTES = 64 * 1024
RETRIED_STATUSES = frozenset({408, 425, 429})
USER_AGENT = f"sexton/{__version__}"


def connect(host: str, port: int, attempt: Attempt) -> socket.socket:
    """A TCP connection to the first address that takes one. Raises NotDelivered."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as failure:
        raise NotDelivered(f"{host} cannot be resolved: {failure}", again=True) from None
    last: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        made = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        try:
            attempt.on_abort(lambda made=made: break_off(made))  # type: ignore[misc]
            made.settimeout(attempt.remaining())
            made.connect(address)
            return made
        except TimeoutError:
            made.close()
            raise OutOfTime(attempt.seconds) from None
        except OSError as failure:
            made.close()
            attempt.remaining()
            last = failure
        except BaseException:
            made.close()
            raise
    raise NotDelivered(f"{host} port {port}: {last}", again=True)


def break_off(connection: socket.socket) -> None:
    """From another thread: a read or write that is under way returns."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # not connected yet, or not any more


def tls_context(*, validate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not validate:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Answer(NamedTuple):
    status: int
    reason: str
    location: str | None
    text: str
    """The beginning of the body."""


def request(
    url: str, attempt: Attempt, *, method: str, headers: Mapping[str, str], body: bytes,
) -> Answer:
    """One request, with at most MAX_REDIRECTS redirects that keep method and body (307, 308) and the origin: headers
    may carry a token. Raises NotDelivered unless the answer is 2xx. No message contains the address."""
    for _ in range(MAX_REDIRECTS + 1):
        answer = _exchange(urlsplit(url), attempt, method, headers, body)
        if answer.status not in (307, 308) or not answer.location:
            return _judge(answer)
        to = urljoin(url, answer.location)
        if _origin(urlsplit(to)) != _origin(urlsplit(url)):
            raise NotDelivered(f"the answer redirects to another host ({urlsplit(to).hostname}): give its address")
        url = to
    raise NotDelivered(f"more than {MAX_REDIRECTS} redirects")


def _judge(answer: Answer) -> Answer:
    if 200 <= answer.status < 300:
        return answer
    said = " ".join(answer.text[:200].split())
    message = f"the answer is {answer.status} {answer.reason}" + (f": {said}" if said else "")
    if 300 <= answer.status < 400 and answer.location:
        message += " (a redirect that does not keep the request: give the final address)"
    raise NotDelivered(message, again=answer.status >= 500 or answer.status in RETRIED_STATUSES)


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return (parts.scheme, parts.hostname, parts.port)


def _exchange(
    parts: SplitResult, attempt: Attempt, method: str, headers: Mapping[str, str], body: bytes,
) -> Answer:
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise NotDelivered("its address does not begin with http:// or https:// and a host")
    port = port or (443 if parts.scheme == "https" else 80)
    plain = connect(host, port, attempt)
    try:
        connection = http.client.HTTPConnection(host, port, timeout=attempt.remaining())
        connection.sock = plain
        if parts.scheme == "https":
            connection.sock = tls_context().wrap_socket(plain, server_hostname=host)
            attempt.on_abort(lambda: break_off(connection.sock))
        with connection.sock:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            usual = {"User-Agent": USER_AGENT, "Connection": "close", "Accept": "*/*"}
            connection.request(method, target, body=body, headers={**usual, **headers})
            connection.sock.settimeout(attempt.remaining())
            answer = connection.getresponse()
            text = answer.read(ANSWER_BYTES).decode("utf-8", "replace")
            return Answer(answer.status, answer.reason, answer.getheader("Location"), text)
    except TimeoutError:
        raise OutOfTime(attempt.seconds) from None
    except ssl.SSLCertVerificationError as failure:
        raise NotDelivered(f"the certificate of {host} is not accepted: {failure.verify_message}") from None
    except (OSError, http.client.HTTPException, ValueError) as failure:
        attempt.remaining()  # a connection that we broke off looks like one that was reset
        raise NotDelivered(f"{type(failure).__name__} in the exchange with {host}: {_safe(failure)}",
                           again=not isinstance(failure, ValueError)) from None
    finally:
        plain.close()


def _safe(failure: Exception) -> str:
    """What of an error may be told: those of the system; others may quote the address."""
    return failure.strerror or "no reason given" if isinstance(failure, OSError) else "no usable answer"

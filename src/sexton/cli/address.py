"""Where the daemon is: from `--url`, the environment, or the `web.listen` of its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from urllib.parse import urlsplit

import msgspec

from sexton.cli.failures import Misused

VARIABLE = "SEXTON_URL"
DEFAULT_URL = "http://127.0.0.1:8420"
_EXAMPLE = "write for example http://127.0.0.1:8420 or unix:///run/sexton.sock"

_WEB = re.compile(rb"^web:[^\n]*\n?(?:(?:[ \t#\r][^\n]*)?\n|[ \t#][^\n]*\Z)*", re.MULTILINE)
_ELSEWHERE = re.compile(rb"""^['"]?include\b|\bweb['"]?\s*:""", re.MULTILINE)
"""What may lead to a section that `_WEB` does not see: an included file, or another way to write the key."""


class Scheme(Enum):
    HTTP = "http"
    HTTPS = "https"
    UNIX = "unix"


class Address(msgspec.Struct, frozen=True):
    """A place to send requests to. `path` is the socket, or what a proxy has before every route."""

    scheme: Scheme
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        if self.scheme is Scheme.UNIX:
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme.value}://{host}:{self.port}{self.path}"


def parse_address(text: str) -> Address:
    """Raises Misused for what is no URL of a daemon."""
    try:
        parts = urlsplit(text)
        scheme, port = Scheme(parts.scheme), parts.port
    except ValueError:
        raise Misused(f"{text!r} is not the URL of a daemon", _EXAMPLE) from None
    if parts.query or parts.fragment or parts.username is not None:
        raise Misused(f"{text!r} has parts that the URL of a daemon cannot have", _EXAMPLE)
    if scheme is Scheme.UNIX:
        if parts.netloc or not parts.path.startswith("/"):
            raise Misused(f"{text!r} needs an absolute path", _EXAMPLE)
        return Address(scheme, "", 0, parts.path)
    if not parts.hostname:
        raise Misused(f"{text!r} has no host", _EXAMPLE)
    return Address(
        scheme, parts.hostname, port or (443 if scheme is Scheme.HTTPS else 80), parts.path.rstrip("/")
    )


def find_address(url: str | None, config: str, environ: Mapping[str, str]) -> Address:
    """The explicit URL, else the one in the environment, else the first address that the configuration
    listens on, else the default. Raises Misused."""
    given = url or environ.get(VARIABLE)
    if given:
        return parse_address(given)
    for address in listened(config):
        if not address.endswith(":0"):  # a port of the kernel's choice is known to the daemon only
            return parse_address(address)
    return parse_address(DEFAULT_URL)


def listened(config: str) -> tuple[str, ...]:
    """The addresses of `web.listen`; empty where there is no such configuration or section.

    A large configuration takes seconds to check: the section alone is read where it says everything.
    """
    from sexton.config.files import configuration_files, is_folder, read_bytes

    files = configuration_files(config) if is_folder(config) else [config]
    if isinstance(files, str):
        return ()
    elsewhere = False
    for file in files:
        data = read_bytes(file)
        if isinstance(data, str):
            continue
        if (section := _WEB.search(data)) is not None:
            found = _plain_section(section[0])
            return found if found is not None else _loaded(config)
        elsewhere = elsewhere or _ELSEWHERE.search(data) is not None
    return _loaded(config) if elsewhere else ()


def _plain_section(text: bytes) -> tuple[str, ...] | None:
    """What a `web` section says by itself; None where the rest of the file is needed to tell."""
    import yaml

    try:
        listen = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["web"]["listen"]
        listen = [listen] if isinstance(listen, str) else listen
        return None if b"$" in text else msgspec.convert(listen, tuple[str, ...])
    except (yaml.YAMLError, LookupError, TypeError, msgspec.ValidationError):
        return None


def _loaded(config: str) -> tuple[str, ...]:
    from sexton.daemon.loading import load_here

    web = load_here(config).settings.web
    return web.listen if web is not None else ()

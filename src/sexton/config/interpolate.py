"""`${VAR}`, `${VAR:-default}` and `$$` in text values. Pure: the variables are handed in."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sexton.model.errors import SextonError

_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)(\}?)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL | re.ASCII)


class InterpolationError(SextonError):
    """A `${...}` that cannot be replaced. `hint` says what would work."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """Replace every reference in `text`; `$$` becomes `$` and a bare `$NAME` stays as it is.

    A default also stands in for a variable that is set but empty. Raises `InterpolationError` for a variable
    that is not set and has no default, and for a `${` that is not a reference.
    """
    if "$" not in text:
        return text
    return _REFERENCE.sub(lambda match: _replacement(match, variables), text)


def _replacement(match: re.Match[str], variables: Mapping[str, str]) -> str:
    whole = match.group()
    if whole == "$$":
        return "$"
    reference = _NAME.fullmatch(match.group(1)) if match.group(2) else None
    if reference is None:
        raise InterpolationError(
            f"{whole!r} is not a variable reference",
            "write ${NAME} or ${NAME:-default}; for a literal dollar sign write $$",
        )
    name, default = reference.groups()
    value = variables.get(name)
    if value is None and default is None:
        raise InterpolationError(
            f"environment variable {name} is not set",
            f"set it for the daemon, or give a default: ${{{name}:-...}}",
        )
    if default is not None and not value:
        return str(default)
    return _encodable(name, value or "")


def _encodable(name: str, value: str) -> str:
    """Refuse a value whose bytes are not UTF-8: Python smuggles those in as lone surrogates."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InterpolationError(
            f"the value of environment variable {name} is not valid UTF-8", "set it to UTF-8 text"
        ) from None
    return value
